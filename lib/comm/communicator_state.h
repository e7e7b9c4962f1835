// CommunicatorState: the state that the parts of one communicator (its operations, its backend)
// share. It holds this rank's identity, the control plane's view of the others, the part of its
// calls that tools and peers may see, and the lasting error.
#pragma once

#include "lib/base/clock.h"
#include "lib/call/call_history.h"
#include "lib/call/flight_record.h"
#include "lib/comm/communicator_options.h"
#include "lib/comm/whereabouts.h"
#include "lib/control/control.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace gyre::comm {

class Backend;

// Of its name, for endpoints and tools.
std::uint64_t communicator_hash(const trust::UniqueId& id);

class CommunicatorState {
 public:
  CommunicatorState(int its_rank, int its_size, CommunicatorOptions its_options)
      : rank(its_rank), size(its_size), options(std::move(its_options)) {}
  ~CommunicatorState();
  CommunicatorState(const CommunicatorState&) = delete;
  CommunicatorState& operator=(const CommunicatorState&) = delete;

  const int rank, size;
  const CommunicatorOptions options;
  // As the others know this process; where it can be dialed is known once it has joined.
  trust::ProcessIdentity self;
  RankState rank_state;
  std::shared_ptr<control::Membership> membership;  // from Communicator::join on
  std::shared_ptr<CallHistory> call_history;        // null: GYRE_CHECK_CALLS=0
  Backend* backend = nullptr;                       // which hears at once of a failure

  // What peers may ask while this rank's program does something else.
  void answer_peers();
  // How long an operation may wait. Any thread may change it, also of those under way.
  std::int64_t timeout_ns() const { return timeout_ns_.load(std::memory_order_relaxed); }
  void set_timeout(std::int64_t ns) { timeout_ns_.store(ns, std::memory_order_relaxed); }
  std::int64_t liveness_ns() const { return options.settings.liveness_timeout_s * ns_per_s; }
  const trust::ProcessIdentity& identity_of(int of_rank) const;

  // The lasting error, or success. Any thread.
  Status broken() const;
  // Whether neither this rank nor the others have failed.
  bool is_sound() const {
    return !is_broken_.load(std::memory_order_acquire) && !membership->failed();
  }
  // The same, after a look whether others have failed: no call of this rank may have noticed yet.
  Status look_for_failure();
  // Breaks the communicator for good and tells all ranks. The first cause stays.
  Status fail(Status why);
  // The same because this rank calls gyreCommAbort: its buffers may go.
  void abort();
  bool is_aborted() const { return is_aborted_; }

  // Asks a peer what it called last; of another call it makes an error, on all ranks.
  void ask(int peer);
  // False where there are none: a rank alone may still send to itself.
  bool others_have_left() const;

  // The story of the last error, for gyreGetLastError.
  void remember(const Status& status) noexcept;
  std::string last_error() const;

 private:
  std::shared_ptr<Witness> witness_;
  std::atomic<bool> is_broken_{false};
  std::atomic<bool> is_aborted_{false};
  std::atomic<std::int64_t> timeout_ns_{options.timeout_ns};  // orders nothing else
  mutable std::mutex mutex_;                                  // of what follows
  Status broken_;
  std::string last_error_;
};

}  // namespace gyre::comm
