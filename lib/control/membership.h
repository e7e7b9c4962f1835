// Membership: one rank's place in one communicator, as the control plane keeps it. Words:
//
//   Roster   who the ranks are and which process each lives in
//   message   a small message from rank to rank, by key
#pragma once

#include "lib/base/status.h"
#include "lib/trust/identity.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace gyre::control {

using MessageBytes = std::vector<std::uint8_t>;

struct Roster {
  std::vector<trust::ProcessIdentity> processes;
  std::vector<std::uint32_t> process_of_rank;
  std::vector<MessageBytes> notes;  // by rank: what it said of itself when it joined
};

// Which processes take part in a communicator besides those of this user on this host.
enum class Audience : std::uint8_t { this_host, any_host };

// Any thread may call any member. Nothing here blocks.
class Membership {
 public:
  enum class State : std::uint32_t { joining, joined, failed, left };
  virtual ~Membership() = default;

  virtual State state() const = 0;
  // Cheap enough for a hot loop: one relaxed load.
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  // Why it failed: who died, aborted or never came; culprits are ranks. Success if it has not.
  virtual Status failure() const = 0;
  // Changes (and is woken) at every change of state, failure and arrival of a message.
  virtual std::atomic<std::uint32_t>& changed() = 0;
  // Valid once joined, and stays so.
  virtual const Roster& roster() const = 0;
  // This process as the others of this communicator know it.
  virtual const trust::ProcessIdentity& self() const = 0;

  // Messages between two ranks with one key arrive in order. A message to a rank of this process
  // does not leave it. At most 64 KiB.
  virtual Status send(int to_rank, std::uint64_t key, MessageBytes rank_message) = 0;
  virtual std::optional<MessageBytes> receive(int from_rank, std::uint64_t key) = 0;

  // Messages with this key are not kept: `hear` gets each at once, on whatever thread brings it. It
  // must not block; a status that it returns aborts this membership. Before any such message comes.
  using Hear =
      std::function<std::optional<Status>(int from_rank, const MessageBytes& rank_message)>;
  virtual void listen(std::uint64_t key, Hear hear) = 0;
  // Whether that rank needs the others no more. Its last messages may still be on
  // their way.
  virtual bool has_left(int rank) const = 0;

  // Fails this membership on every rank, with this rank as the one who aborted (or the culprits
  // that `why` names). Returns at once; the flood goes out before any later message.
  virtual void abort(Status why) = 0;
  // This rank needs the others no more; its process's end is no failure once this has returned.
  virtual void leave() = 0;

 protected:
  std::atomic<bool> failed_{false};
};

}  // namespace gyre::control
