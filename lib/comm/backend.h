// Backend: how one communicator carries calls out on its memory, the host's or a GPU's. Operations
// (collective_op.h, sendrecv_op.h) decide when, and what a failure means. They call it in this
// order, one collective at a time:
//
//   choose    a plan for the call, unless the call is of the kind that is bound already
//   open      the plan's links, until they are there
//   bind      the plan, the links and all of the call but its buffers
//   begin     the call itself; if it throws, it has lent nothing. Then `advance` until it is done
//   recall    only after a failure: until no peer uses the caller's buffers any more
//   close     after that, the caller may do anything with its buffers
#pragma once

#include "lib/call/call_history.h"
#include "lib/call/request.h"
#include "lib/comm/pair_log.h"
#include "lib/comm/services.h"
#include "lib/control/control.h"
#include "lib/exec/launch.h"
#include "lib/sendrecv/exchange.h"
#include "lib/tune/choice.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::comm {

class CommunicatorState;
class HostExchange;
class RepeatableCalls;
struct RepeatableCall;

class Backend {
 public:
  using State = exec::Launch::State;
  virtual ~Backend() = default;

  // ---- joining and leaving

  // What this rank says of itself when it joins (join_info.h).
  virtual Result<control::MessageBytes> join_info() = 0;
  // All have joined: takes what calls will need. False if it has to be asked again, soon.
  virtual Result<bool> settle() = 0;
  // Until it has: the rank that it waits for, or -1 if it waits for none.
  virtual int awaited_rank() const = 0;
  // Before this rank leaves: nothing of it runs any more.
  virtual void leave() = 0;
  // At once, from any thread: the communicator has failed.
  virtual void abort() = 0;

  // ---- arguments; any thread, within a DeviceScope

  // Whether a caller's buffer is memory that this communicator works on.
  virtual Status check_memory(std::string_view name, const void* buffer,
                              std::uint64_t bytes) const = 0;
  // Whether a call's stream is one of the driver's, and not a host stream: then it has been
  // checked, and `asked` says what it is.
  virtual Result<bool> take_stream(const void* stream, exec::StreamState& asked) const = 0;
  // A value of the caller's, in the memory that this communicator works on.
  virtual Status fetch(void* value, const void* from, std::uint64_t bytes) const = 0;
  // Whether messages are told apart by tags and may be taken from any rank.
  virtual bool has_tags() const = 0;
  // Whether sends and receives of a group go on beside its collectives.
  virtual bool runs_side_by_side() const = 0;
  // What ranks exchange only to have met.
  virtual std::byte* barrier_byte() = 0;
  // The GPU's number, or GYRE_DEVICE_HOST.
  virtual int ordinal() const = 0;

  // Buffers that the caller named. The handle is never 0.
  virtual Result<std::uint64_t> register_buffer(const void* buffer, std::uint64_t bytes) = 0;
  // Waits for a moment until no other process has it open; if one still has, the handle stays.
  virtual Status deregister_buffer(std::uint64_t handle) = 0;

  // ---- one collective; the communicator's thread

  // The one for calls in host memory, for which a communicator on a GPU has one as well.
  virtual Backend& on_host() = 0;
  // Whether `begin` may follow at once: one of the calls before was of this kind.
  virtual bool is_bound(const Request& request, const CallRecord& record) = 0;
  // InvalidUsage and InvalidArgument: what the settings rule out they rule out on all ranks, and
  // nothing has happened.
  virtual Status choose(const Request& request) = 0;
  virtual const tune::Choice& choice() const = 0;
  // By channel; they stay as long as the communicator.
  virtual std::span<const plan::Plan> chosen_plans() const = 0;
  virtual bool is_open() const = 0;
  virtual Status begin_opening() = 0;
  // Goes on opening; true once all links of the plan are there.
  virtual Result<bool> open(bool& moved) = 0;
  virtual Status bind(const Request& request, const CallRecord& record) = 0;
  // The call of the kind that is bound. With `more` collectives of a group to come, it may be kept,
  // to go with them.
  virtual State begin(const Request& request, std::uint64_t sequence, bool more) = 0;
  virtual State advance() = 0;  // when it is done, it is closed
  // Of the kind of call that is bound: its run, if a call may begin and end by that alone. Null: it
  // takes more.
  virtual exec::ShortRun* short_run() { return nullptr; }
  // The kinds that may do so, and the place among them of what is bound, if it is one; else null.
  virtual RepeatableCalls* repeatable_calls() { return nullptr; }
  virtual RepeatableCall* repeatable_place() { return nullptr; }
  // A call that was begun so, of the last of those kinds, goes on by `advance`.
  virtual void take_over(const Request&, std::uint64_t /*sequence*/) {}
  // Why `advance` failed.
  virtual Status error() const = 0;
  virtual exec::Launch::RecallResult recall() = 0;
  // Rank `by` stands still in the middle of writing: keeps it from the caller's buffer for good.
  // False if that cannot be.
  virtual bool withdraw(int by) = 0;
  virtual void close() = 0;

  // ---- what it waits for, opening or carrying out

  virtual Blocked blocked() const = 0;
  // Whether that is for nothing which may still be on its way from a peer that has left.
  virtual bool waits_on_memory() const = 0;
  // Whether a call may still end well after a peer has failed, with what it gave before.
  virtual bool may_finish_after_failure() const = 0;
  virtual Status look_at_peers(std::int64_t now_ns, std::int64_t limit_ns) = 0;
  virtual bool arm(WaitSet& set) = 0;
  virtual void disarm() = 0;

  // ---- the rest

  virtual Exchange& exchange() = 0;
  // The same, where short messages may go without a batch; else null.
  virtual HostExchange* host_exchange() { return nullptr; }
  // For tools, once it has settled: by rank, what links on host memory go through.
  virtual std::vector<PeerPath> peer_paths() const = 0;
  // Any thread. Whether a kernel has given up; the watch makes an error of it, if it has not yet.
  virtual bool has_given_up() const = 0;
  // Waits until kernels that were launched have ended.
  virtual void await_kernels() = 0;
};

// No such handle was given.
Status not_registered(std::uint64_t handle);

}  // namespace gyre::comm
