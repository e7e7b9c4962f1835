// Communicator: one rank's membership in a group of ranks. Owns the links, the plans and the
// position in the sequence of calls. One operation runs at a time, since messages of a link are
// told apart by their order alone; the thread that runs it owns everything here that is not atomic.
#pragma once

#include "lib/base/settings.h"
#include "lib/call/binding.h"
#include "lib/call/call_board.h"
#include "lib/call/flight_record.h"
#include "lib/call/made_ops.h"
#include "lib/call/request.h"
#include "lib/comm/driver_seat.h"
#include "lib/comm/tracing.h"
#include "lib/comm/whereabouts.h"
#include "lib/control/control.h"
#include "lib/device/device_side.h"
#include "lib/device/device_watch.h"
#include "lib/exec/launch.h"
#include "lib/exec/resumable.h"
#include "lib/exec/standstill.h"
#include "lib/exec/suspicion.h"
#include "lib/links/builtin.h"
#include "lib/links/letter_keys.h"
#include "lib/links/links.h"
#include "lib/sendrecv/exchange.h"
#include "lib/tune/choice.h"

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

namespace gyre::comm {

// What config and settings made of it.
struct CommunicatorOptions {
  Settings settings;
  bool blocking = true;
  bool reproducible = false;
  std::int64_t timeout_ns = 0;
  std::string name;
  std::string label;       // the caller's name for it
  Board* board = nullptr;  // of the process: where tools see the communicator
  // The GPU whose memory it works on; null: host memory.
  std::shared_ptr<const exec::CudaDevice> device;
  std::uint32_t channels_most = cuda::channels_most, channels_least = 1;
  // Tells what memory is of a device; null where nobody in this process uses CUDA.
  const loaded::CudaDriver* driver = nullptr;
};

// What a communicator is to do: join, carry a request out, or something that goes on by itself (a
// split, a group's calls).
struct Work {
  bool joins = false;
  std::shared_ptr<Resumable> resumable = nullptr;
  Request request = {};
  bool has_transfers = false;  // the resumable, beside others

  bool is_collective() const { return !joins && resumable == nullptr; }
  // Sends and receives alone, and those or some among others.
  bool is_exchange() const { return request.transfers != nullptr; }
  bool exchanges() const { return is_exchange() || has_transfers; }
};

class Communicator;

// While it lives, the device of a communicator is the calling thread's: for all that one call asks
// of the driver. Nothing on host memory.
class DeviceScope {
 public:
  explicit DeviceScope(const Communicator& communicator);

 private:
  std::optional<loaded::CurrentContext> scope_;
};

class Communicator final : public Watched {
 public:
  // Begins to join; `joining` is the operation that completes it.
  static Result<std::unique_ptr<Communicator>> join(control::ControlPlane& plane,
                                                    transport::RegionTable& regions,
                                                    const trust::UniqueId& id, int size, int rank,
                                                    CommunicatorOptions options);
  ~Communicator() override;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const WaitPolicy& wait_policy() const { return policy_; }
  const CommunicatorOptions& options() const { return options_; }
  control::Membership& membership() { return *membership_; }
  Ledger& ledger() { return ledger_; }

  // Resumable parts.
  Resumable& joining() { return joining_; }
  // What carries collectives out, one at a time; idle until `begin`.
  Resumable& operation() { return operation_; }
  // Begins it and says what to advance. The outcome is read before anything else is begun. What is
  // thrown has broken the communicator.
  Resumable& begin(const Request& request) {
    try {
      if (request.transfers != nullptr) return begin_exchange(request);
      operation_.begin(request);
      return operation_;
    } catch (...) {
      (void)fail(Status::out_of_memory());
      throw;
    }
  }
  // Begins it and says what to advance. The work stays where it is until that is finished.
  Resumable& begin(const Work& work) {
    if (work.joins) return joining_;
    if (work.resumable != nullptr) return *work.resumable;
    return begin(work.request);
  }
  // The next collective is followed by another one of its group.
  void expect_more(bool more) { more_follow_ = more; }
  // The key of the letters of the next split: the same on all ranks, another for each; a split
  // takes microseconds, and 2^56 of one 2,000 years.
  std::uint64_t next_split_key() { return letter_key(LetterKind::split, ++splits_); }

  // The lasting error, or success. Any thread.
  Status broken() const;
  // Breaks this communicator for good and tells all ranks. The first cause stays.
  Status fail(Status why);
  // From any thread: what is running ends with an error.
  void abort();
  // gyreCommDestroy came before exit(): the others are told that this rank left, not that it ended.
  void let_leave() { may_leave_ = true; }

  // One thread at a time; see Entry.
  std::atomic<bool> entered{false};
  // Operations queued on host streams and not yet finished. A call without a stream waits for them.
  std::atomic<std::uint32_t> queued{0};
  // Whose turn it is to go on with what is queued; see HostStream.
  DriverSeat driver;
  // Another thread goes on from here.
  void change_driver() { leading_ = nullptr; }
  // Order of queued operations: the next number to give, and the next to run. Sends and receives
  // have numbers of their own, in which they begin: they go on side by side, and beside the rest.
  std::uint64_t next_ticket = 0, next_transfer = 0;
  std::atomic<std::uint64_t> running_ticket{0}, beginning_transfer{0};

  Result<ReduceOp> find_made_op(int op, ElementType type, std::uint64_t& scalar) const;
  Result<int> make_op(ElementType type, std::uint64_t scalar);
  Status destroy_op(int op);

  // Buffers that the caller named. The handle is never 0.
  Result<std::uint64_t> register_buffer(const void* buffer, std::uint64_t bytes);
  // Waits for a moment until no other process has it open; if one still has, the handle stays.
  Status deregister_buffer(std::uint64_t handle);

  std::byte* barrier_byte() {
    return device_ != nullptr ? device_->barrier_byte() : &barrier_byte_;
  }

  bool on_device() const { return options_.device != nullptr; }
  // Whether a caller's buffer is memory that this communicator works on. In a DeviceScope.
  Status check_memory(std::string_view name, const void* buffer, std::uint64_t bytes) const {
    if (options_.driver == nullptr) [[likely]]
      return {};
    return check_known_memory(name, buffer, bytes);
  }
  // What the caller's stream is, if calls of a device's communicator can go there.
  Result<exec::StreamState> check_stream(const void* stream) const;
  // Null before all have joined, and on host memory.
  DeviceSide* device_side() const { return device_.get(); }
  // Any thread. Whether a kernel has given up; the watch makes an error of it, if it has not yet.
  bool has_given_up() const;
  // Kernels were launched: whoever looks after them begins.
  void note_launch();
  // Waits until kernels that were launched have ended.
  void settle_device() {
    if (device_ != nullptr) (void)device_->settle(INT64_MAX / 2);
  }

  // Its own handle, once it has one.
  std::uint64_t handle() const { return handle_; }
  void set_handle(std::uint64_t handle) { handle_ = handle; }
  // A non-blocking communicator's own host stream, as a handle; 0: it is blocking.
  std::uint64_t background_stream() const { return background_stream_; }
  void set_background_stream(std::uint64_t handle) { background_stream_ = handle; }

  // The story of the last error, for gyreGetLastError.
  void remember(const Status& status) noexcept;
  std::string last_error() const;

 private:
  bool look() override;
  std::shared_ptr<DeviceRegions> regions() const override { return device_->regions(); }
  std::shared_ptr<PeerPools> pools() const override { return device_->links().pools(); }

  Communicator(transport::RegionTable& regions, int size, int rank, CommunicatorOptions options);

  class Joining final : public Resumable {
   public:
    explicit Joining(Communicator& owner) : owner_(owner) {}
    bool advance() override;
    void expire() override;
    void break_off(const Status& why) override { (void)owner_.fail(why); }
    bool arm(WaitSet& set) override;
    void disarm() override {}
    std::int64_t limit_ns() const override;
    void tell_wait() override;

   private:
    bool settle();
    bool has_settled(Status& settled);
    Communicator& owner_;
    bool is_settled_ = false;
    std::int64_t rest_until_ns_ = 0;  // so long it waits for kernels of this process to end
  };

  // What can end with an error that somebody else has to be asked about.
  class Operating : public Resumable {
   public:
    Operating(Ledger& ledger, WaitLane lane) : record_(ledger, lane) {}
    virtual void end(Status outcome) { finish(std::move(outcome)); }

   protected:
    // After half a second for one peer: it may have left. What a socket still carries may be the
    // last words of one who has; its end tells then, so nothing may be under way.
    void suspect_departure(control::Membership& membership, int peer, bool nothing_under_way);
    // Whether it may end well though the communicator has failed: a rank may end when its own part
    // is over, and what it gave is worked through.
    bool may_outlive(const Status& failure) const {
      return failure.code() == Code::RemoteError && !suspicion_.held();
    }
    // The same when nothing moves, and it waits for `peer`.
    bool outlives(const Status& failure, int peer);
    void begin() {
      tracing_.clear();
      suspicion_.clear();
      standstill_.moved();
      outlives_until_ns_ = 0;
      restart();
    }
    void finish(Status outcome) {
      record_.end(outcome);
      Resumable::finish(std::move(outcome));
    }
    OperationRecord record_;
    Suspicion suspicion_;
    Standstill standstill_;
    Tracing tracing_;                     // once it has waited too long
    std::int64_t outlives_until_ns_ = 0;  // while nothing moves, after a rank has ended
  };

  // Opens links, then runs a Launch.
  class Operation final : public Operating {
   public:
    explicit Operation(Communicator& owner)
        : Operating(owner.ledger_, WaitLane::collective), owner_(owner) {}
    void begin(const Request& request);
    bool advance() override;
    void expire() override;
    void break_off(const Status& why) override { (void)owner_.fail(why); }
    bool arm(WaitSet& set) override;
    void disarm() override;
    std::int64_t limit_ns() const override { return owner_.options_.timeout_ns; }
    void tell_wait() override;
    // Not before peers have let go of the buffers of this call, if it failed.
    void end(Status outcome) override;

   private:
    // Recalling: it has failed, and a peer is still in the middle of using a buffer of its.
    enum class Stage { opening, running, launching, recalling };
    bool open();
    bool open_on_device();
    void launch();
    bool launch_on_device();
    bool recall();
    bool withdraw(int rank);
    void close(Status outcome);
    bool go_on_bereft();
    void break_down(Status why);
    void question_peer();
    Status look_at_peers() const;
    void time_out(const Tracing::Verdict& verdict);
    std::string waiting() const;
    Blocked blocked() const;

    Communicator& owner_;
    bool on_device() const { return owner_.runs_on_device(*request_); }

    const Request* request_ = nullptr;
    Stage stage_ = Stage::opening;
    CallRecord call_;
    Status verdict_;  // while recalling
    std::int64_t recall_until_ns_ = 0;
    bool tried_to_withdraw_ = false;
  };

  // Sends and receives that were begun together.
  class Exchanging final : public Operating {
   public:
    explicit Exchanging(Communicator& owner)
        : Operating(owner.ledger_, WaitLane::transfers), owner_(owner) {}
    void begin(const Request& request);
    bool is_idle() const { return transfers_ == nullptr; }
    bool advance() override;
    void expire() override;
    void break_off(const Status& why) override { (void)owner_.fail(why); }
    bool arm(WaitSet& set) override;
    void disarm() override;
    std::int64_t limit_ns() const override { return owner_.options_.timeout_ns; }
    void tell_wait() override;
    void end(Status outcome) override;

   private:
    // The first one that the driver comes to goes on with all, waits for all and tells tools of it.
    bool leads() const { return owner_.leading_ == this; }
    bool go_on_bereft();
    void question_peer();
    void time_out(const Tracing::Verdict& verdict);
    std::string waiting() const;
    Blocked blocked() const { return owner_.exchange_->blocked(batch_); }

    Communicator& owner_;
    std::shared_ptr<const std::vector<Transfer>> transfers_;  // null: idle
    Batch batch_;                                             // of them
  };
  Resumable& begin_exchange(const Request& request);

  // A plan with its links, kept for good.
  struct Prepared {
    plan::Plan plan;
    bool bound_already = false;
    exec::BoundPlan bound;
    std::vector<std::byte> scratch;
    std::unique_ptr<exec::DevicePlan> on_device;
  };

  void ask(int peer);
  void listen();
  bool others_have_left() const;
  Status abandoned() const;
  std::int64_t liveness_ns() const { return options_.settings.liveness_timeout_s * ns_per_s; }
  bool settle_suspicion(Suspicion& suspicion, const std::string& waiting, Operating& operation);

  Status settle();  // after all have joined: transports, scene
  Status settle_on_device();
  Status take_stream(loaded::CuStream stream) const;
  Result<std::string> device_note() const;
  Status hold_share(const std::vector<DeviceNote>& notes, const DeviceShare& share);
  Result<std::vector<DeviceNote>> device_notes() const;
  std::vector<p2p::Gpu> find_gpus(const std::vector<DeviceNote>& notes) const;
  std::vector<p2p::Between> find_ways(const std::vector<p2p::Gpu>& gpus) const;
  const trust::ProcessIdentity& identity_of(int rank) const;
  void watch_kernel(const DeviceSide::Seen& seen, std::int64_t now_ns);
  Status check_known_memory(std::string_view name, const void* buffer, std::uint64_t bytes) const;
  bool runs_on_device(const Request& request) const {
    return device_ != nullptr && !request.on_host;
  }
  Status choose(const Request& request);
  Status check_slots(const plan::Plan& plan);
  // What the caller registered.
  struct Registered {
    const void* buffer = nullptr;
    std::uint64_t bytes = 0;
    std::shared_ptr<RegisteredMemory> lent = nullptr;  // null: nobody else has it open
    bool is_delisted = false;
  };
  Status meet_buffer(Registered& registered);
  Status await_departure(DeviceRegions& regions, RegisteredMemory& memory);
  Status bind_on_device(const Request& request, const CallRecord& record);
  void bind(const Request& request, const CallRecord& record);
  const exec::Call& place(const Request& request);
  bool is_bound(const Request& request, const CallRecord& record) const {
    return bound_for_.sequence != 0 && request.tables == nullptr && bound_for_.agrees_with(record);
  }

  transport::RegionTable& regions_;
  const int size_;
  const int rank_;
  const CommunicatorOptions options_;
  WaitPolicy policy_;
  std::shared_ptr<control::Membership> membership_;
  trust::ProcessIdentity self_;  // as the other ranks know this process
  trust::TicketBook* tickets_ = nullptr;
  TransportList transports_;
  tune::Allowed allowed_;
  tune::Scene scene_;
  std::unique_ptr<Links> links_;
  std::unique_ptr<Exchange> exchange_;
  std::shared_ptr<CallBoard> board_;  // null: GYRE_CHECK_CALLS=0
  std::shared_ptr<Witness> witness_;
  using PlanKey = std::tuple<const plan::Algorithm*, plan::Collective, int>;  // int: the root
  std::map<PlanKey, std::unique_ptr<Prepared>> prepared_;
  tune::Choice choice_;
  std::uint64_t choice_bytes_ = 0;  // what it was made on
  Prepared* current_ = nullptr;
  Binding binding_;
  exec::Call call_;       // bound with it
  CallRecord bound_for_;  // sequence 0: for nothing that may come again
  exec::Launch launch_;
  DeviceHoldings::Claimed claimed_;  // on a device
  std::unique_ptr<DeviceSide> device_;
  bool more_follow_ = false;
  Suspicion device_suspicion_;        // the watch's
  std::int64_t device_asked_ns_ = 0;  // or since when kernels run
  std::int64_t device_begun_ns_ = 0;  // when a kernel began last, or the first was launched
  std::uint32_t device_starts_ = 0;
  // Both begin at GYRE_FIRST_SEQUENCE. Of 64 bits one call a nanosecond takes 584 years; flags keep
  // 40 of them, which come round after 6 days of calls of half a microsecond.
  std::uint64_t sequence_;
  std::uint64_t splits_;
  std::uint64_t handle_ = 0;
  std::uint64_t background_stream_ = 0;
  std::byte barrier_byte_{};  // what ranks exchange only to have met

  Ledger ledger_;
  Joining joining_{*this};
  Operation operation_{*this};
  std::vector<std::unique_ptr<Exchanging>> exchangings_;  // that there are
  Exchanging* leading_ = nullptr;                         // of those under way

  std::atomic<bool> shares_gpu_{false};  // with another rank of it, in this process
  mutable std::mutex mutex_;             // of what follows
  Status broken_;
  std::atomic<bool> is_broken_{false};
  std::atomic<bool> may_leave_{false};
  std::atomic<bool> is_aborted_{false};  // by this rank: its buffers may go
  std::string last_error_;
  MadeOps made_ops_;
  std::map<std::uint64_t, Registered> registered_;
  std::atomic<bool> lends_registered_{false};  // ever since some of it may be lent
  std::uint64_t registrations_ = 0;
  DeviceSide* device_ready_ = nullptr;            // once it has links
  std::shared_ptr<DeviceRegions> regions_ready_;  // of a device with ranks in other processes
};

inline DeviceScope::DeviceScope(const Communicator& communicator) {
  if (!communicator.on_device()) return;
  const exec::CudaDevice& device = *communicator.options().device;
  scope_.emplace(device.driver(), device.owner());
}

}  // namespace gyre::comm
