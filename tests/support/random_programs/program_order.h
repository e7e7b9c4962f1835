// Which accesses to buffers are surely over when another begins, by the rules that a program may
// rely on: the order of a stream, gyreStreamWait, and waits of the calling thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

namespace gyre::tests {

class ProgramOrder {
 public:
  static constexpr int thread = 0;  // the queue of calls that are over when they return

  explicit ProgramOrder(int ranks) : queues_(static_cast<std::size_t>(ranks)) {}

  // The next entry of a queue; it comes after all that the thread has waited for. The place of the
  // entry in its queue. What a group has put into a queue goes on side by side: that one of it is
  // over says nothing of the others, which may stand before it.
  std::size_t enter(int rank, int queue, int comm, bool in_group) {
    if (queue == thread) return 0;
    Queue& to = at(rank, queue);
    learn(to, at(rank, thread));
    ++to.length;
    if (!in_group) last_of_[{rank, comm}][queue] = to.length;
    return to.length;
  }
  // A call without a stream comes after what is queued on its communicator.
  void wait_for_comm(int rank, int comm) {
    for (const auto& [queue, place] : last_of_[{rank, comm}])
      raise(at(rank, thread).seen[queue], place);
  }
  void wait_for_stream(int rank, int queue, int other) {
    learn(at(rank, queue), at(rank, other));
    raise(at(rank, queue).seen[other], at(rank, other).length);
  }
  void synchronize(int rank, int queue) { wait_for_stream(rank, thread, queue); }

  struct Access {
    int queue;
    std::size_t place;
    bool writes;
  };
  bool is_over(int rank, const Access& access, int queue) {
    if (access.queue == thread || access.queue == queue) return true;
    const auto seen = [&](Queue& by) { return by.seen[access.queue]; };
    return std::max(seen(at(rank, queue)), seen(at(rank, thread))) >= access.place;
  }
  // A reader needs the writers before it to be over; a writer, everybody.
  bool may_access(int rank, const std::vector<Access>& before, int queue, bool writes) {
    return std::all_of(before.begin(), before.end(), [&](const Access& one) {
      return (!writes && !one.writes) || is_over(rank, one, queue);
    });
  }

 private:
  struct Queue {
    std::size_t length = 0;
    std::map<int, std::size_t> seen;  // of other queues, this many entries are over
  };
  Queue& at(int rank, int queue) { return queues_[static_cast<std::size_t>(rank)][queue]; }
  static void raise(std::size_t& value, std::size_t least) { value = std::max(value, least); }
  static void learn(Queue& to, const Queue& from) {
    for (const auto& [queue, place] : from.seen) raise(to.seen[queue], place);
  }

  std::vector<std::map<int, Queue>> queues_;                           // by rank
  std::map<std::pair<int, int>, std::map<int, std::size_t>> last_of_;  // (rank, comm): by queue
};

}  // namespace gyre::tests
