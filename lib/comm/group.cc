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

// One communicator's calls of a group, one after the other.
class Sequence final : public Resumable {
 public:
  explicit Sequence(Communicator& communicator) : communicator_(communicator) {}
  void add(const GroupedCall& call) { calls_.push_back(&call); }
  Communicator& communicator() { return communicator_; }

  bool advance() override {
    if (current_ == nullptr) begin_next();
    if (finished()) return true;
    const bool moved = current_->finished() || current_->advance();
    if (!current_->finished()) return moved;
    if (!current_->outcome().ok()) {
      communicator_.remember(current_->outcome());
      finish(current_->outcome());
    } else {
      begin_next();
    }
    return true;
  }
  void expire() override {
    if (current_ != nullptr) current_->expire();
  }
  bool arm(WaitSet& set) override { return current_ != nullptr && current_->arm(set); }
  void disarm() override {
    if (current_ != nullptr) current_->disarm();
  }
  std::int64_t limit_ns() const override {
    return calls_[0]->joins ? communicator_.joining().limit_ns()
                            : communicator_.operation().limit_ns();
  }

 private:
  void begin_next() {
    if (next_ == calls_.size()) return finish({});
    const GroupedCall& call = *calls_[next_++];
    if (call.joins) {
      current_ = &communicator_.joining();
    } else if (Status broken = communicator_.broken(); !broken.ok()) {
      finish(std::move(broken));
    } else {
      communicator_.begin(call.request);
      current_ = &communicator_.operation();
    }
  }

  Communicator& communicator_;
  std::vector<const GroupedCall*> calls_;
  std::size_t next_ = 0;
  Resumable* current_ = nullptr;
};

void queue(GroupedCall& call) {
  HostStream::Entry entry;
  entry.communicator = std::move(call.communicator);
  entry.request = call.request;
  HostStream& stream = *call.stream;
  process().worker.queue(stream, std::move(call.stream), std::move(entry));
}

}  // namespace

Status carry_out_now(Communicator& communicator, const Request& request) {
  GYRE_TRY(communicator.broken());
  wait_for_queue(communicator);
  communicator.begin(request);
  Resumable& operation = communicator.operation();
  if (!operation.finished()) {
    Resumable* const all[] = {&operation};
    run(all, clock, communicator.wait_policy());
  }
  return operation.outcome();
}

Status carry_out(std::vector<GroupedCall> calls) {
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
  for (GroupedCall& call : calls)
    if (call.stream) queue(call);
  if (sequences.empty()) return {};

  std::vector<Resumable*> all;
  WaitPolicy policy = sequences[0]->communicator().wait_policy();
  for (const auto& sequence : sequences) {
    wait_for_queue(sequence->communicator());
    all.push_back(sequence.get());
  }
  run(all, clock, policy);
  for (const auto& sequence : sequences)
    if (!sequence->outcome().ok()) return sequence->outcome();
  return {};
}

}  // namespace gyre::comm
