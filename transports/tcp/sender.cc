#include "transports/tcp/sender.h"

#include <algorithm>

namespace gyre::transport {

TcpSender::TcpSender(const LinkKey& key, const TransportEnvironment& environment,
                     std::shared_ptr<FifoMemory> memory, std::vector<SendingRail> rails)
    : memory_(std::move(memory)),
      lent_(memory_->view.shape.slot_count),
      leaving_(memory_->view),
      dealer_(memory_->view, leaving_.head()),
      common_(common_header(key, environment)),
      rails_("tcp to", key.peer, std::move(rails)) {
  memory_->view.lent = lent_.data();
}

Status TcpSender::progress() {
  if (!rails_.error().ok()) return rails_.error();
  if (is_cut_off_) return rails_.fail(cut_off_failure());
  if (!ready()) GYRE_TRY(rails_.join());
  if (!ready()) return {};
  do {
    for (SendingRail& rail : rails_.all()) {
      Status shipped = rail.ship(memory_->view, common_);
      if (!shipped.ok()) return rails_.fail(rail, std::move(shipped));
    }
  } while (dealer_.deal(rails_.all()));
  release_sent();
  return {};
}

bool TcpSender::met_silence() const {
  return std::ranges::any_of(rails_.all(), &SendingRail::met_silence);
}

void TcpSender::release_sent() {
  std::uint64_t sent = dealer_.next() - leaving_.head();
  for (const SendingRail& rail : rails_.all())
    if (!rail.is_free()) sent = std::min(sent, rail.first() - leaving_.head());
  for (; sent > 0; --sent) leaving_.release();
}

bool TcpSender::holds_bytes() const {
  return std::ranges::any_of(rails_.all(), &SendingRail::holds_bytes);
}

bool TcpSender::flushed() const { return leaving_.head() == dealer_.committed() && !holds_bytes(); }

// What came later left later, and whoever committed it goes on until all has left.
bool TcpSender::flushed_to(std::uint64_t tail) const {
  if (leaving_.head() != tail) return leaving_.head() > tail;
  return !holds_bytes();
}

void TcpSender::arm(WaitSet& set) {
  // Messages that no rail has yet wait for one that is busy, if there is one.
  const bool may_go = ready() && dealer_.next() != dealer_.committed() &&
                      std::ranges::all_of(rails_.all(), &SendingRail::is_free);
  for (const SendingRail& rail : rails_.all()) rail.arm(set, may_go);
}

}  // namespace gyre::transport
