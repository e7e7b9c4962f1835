#include "lib/comm/stream.h"

#include "lib/base/caught.h"
#include "lib/base/log.h"

#include <algorithm>
#include <optional>

namespace gyre::comm {
namespace {

// Counted before it is asked whether the process ends, so that one of both is seen.
class AdvanceGuard {
 public:
  explicit AdvanceGuard(std::atomic<int>& count) : count_(count) { ++count_; }
  ~AdvanceGuard() { --count_; }
  AdvanceGuard(const AdvanceGuard&) = delete;
  AdvanceGuard& operator=(const AdvanceGuard&) = delete;

 private:
  std::atomic<int>& count_;
};

}  // namespace

StreamWorker::~StreamWorker() {
  end(0);
  thread_.join();
}

void StreamWorker::end(std::int64_t max_ns) {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    exits_ = thread_.is_started() && thread_.is_current();
  }
  queued_.fetch_add(1, std::memory_order_release);
  wake_futex(&queued_);
  (void)thread_.end_within(max_ns);
}

bool StreamWorker::is_over() const {
  return stop_ && (exits_ || !thread_.is_started() || thread_.has_ended()) && advancing_ == 0;
}

Result<StreamWorker::PreparedEntry> StreamWorker::make(HandleTable<HostStream>::Pin stream,
                                                       HostStream::QueuedWork entry) {
  HostStream& to = *stream;
  if (stop_) return process_ends();
  if (!to.by_caller && !thread_.is_started())
    GYRE_TRY(thread_.start("gyre-streams", [this] { serve_unless_forked(); }));
  auto known =
      std::ranges::find_if(streams_, [&](const StreamPin& served) { return &**served == &to; });
  if (known == streams_.end())
    known =
        streams_.insert(known, std::make_shared<HandleTable<HostStream>::Pin>(std::move(stream)));
  PreparedEntry made{*known, {}};
  made.entry.push_back(std::move(entry));
  return made;
}

void StreamWorker::push(PreparedEntry& made) {
  HostStream& to = **made.stream;
  if (to.by_caller) for_callers_.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(to.mutex);
  to.entries.splice(to.entries.end(), made.entry);
}

void StreamWorker::announce(const std::vector<PreparedEntry>& queued) {
  const bool any_threaded = std::ranges::any_of(
      queued, [](const PreparedEntry& one) { return !(*one.stream)->by_caller; });
  if (any_threaded) {
    // Pairs with the acquire in serve().
    queued_.fetch_add(1, std::memory_order_release);
    wake_futex(&queued_);
  }
  // What callers drive begins at once, so that peers can go on with their part. A thread that waits
  // sees what is new when its sleep of a millisecond is over. Where there is no memory for this
  // turn, the next one goes on: all is queued.
  for (const PreparedEntry& one : queued) (void)thrown_by([&] { give_turn(**one.stream); });
}

Status StreamWorker::queue(HandleTable<HostStream>::Pin stream, HostStream::QueuedWork entry) {
  std::vector<PreparedEntry> made;
  {
    const std::lock_guard lock(mutex_);
    GYRE_ASSIGN(PreparedEntry one, make(std::move(stream), std::move(entry)));
    made.push_back(std::move(one));
    push(made.front());
  }
  announce(made);
  return {};
}

Status StreamWorker::queue(std::vector<StreamAssignment> placed) {
  std::vector<PreparedEntry> made;
  {
    const std::lock_guard lock(mutex_);
    GYRE_TRY(place(placed, made));
  }
  announce(made);
  return {};
}

// First all that may fail, then what counts.
Status StreamWorker::place(std::vector<StreamAssignment>& placed,
                           std::vector<PreparedEntry>& made) {
  std::vector<std::size_t> entry_of;  // of each part, in `made`
  for (StreamAssignment& one : placed) {
    const HostStream* to = &*one.stream;
    auto known = std::ranges::find_if(
        made, [&](const PreparedEntry& other) { return &**other.stream == to; });
    if (known == made.end()) {
      GYRE_ASSIGN(PreparedEntry first, make(std::move(one.stream), {}));
      first.entry.front().parts.reserve(placed.size());
      known = made.insert(known, std::move(first));
    }
    entry_of.push_back(static_cast<std::size_t>(known - made.begin()));
  }
  for (std::size_t i = 0; i < placed.size(); ++i) {
    HostStream::StreamPart& part = placed[i].part;
    Communicator& communicator = *part.communicator;
    if (!part.work.is_exchange()) part.ticket = communicator.order.next_ticket++;
    if (part.work.exchanges()) part.transfer = communicator.order.next_transfer++;
    communicator.order.queued.fetch_add(1, std::memory_order_relaxed);
    made[entry_of[i]].entry.front().parts.push_back(std::move(part));
  }
  for (PreparedEntry& one : made) push(one);
  return {};
}

void StreamWorker::forget(HostStream& stream) {
  const std::lock_guard lock(mutex_);
  std::erase_if(streams_, [&](const StreamPin& served) { return &**served == &stream; });
}

std::vector<StreamWorker::StreamPin> StreamWorker::streams(bool by_caller) {
  const std::lock_guard lock(mutex_);
  std::vector<StreamPin> all;
  for (const StreamPin& stream : streams_)
    if ((*stream)->by_caller == by_caller) all.push_back(stream);
  return all;
}

// ------------------------------------------------------------------------------ a turn

bool StreamWorker::Turn::drive(HostStream& stream) const {
  return stream.driver.take(this, comes_again) != DriverSeat::TakeResult::no;
}

bool StreamWorker::Turn::drive(Communicator& communicator) const {
  const DriverSeat::TakeResult taken = communicator.order.driver.take(this, comes_again);
  if (taken == DriverSeat::TakeResult::newly) communicator.change_driver();
  return taken != DriverSeat::TakeResult::no;
}

bool StreamWorker::Turn::blocks(const Communicator& communicator) const {
  return std::ranges::any_of(
      blocked, [&](const BlockedOperation& one) { return one.communicator == &communicator; });
}

bool StreamWorker::Turn::arm(WaitSet& set) const {
  bool asleep = true;
  for (const BlockedOperation& one : blocked)
    if (!one.operation->finished()) asleep &= one.operation->arm(set);
  return asleep;
}

void StreamWorker::Turn::disarm() const {
  for (const BlockedOperation& one : blocked)
    if (!one.operation->finished()) one.operation->disarm();
}

void StreamWorker::Turn::tell_wait() const {
  for (const BlockedOperation& one : blocked) one.operation->tell_wait();
}

void StreamWorker::Turn::expire() const {
  for (const BlockedOperation& one : blocked)
    if (system_clock.now_ns() - one.since_ns >= one.operation->limit_ns()) one.operation->expire();
}

void StreamWorker::Turn::make_room() {
  if (blocked.size() == blocked.capacity()) blocked.reserve(2 * blocked.size() + 4);
}

void StreamWorker::Turn::leave() {
  for (const BlockedOperation& one : blocked) {
    one.communicator->order.driver.leave(this);
    one.stream->driver.leave(this);
  }
  blocked.clear();
}

bool StreamWorker::finish_part(HostStream& stream, HostStream::StreamPart& part, Status outcome,
                               const Turn& turn) {
  if (!outcome.ok()) {
    part.communicator->remember(outcome);
    const std::lock_guard lock(stream.mutex);
    if (stream.first_error.ok()) stream.first_error = std::move(outcome);
  }
  // Other threads look at a stream's first communicator under its lock (policy_of).
  const HandleTable<Communicator>::Pin communicator = [&] {
    const std::lock_guard lock(stream.mutex);
    return std::move(part.communicator);
  }();
  if (!part.work.is_exchange())
    communicator->order.running_ticket.fetch_add(1, std::memory_order_release);
  if (!turn.blocks(*communicator)) communicator->order.driver.leave(&turn);
  if (part.is_counted) --communicator->order.begun;
  // Pairs with the acquire of a call without a stream that waits for zero.
  communicator->order.queued.fetch_sub(1, std::memory_order_release);
  wake_futex(&communicator->order.queued);
  return true;
}

void StreamWorker::finish_head(HostStream& stream) {
  std::list<HostStream::QueuedWork> done;
  {
    const std::lock_guard lock(stream.mutex);
    done.splice(done.end(), stream.entries, stream.entries.begin());
  }
  if (stream.by_caller) for_callers_.fetch_sub(1, std::memory_order_relaxed);
  if (const auto& mark = done.front().mark) mark->reached.store(true, std::memory_order_release);
  stream.done.fetch_add(1, std::memory_order_release);
  wake_futex(&stream.done);
}

// Collectives run in their order; what has sends and receives begins in theirs. On a broken
// communicator nothing is carried out, so that nothing has to come first.
bool StreamWorker::may_begin(const HostStream::StreamPart& part) const {
  const Communicator& communicator = *part.communicator;
  if (!communicator.broken().ok()) return true;
  if (!part.work.is_exchange() &&
      communicator.order.running_ticket.load(std::memory_order_acquire) != part.ticket)
    return false;
  return !part.work.exchanges() ||
         communicator.order.beginning_transfer.load(std::memory_order_acquire) == part.transfer;
}

// Goes on with the work, if its communicator has come to it. True if anything moved.
bool StreamWorker::serve_part(HostStream& stream, HostStream::StreamPart& part, Turn& turn) {
  const AdvanceGuard advancing(advancing_);
  // Whoever waits for it is told so, and may use the buffers for something else.
  if (stop_) return false;
  Communicator& communicator = *part.communicator;
  if (part.begun == nullptr && !may_begin(part)) return false;
  turn.make_room();  // while nothing is taken
  if (!turn.drive(communicator)) return false;
  if (part.begun == nullptr) {
    if (!std::exchange(part.is_counted, true)) ++communicator.order.begun;
    if (Status broken = communicator.broken(); !broken.ok())
      return finish_part(stream, part, std::move(broken), turn);
    // A blocking communicator's join is not queued, and what has no ticket may overtake another's.
    const bool may_overtake = part.work.is_exchange() || communicator.background_stream() == 0;
    if (may_overtake && !communicator.joining().finished()) {
      if (!turn.blocks(communicator)) communicator.order.driver.leave(&turn);
      return false;
    }
    if (part.work.exchanges())
      communicator.order.beginning_transfer.fetch_add(1, std::memory_order_release);
    Status thrown = thrown_by([&] { part.begun = &communicator.begin(part.work); });
    if (!thrown.ok()) return finish_part(stream, part, std::move(thrown), turn);
    part.begun_ns = system_clock.now_ns();
  }
  Resumable& operation = *part.begun;
  bool moved = operation.finished();
  const Status thrown = thrown_by([&] { moved = moved || operation.advance(); });
  if (!thrown.ok()) operation.break_off(thrown);
  if (!operation.finished()) {
    turn.blocked.push_back({&operation, part.begun_ns, &communicator, &stream});
    return moved;
  }
  return finish_part(stream, part, operation.outcome(), turn);
}

bool StreamWorker::serve_parts(HostStream& stream, HostStream::QueuedWork& head, Turn& turn) {
  Status so_far;
  if (head.callback) {
    const std::lock_guard lock(stream.mutex);
    so_far = stream.first_error;
  }
  if (head.callback) call_user([&] { head.callback(so_far); });
  if (head.wait_for && !head.wait_for->reached.load(std::memory_order_acquire)) return false;
  bool moved = false, done = true;
  for (HostStream::StreamPart& part : head.parts) {
    if (!part.communicator) continue;
    moved |= serve_part(stream, part, turn);
    done &= !part.communicator;
  }
  if (!done) return moved;
  finish_head(stream);
  return true;
}

// Advances the first entry of a stream. True if anything moved.
bool StreamWorker::serve_head(HostStream& stream, Turn& turn) {
  if (!turn.drive(stream)) return turn.all_empty = false;
  HostStream::QueuedWork* head = nullptr;
  {
    const std::lock_guard lock(stream.mutex);
    // Only the driver removes entries; a list keeps their places.
    if (!stream.entries.empty()) head = &stream.entries.front();
  }
  const std::size_t before = turn.blocked.size();
  const auto leave = [&] {
    if (turn.blocked.size() == before) stream.driver.leave(&turn);
  };
  turn.all_empty &= head == nullptr;
  try {
    const bool moved = head != nullptr && serve_parts(stream, *head, turn);
    leave();
    return moved;
  } catch (...) {
    leave();
    throw;
  }
}

bool StreamWorker::serve_all(const std::vector<StreamPin>& streams, Turn& turn) {
  bool moved = false;
  for (const StreamPin& stream : streams) moved |= serve_head(**stream, turn);
  return moved;
}

// ------------------------------------------------------------------------------ whose turn it is

// In a child that comes back from a callback this is the only thread, and none of the library's:
// the child ends with it.
void StreamWorker::serve_unless_forked() {
  while (!stop_.load(std::memory_order_relaxed)) {
    try {
      serve();
    } catch (const ForkInCallback& forked) {
      return log_warn("{}", forked.what());
    } catch (const std::exception&) {  // no memory; each operation has a deadline
      WaitSet nothing;
      nothing.sleep(ns_per_ms);
    }
  }
}

void StreamWorker::serve() {
  // It shares processors with the threads that compute: few spins before it lets go.
  Wait wait(system_clock, {.spins = 200, .yields = 16, .max_sleep_ns = ns_per_ms}, INT64_MAX);
  WaitSet idle;
  while (!stop_.load(std::memory_order_relaxed)) {
    const std::uint32_t seen = queued_.load(std::memory_order_acquire);
    Turn turn;
    if (serve_all(streams(false), turn)) {
      wait.progressed();
      continue;
    }
    if (turn.all_empty) {
      idle.clear();
      idle.add_futex(&queued_, seen);
      idle.sleep(ns_per_s);
      continue;
    }
    const auto arm = [&](WaitSet& set) {
      set.add_futex(&queued_, seen);
      return turn.arm(set);
    };
    if (wait.is_long()) turn.tell_wait();
    (void)wait.pause(arm, [&] { turn.disarm(); });
    turn.expire();
  }
}

// Beside what a thread waits for, as long as it does.
class StreamWorker::CallersTurns final : public Resumable {
 public:
  CallersTurns(StreamWorker& worker, std::span<Resumable* const> beside)
      : worker_(worker), beside_(beside) {}

  bool advance() override {
    turn_.leave();
    if (std::ranges::all_of(beside_, [](const Resumable* one) { return one->finished(); })) {
      finish({});
      return true;
    }
    return worker_.serve_all(worker_.streams(true), turn_);
  }
  // Each of them has a deadline of its own.
  void expire() override {}
  void break_off(const Status&) override {}  // each is broken off in its stream
  std::int64_t limit_ns() const override { return INT64_MAX; }
  bool arm(WaitSet& set) override {
    turn_.expire();
    return turn_.arm(set);
  }
  void disarm() override { turn_.disarm(); }
  void tell_wait() override { turn_.tell_wait(); }

 private:
  StreamWorker& worker_;
  const std::span<Resumable* const> beside_;
  Turn turn_;
};

// Other threads may queue some at any time.
class StreamWorker::CallersTask final : public SideTask {
 public:
  CallersTask(StreamWorker& worker, std::span<Resumable* const> beside)
      : SideTask(worker.for_callers_), worker_(worker), beside_(beside) {}
  Resumable& task() override {
    if (!turns_) turns_.emplace(worker_, beside_);
    return *turns_;
  }

 private:
  StreamWorker& worker_;
  const std::span<Resumable* const> beside_;
  std::optional<CallersTurns> turns_;
};

void StreamWorker::run(std::span<Resumable* const> all, const WaitPolicy& policy) {
  CallersTask beside(*this, all);
  comm::run(all, system_clock, policy, &beside);
}

Status StreamWorker::run_until(std::atomic<std::uint32_t>& word, std::function<bool()> done,
                               const WaitPolicy& policy) {
  // Looked at each time that the wait does, at the latest each millisecond.
  ConditionWait until(word, [&] { return done() || is_over(); });
  Resumable* const all[] = {&until};
  run(all, policy);
  return done() ? Status() : process_ends();
}

void StreamWorker::give_turn(HostStream& stream) {
  if (!stream.by_caller) return;
  Turn turn{.blocked = {}, .all_empty = true, .comes_again = false};
  (void)serve_head(stream, turn);
}

void StreamWorker::give_turns() {
  if (for_callers_.load(std::memory_order_relaxed) == 0) return;
  Turn turn{.blocked = {}, .all_empty = true, .comes_again = false};
  (void)serve_all(streams(true), turn);
  turn.expire();
}

}  // namespace gyre::comm
