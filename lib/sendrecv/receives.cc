#include "lib/sendrecv/receives.h"

#include <algorithm>

namespace gyre::comm {

void Receives::add(const PendingTransfer& receive) {
  const int peer = receive.transfer->peer;
  ReceiveQueue& line = line_of(peer);
  line.open.push_back({begun_++, receive});
  if (++line.unfinished == 1 && peer != any_source) peers_.push_back(peer);
}

bool Receives::depend_on(int peer) const {
  const auto line = lines_.find(peer);
  return line != lines_.end() && line->second.unfinished > 0;
}

Receives::ReceiveIterator Receives::first_taking(ReceiveQueue& line, int peer, int tag) {
  return std::ranges::find_if(line.open, [&](const NumberedReceive& one) {
    return one.receive.transfer->takes(peer, tag);
  });
}

// Of the peer's own line and that of any source, whichever was begun first.
std::optional<PendingTransfer> Receives::take(int peer, int tag) {
  ReceiveQueue* line = &lines_[peer];
  ReceiveIterator first = first_taking(*line, peer, tag);
  const ReceiveIterator other = first_taking(from_anyone_, peer, tag);
  if (other != from_anyone_.open.end() &&
      (first == line->open.end() || other->number < first->number)) {
    line = &from_anyone_;
    first = other;
  }
  if (first == line->open.end()) return std::nullopt;
  const PendingTransfer taken = first->receive;
  line->open.erase(first);
  return taken;
}

void Receives::finish(const PendingTransfer& receive) {
  const int peer = receive.transfer->peer;
  if (--line_of(peer).unfinished == 0) std::erase(peers_, peer);
  receive.batch->settle(*receive.transfer);
}

void Receives::forget(const Batch& batch, ReceiveQueue& line) {
  std::erase_if(line.open, [&](const NumberedReceive& one) { return one.receive.batch == &batch; });
}

void Receives::forget(const Batch& batch) {
  forget(batch, from_anyone_);
  for (auto& [peer, line] : lines_) forget(batch, line);
}

}  // namespace gyre::comm
