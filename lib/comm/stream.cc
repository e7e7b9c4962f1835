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

void StreamWorker::queue(HostStream& stream, HandleTable<HostStream>::Pin pin,
                         HostStream::Entry entry) {
  {
    const std::lock_guard lock(mutex_);
    if (entry.communicator) {
      entry.ticket = entry.communicator->next_ticket++;
      entry.communicator->queued.fetch_add(1, std::memory_order_relaxed);
    }
    const std::lock_guard stream_lock(stream.mutex);
    stream.entries.push_back(std::move(entry));
    const bool known =
        std::ranges::any_of(streams_, [&](const Served& served) { return &**served == &stream; });
    if (!known) streams_.push_back(std::make_shared<HandleTable<HostStream>::Pin>(std::move(pin)));
    if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  }
  // Pairs with the acquire in serve().
  queued_.fetch_add(1, std::memory_order_release);
  wake_futex(&queued_);
}

void StreamWorker::forget(HostStream& stream) {
  const std::lock_guard lock(mutex_);
  std::erase_if(streams_, [&](const Served& served) { return &**served == &stream; });
}

void StreamWorker::finish_head(HostStream& stream, Status outcome) {
  HostStream::Entry done;
  {
    const std::lock_guard lock(stream.mutex);
    if (!outcome.ok() && stream.first_error.ok()) stream.first_error = std::move(outcome);
    done = std::move(stream.entries.front());
    stream.entries.pop_front();
  }
  if (done.communicator) {
    done.communicator->running_ticket.fetch_add(1, std::memory_order_release);
    // Pairs with the acquire of a call without a stream that waits for zero.
    done.communicator->queued.fetch_sub(1, std::memory_order_release);
    wake_futex(&done.communicator->queued);
  }
  if (done.mark) done.mark->reached.store(true, std::memory_order_release);
  stream.done.fetch_add(1, std::memory_order_release);
  wake_futex(&stream.done);
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
  if (!head->communicator) return finish_head(stream, {}), true;

  Communicator& communicator = *head->communicator;
  if (communicator.running_ticket.load(std::memory_order_acquire) != head->ticket) return false;
  if (head->begun == nullptr) {
    if (Status broken = communicator.broken(); !broken.ok())
      return finish_head(stream, std::move(broken)), true;
    head->begun = &communicator.begin(head->work);
    head->begun_ns = clock.now_ns();
  }
  Resumable& operation = *head->begun;
  const bool moved = operation.finished() || operation.advance();
  if (!operation.finished()) {
    blocked.push_back({&operation, head->begun_ns});
    return moved;
  }
  if (!operation.outcome().ok()) communicator.remember(operation.outcome());
  finish_head(stream, operation.outcome());
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
