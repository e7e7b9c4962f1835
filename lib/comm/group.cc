#include "lib/comm/group.h"

#include <algorithm>
#include <memory>

namespace gyre::comm {
namespace {

const SystemClock clock;

// A call without a stream comes after everything that was queued before it.
void wait_for_queue(Communicator& communicator) {
  if (communicator.queued.load(std::memory_order_acquire) == 0) return;
  Until empty(communicator.queued,
              [&] { return communicator.queued.load(std::memory_order_acquire) == 0; });
  Resumable* const all[] = {&empty};
  run(all, clock, communicator.wait_policy());
}

// One communicator's calls of a group: collectives one after the other, and beside them all sends
// and receives at once.
class Sequence final : public Resumable {
 public:
  explicit Sequence(Communicator& communicator) : communicator_(communicator) {}
  void add(const GroupedCall& call) {
    if (call.work.request.transfers == nullptr) return calls_.push_back(&call);
    transfers_.insert(transfers_.end(), call.work.request.transfers->begin(),
                      call.work.request.transfers->end());
  }
  Communicator& communicator() { return communicator_; }

  bool advance() override {
    if (!begun_) begin();
    bool moved = false;
    for (Resumable** part : {&current_, &exchange_}) {
      if (finished() || *part == nullptr) continue;
      moved |= advance_part(*part);
    }
    if (!finished() && current_ == nullptr && exchange_ == nullptr) finish({});
    return moved || finished();
  }
  void expire() override {
    for (Resumable* part : {current_, exchange_})
      if (part != nullptr) part->expire();
  }
  bool arm(WaitSet& set) override {
    bool asleep = true;
    for (Resumable* part : {current_, exchange_})
      if (part != nullptr) asleep &= part->arm(set);
    return asleep;
  }
  void disarm() override {
    for (Resumable* part : {current_, exchange_})
      if (part != nullptr) part->disarm();
  }
  void tell_wait() override {
    for (Resumable* part : {current_, exchange_})
      if (part != nullptr) part->tell_wait();
  }
  std::int64_t limit_ns() const override {
    return !calls_.empty() && calls_[0]->work.joins ? communicator_.joining().limit_ns()
                                                    : communicator_.options().timeout_ns;
  }

 private:
  void begin() {
    begun_ = true;
    begin_next();
    if (finished() || transfers_.empty()) return;
    Request request;
    request.transfers = std::make_shared<const std::vector<Transfer>>(std::move(transfers_));
    communicator_.begin(request);
    exchange_ = &communicator_.operation(request);
  }
  // To the next collective; none: null.
  void begin_next() {
    current_ = nullptr;
    if (Status broken = communicator_.broken(); !broken.ok()) return finish(std::move(broken));
    if (next_ == calls_.size()) return;
    const GroupedCall& call = *calls_[next_++];
    current_ = &communicator_.begin(call.work);
  }
  bool advance_part(Resumable*& part) {
    const bool moved = part->finished() || part->advance();
    if (!part->finished()) return moved;
    if (!part->outcome().ok()) {
      communicator_.remember(part->outcome());
      finish(part->outcome());
    } else if (part == current_) {
      begin_next();
    } else {
      part = nullptr;
    }
    return true;
  }

  Communicator& communicator_;
  std::vector<const GroupedCall*> calls_;
  std::vector<Transfer> transfers_;
  std::size_t next_ = 0;
  bool begun_ = false;
  Resumable* current_ = nullptr;
  Resumable* exchange_ = nullptr;
};

// Sends and receives of a group on one stream and communicator become one entry, where the first of
// them stood.
void merge_transfers(std::vector<GroupedCall>& calls) {
  for (auto first = calls.begin(); first != calls.end(); ++first) {
    if (!first->stream || first->work.request.transfers == nullptr) continue;
    auto all = std::make_shared<std::vector<Transfer>>(*first->work.request.transfers);
    for (auto later = std::next(first); later != calls.end();) {
      const bool same = later->stream && &*later->stream == &*first->stream &&
                        later->work.request.transfers != nullptr &&
                        &*later->communicator == &*first->communicator;
      if (same)
        all->insert(all->end(), later->work.request.transfers->begin(),
                    later->work.request.transfers->end());
      later = same ? calls.erase(later) : std::next(later);
    }
    first->work.request.transfers = std::move(all);
  }
}

void queue(GroupedCall& call) {
  HostStream::Entry entry;
  entry.communicator = std::move(call.communicator);
  entry.work = call.work;
  HostStream& stream = *call.stream;
  process().worker.queue(stream, std::move(call.stream), std::move(entry));
}

}  // namespace

Status carry_out_now(Communicator& communicator, const Request& request) {
  GYRE_TRY(communicator.broken());
  wait_for_queue(communicator);
  communicator.begin(request);
  Resumable& operation = communicator.operation(request);
  if (!operation.finished()) {
    Resumable* const all[] = {&operation};
    run(all, clock, communicator.wait_policy());
  }
  return operation.outcome();
}

Status carry_out(std::vector<GroupedCall> calls) {
  merge_transfers(calls);
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<std::unique_ptr<Entry>> entries;
  for (GroupedCall& call : calls) {
    if (call.stream) continue;
    Communicator& communicator = *call.communicator;
    auto known = std::ranges::find_if(sequences, [&](const auto& sequence) {
      return &sequence->communicator() == &communicator;
    });
    if (known == sequences.end()) {
      entries.push_back(std::make_unique<Entry>(communicator));
      GYRE_TRY(entries.back()->status());
      known = sequences.insert(sequences.end(), std::make_unique<Sequence>(communicator));
    }
    (*known)->add(call);
  }
  bool background = false;
  for (GroupedCall& call : calls) {
    background |= call.background;
    if (call.stream) queue(call);
  }
  const Status begun = background ? Status(Code::InProgress, "begun") : Status();
  if (sequences.empty()) return begun;

  std::vector<Resumable*> all;
  WaitPolicy policy = sequences[0]->communicator().wait_policy();
  // Who joins or splits waits for the control thread, which needs a processor: on two of them a
  // split of two ranks takes 140 us so, and 350 us with a spin first.
  const auto meets = [](const GroupedCall& call) { return call.work.joins || call.work.split; };
  if (std::ranges::any_of(calls, meets)) policy.spins = 0;
  for (const auto& sequence : sequences) {
    wait_for_queue(sequence->communicator());
    all.push_back(sequence.get());
  }
  run(all, clock, policy);
  for (const auto& sequence : sequences)
    if (!sequence->outcome().ok()) return sequence->outcome();
  return begun;
}

}  // namespace gyre::comm
