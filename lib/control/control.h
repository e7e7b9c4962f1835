// The control plane: how ranks meet, pass small letters, and learn of deaths and aborts. One
// control thread per process, whatever the number of ranks and communicators in it; it alone
// listens, accepts, reads and writes control connections. No payload passes here.
//
//   ControlPlane   the process's end: door, tickets, the thread
//   Membership     one rank's place in one communicator
//   Roster         who the ranks are and which process each lives in
//   letter         a small message from rank to rank, by key
#pragma once

#include "lib/base/settings.h"
#include "lib/base/status.h"
#include "lib/trust/identity.h"
#include "lib/trust/tickets.h"
#include "lib/trust/unique_id.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gyre::control {

using Letter = std::vector<std::uint8_t>;

struct Roster {
  std::vector<trust::ProcessIdentity> processes;
  std::vector<std::uint32_t> process_of_rank;
  std::vector<Letter> notes;  // by rank: what it said of itself when it joined
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
  virtual bool failed() const = 0;
  // Why it failed: who died, aborted or never came; culprits are ranks. Success if it has not.
  virtual Status failure() const = 0;
  // Changes (and is woken) at every change of state, failure and arrival of a letter.
  virtual std::atomic<std::uint32_t>& changed() = 0;
  // Valid once joined, and stays so.
  virtual const Roster& roster() const = 0;
  // This process as the others of this communicator know it.
  virtual const trust::ProcessIdentity& self() const = 0;

  // Letters between two ranks with one key arrive in order. A letter to a rank of this process does
  // not leave it. At most 64 KiB.
  virtual Status send(int to_rank, std::uint64_t key, Letter letter) = 0;
  virtual std::optional<Letter> receive(int from_rank, std::uint64_t key) = 0;

  // Letters with this key are not kept: `hear` gets each at once, on whatever thread brings it. It
  // must not block; a status that it returns aborts this membership. Before any such letter comes.
  using Hear = std::function<std::optional<Status>(int from_rank, const Letter& letter)>;
  virtual void listen(std::uint64_t key, Hear hear) = 0;
  // Whether that rank needs the others no more. Its last letters and messages may still be on
  // their way.
  virtual bool has_left(int rank) const = 0;

  // Fails this membership on every rank, with this rank as the one who aborted (or the culprits
  // that `why` names). Returns at once; the flood goes out before any later letter.
  virtual void abort(Status why) = 0;
  // This rank needs the others no more; its process's end is no failure once this has returned.
  virtual void leave() = 0;
};

class ControlPlane {
 public:
  virtual ~ControlPlane() = default;  // closes it
  // Starts the control thread and opens the door. One per process; after fork the child needs a new
  // one.
  static Result<std::unique_ptr<ControlPlane>> start(const Settings& settings);

  // The process ends: who still counts on ranks of this one hears of it, those ranks fail, and the
  // thread stops. What is asked for later is refused. Once; it takes some 200 ms at most, and 2 s
  // where a root's job has failed and ranks are still on their way to it.
  virtual void close() = 0;

  // Without addresses: where a process listens by TCP, and whether, is a communicator's affair.
  virtual const trust::ProcessIdentity& identity() const = 0;
  virtual trust::TicketBook& tickets() = 0;

  // Makes this process the root of a new communicator. For any host it listens on an interface that
  // other hosts reach, until all ranks have come and are of this one; an id for this host says so
  // by having no address, and who joins by it listens nowhere else either.
  virtual Result<trust::UniqueId> create_unique_id(Audience audience, const Settings& settings) = 0;
  // The same with a secret and a door name that a launcher gave to all ranks of this host: no id
  // needs passing.
  virtual Result<trust::UniqueId> create_root(const trust::Secret& secret) = 0;
  // Where processes of this host reach this one by TCP; it listens there from now on.
  virtual Result<std::string> listen_on_this_host(const Settings& settings) = 0;

  // Joins as `rank` of `size`. Several ranks of one process may join the same id, from any threads.
  // `settings` gives the deadline to meet and the liveness limit. Returns at once, in state
  // joining.
  virtual Result<std::shared_ptr<Membership>> join(const trust::UniqueId& id, int size, int rank,
                                                   Letter note, const Settings& settings) = 0;

  // Calls `on_readable` on the control thread whenever `descriptor` (which stays its own; an epoll
  // descriptor is one too) is readable, until it returns false or the plane ends; then destroys it.
  virtual Status watch(int descriptor, std::function<bool()> on_readable) = 0;

  // Answers GET /metrics at `where`, GYRE_METRICS's value, with what `text` makes on the control
  // thread, until the plane ends. Once.
  virtual Status serve_metrics(const std::string& where, int local_rank,
                               std::function<std::string()> text) = 0;
};

}  // namespace gyre::control
