// CallHistory: this rank's last calls on a communicator. Peers compare them with their own, when
// they wait too long or got a message of another call. Calls are numbered alike on all ranks. So
// two calls that differ at one number are a mismatch, and the rank that compares can name both.
#pragma once

#include "lib/base/status.h"
#include "lib/call/request.h"
#include "lib/control/control.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace gyre::comm {

// All that ranks have to agree on in one call.
struct CallRecord {
  std::uint64_t sequence = 0;  // of the call; the first is 1, and 0 is none: see Communicator
  std::uint64_t kind = 0;      // function, type, op and root
  std::uint64_t count = 0;     // elements; 0 where each rank has its own
  std::uint64_t blocks = 0;    // hash of uneven lengths that all ranks share

  static CallRecord of(const Request& request, std::uint64_t sequence);
  bool agrees_with(const CallRecord& other) const {
    return kind == other.kind && count == other.count && blocks == other.blocks;
  }
  std::string text() const;  // "gyreAllReduce of 100 float (sum)"
};

class CallHistory {
 public:
  explicit CallHistory(int rank) : rank_(rank) {}

  // The owner's thread, at the start of each call: one store if it is like the one before. The
  // mismatch, if a peer was here before with another call.
  std::optional<Status> begin(const CallRecord& call);
  // The same of one that is like the one before. False: somebody asked, and `begin` is to follow.
  bool repeat(std::uint64_t sequence) {
    last_.sequence = sequence;
    newest_.store(sequence, std::memory_order_release);  // as in begin
    return !asked_ahead_.load(std::memory_order_acquire);
  }
  // And of one that is not.
  bool change(const CallRecord& call);
  // The owner's thread: of all calls up to the last one, alike where those are. In what messages
  // say of their call, it tells that an earlier one differed, whose own messages nobody looked at.
  std::uint64_t hash() const { return history_; }
  // Any thread: a peer says what it called last. The first mismatch, if this rank's call of some
  // number is another; what it says of calls that are still to come is kept.
  std::optional<Status> compare(int from, const control::MessageBytes& message);
  // This rank's last calls, for a peer to compare: who notices may be past the call that differs,
  // since a rank that only sends returns early.
  control::MessageBytes question() const;

 private:
  static constexpr std::uint64_t calls_in_question = 32;
  // How many changes of call a rank may be ahead of one that asks.
  static constexpr std::size_t run_count = 128;
  // Calls that are alike, from the first one on: until the next run begins, or the newest call.
  struct alignas(64) CallRun {
    std::atomic<std::uint64_t> first{0};
    std::atomic<std::uint64_t> kind{0}, count{0}, blocks{0};
  };
  void begin_run(const CallRecord& call);
  std::optional<CallRecord> find(std::uint64_t sequence) const;
  std::optional<Status> judge(int from, const CallRecord& theirs, const CallRecord& own) const;

  const int rank_;
  std::array<CallRun, run_count> runs_;
  std::atomic<std::uint64_t> begun_{0};   // runs; the last one is at begun - 1
  std::atomic<std::uint64_t> newest_{0};  // call
  CallRecord last_;                       // the owner's thread's, and the next
  std::uint64_t history_ = 0;
  std::atomic<bool> asked_ahead_{false};
  std::mutex mutex_;
  std::map<int, std::vector<CallRecord>> ahead_;  // by who asked; ascending
};

}  // namespace gyre::comm
