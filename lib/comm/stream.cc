#include "lib/comm/stream.h"

#include <algorithm>

namespace gyre::comm {
namespace {
const SystemClock clock;
}

StreamWorker::~StreamWorker() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  queued_.fetch_add(1, std::memory_order_release);
  wake_futex(&queued_);
  if (thread_.joinable()) thread_.join();
}

void StreamWorker::push(HandleTable<HostStream>::Pin stream, HostStream::Entry entry) {
  HostStream& to = *stream;
  const bool known =
      std::ranges::any_of(streams_, [&](const Served& served) { return &**served == &to; });
  if (!known) streams_.push_back(std::make_shared<HandleTable<HostStream>::Pin>(std::move(stream)));
  const std::lock_guard lock(to.mutex);
  to.entries.push_back(std::move(entry));
}

void StreamWorker::announce() {
  // Pairs with the acquire in serve().
  queued_.fetch_add(1, std::memory_order_release);
  wake_futex(&queued_);
}

void StreamWorker::queue(HandleTable<HostStream>::Pin stream, HostStream::Entry entry) {
  {
    const std::lock_guard lock(mutex_);
    push(std::move(stream), std::move(entry));
    if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  }
  announce();
}

void StreamWorker::queue(std::vector<Placed> placed) {
  {
    const std::lock_guard lock(mutex_);
    for (Placed& one : placed) {
      Communicator& communicator = *one.part.communicator;
      if (!one.part.work.is_exchange()) one.part.ticket = communicator.next_ticket++;
      if (one.part.work.exchanges()) one.part.transfer = communicator.next_transfer++;
      communicator.queued.fetch_add(1, std::memory_order_relaxed);
    }
    for (auto first = placed.begin(); first != placed.end(); ++first) {
      if (!first->stream) continue;
      HostStream::Entry entry;
      entry.parts.push_back(std::move(first->part));
      for (auto other = std::next(first); other != placed.end(); ++other) {
        if (!other->stream || &*other->stream != &*first->stream) continue;
        entry.parts.push_back(std::move(other->part));
        other->stream = {};
      }
      push(std::move(first->stream), std::move(entry));
    }
    if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  }
  announce();
}

void StreamWorker::forget(HostStream& stream) {
  const std::lock_guard lock(mutex_);
  std::erase_if(streams_, [&](const Served& served) { return &**served == &stream; });
}

void StreamWorker::finish_part(HostStream& stream, HostStream::Part& part, Status outcome) {
  if (!outcome.ok()) {
    const std::lock_guard lock(stream.mutex);
    if (stream.first_error.ok()) stream.first_error = std::move(outcome);
  }
  const HandleTable<Communicator>::Pin communicator = std::move(part.communicator);
  if (!part.work.is_exchange())
    communicator->running_ticket.fetch_add(1, std::memory_order_release);
  // Pairs with the acquire of a call without a stream that waits for zero.
  communicator->queued.fetch_sub(1, std::memory_order_release);
  wake_futex(&communicator->queued);
}

void StreamWorker::finish_head(HostStream& stream) {
  HostStream::Entry done;
  {
    const std::lock_guard lock(stream.mutex);
    done = std::move(stream.entries.front());
    stream.entries.pop_front();
  }
  if (done.mark) done.mark->reached.store(true, std::memory_order_release);
  stream.done.fetch_add(1, std::memory_order_release);
  wake_futex(&stream.done);
}

// Collectives run in their order; what has sends and receives begins in theirs.
bool StreamWorker::may_begin(const HostStream::Part& part) const {
  const Communicator& communicator = *part.communicator;
  if (!part.work.is_exchange() &&
      communicator.running_ticket.load(std::memory_order_acquire) != part.ticket)
    return false;
  return !part.work.exchanges() ||
         communicator.beginning_transfer.load(std::memory_order_acquire) == part.transfer;
}

// Goes on with the work, if its communicator has come to it. True if anything moved.
bool StreamWorker::serve_part(HostStream& stream, HostStream::Part& part,
                              std::vector<Blocked>& blocked) {
  Communicator& communicator = *part.communicator;
  if (part.begun == nullptr) {
    if (!may_begin(part)) return false;
    if (part.work.exchanges())
      communicator.beginning_transfer.fetch_add(1, std::memory_order_release);
    if (Status broken = communicator.broken(); !broken.ok())
      return finish_part(stream, part, std::move(broken)), true;
    part.begun = &communicator.begin(part.work);
    part.begun_ns = clock.now_ns();
  }
  Resumable& operation = *part.begun;
  const bool moved = operation.finished() || operation.advance();
  if (!operation.finished()) {
    blocked.push_back({&operation, part.begun_ns});
    return moved;
  }
  if (!operation.outcome().ok()) communicator.remember(operation.outcome());
  finish_part(stream, part, operation.outcome());
  return true;
}

// Advances the first entry of a stream. True if anything moved; an operation that waits is added.
bool StreamWorker::serve_head(HostStream& stream, std::vector<Blocked>& blocked) {
  HostStream::Entry* head = nullptr;
  Status so_far;
  {
    const std::lock_guard lock(stream.mutex);
    if (stream.entries.empty()) return false;
    head = &stream.entries.front();  // only this thread removes entries; a deque keeps its place
    so_far = stream.first_error;
  }
  if (head->callback) head->callback(so_far);
  if (head->wait_for && !head->wait_for->reached.load(std::memory_order_acquire)) return false;
  bool moved = false, done = true;
  for (HostStream::Part& part : head->parts) {
    if (!part.communicator) continue;
    moved |= serve_part(stream, part, blocked);
    done &= !part.communicator;
  }
  if (!done) return moved;
  finish_head(stream);
  return true;
}

bool StreamWorker::stopped() {
  const std::lock_guard lock(mutex_);
  return stop_;
}

bool StreamWorker::serve_all(std::vector<Blocked>& blocked) {
  std::vector<Served> streams;
  {
    const std::lock_guard lock(mutex_);
    streams = streams_;
  }
  bool moved = false;
  for (const Served& stream : streams) moved |= serve_head(**stream, blocked);
  return moved;
}

void StreamWorker::serve() {
  std::vector<Blocked> blocked;
  // It shares processors with the threads that compute: few spins before it lets go.
  Wait wait(clock, {.spins = 200, .yields = 16, .sleep_most_ns = ns_per_ms}, INT64_MAX);
  WaitSet idle;
  while (!stopped()) {
    const std::uint32_t seen = queued_.load(std::memory_order_acquire);
    blocked.clear();
    if (serve_all(blocked)) {
      wait.progressed();
      continue;
    }
    if (blocked.empty()) {
      idle.clear();
      idle.add_futex(&queued_, seen);
      idle.sleep(ns_per_s);
      continue;
    }
    const auto arm = [&](WaitSet& set) {
      set.add_futex(&queued_, seen);
      bool asleep = true;
      for (const Blocked& one : blocked) asleep &= one.operation->arm(set);
      return asleep;
    };
    const auto disarm = [&] {
      for (const Blocked& one : blocked) one.operation->disarm();
    };
    if (wait.is_long())
      for (const Blocked& one : blocked) one.operation->tell_wait();
    (void)wait.pause(arm, disarm);
    for (const Blocked& one : blocked)
      if (clock.now_ns() - one.since_ns >= one.operation->limit_ns()) one.operation->expire();
  }
}

}  // namespace gyre::comm
