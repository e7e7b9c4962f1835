// Communicator: one rank's membership in a group of ranks. Its operations say when a call advances
// and what a failure means; its backend carries the calls out. One collective runs at a time,
// because messages of a link are told apart by their order alone. The thread that runs it owns all
// that is not atomic.
#pragma once

#include "lib/call/pre_mul_sum_ops.h"
#include "lib/comm/backend.h"
#include "lib/comm/call_order.h"
#include "lib/comm/collective_op.h"
#include "lib/comm/communicator_state.h"
#include "lib/comm/immediate_transfer.h"
#include "lib/comm/join_op.h"
#include "lib/comm/sendrecv_op.h"
#include "lib/comm/work.h"
#include "lib/links/message_keys.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::comm {

class Communicator {
 public:
  // Begins to join; `joining` is the operation that completes it.
  static Result<std::unique_ptr<Communicator>> join(control::ControlPlane& plane,
                                                    const Services& services,
                                                    const trust::UniqueId& id, int size, int rank,
                                                    CommunicatorOptions options);
  ~Communicator();

  int rank() const { return state_.rank; }
  int size() const { return state_.size; }
  const CommunicatorOptions& options() const { return state_.options; }
  std::int64_t timeout_ns() const { return state_.timeout_ns(); }
  void set_timeout(std::int64_t ns) { state_.set_timeout(ns); }
  const WaitPolicy& wait_policy() const { return join_op_->wait_policy(); }
  control::Membership& membership() { return *state_.membership; }
  RankState& rank_state() { return state_.rank_state; }
  Backend& backend() { return *backend_; }
  const Backend& backend() const { return *backend_; }

  // What carries it out: one join, one collective at a time (idle until `begin`).
  Resumable& joining() { return *join_op_; }
  Resumable& operation() { return *collective_op_; }
  // Begins it and says what to advance. The outcome is read before anything else is begun. What is
  // thrown has broken the communicator. `more`: another collective of its group follows.
  Resumable& begin(const Request& request, bool more = false) {
    return breaking_if_thrown([&]() -> Resumable& {
      if (request.transfers != nullptr) return begin_transfers(request);
      collective_op_->begin(request, more);
      return *collective_op_;
    });
  }
  // A collective that is like one of the last, if nothing is queued; see CollectiveOp.
  [[gnu::noinline]] CollectiveOp::Repeated repeat(const CollectiveCall& call) {
    if (order.queued.load(std::memory_order_acquire) != 0) [[unlikely]]
      return CollectiveOp::Repeated::not_this;
    return collective_op_->repeat(call);
  }
  // The same of a send or receive that is like the last; see ImmediateTransfer.
  [[gnu::noinline]] ImmediateTransfer::Outcome send_again(const TransferShape& call,
                                                          const void* buffer) {
    if (order.queued.load(std::memory_order_acquire) != 0) [[unlikely]]
      return ImmediateTransfer::Outcome::not_this;
    return immediate_transfer_->send_again(call, buffer);
  }
  [[gnu::noinline]] ImmediateTransfer::Outcome receive_again(const TransferCall& call) {
    if (order.queued.load(std::memory_order_acquire) != 0) [[unlikely]]
      return ImmediateTransfer::Outcome::not_this;
    return immediate_transfer_->receive_again(call);
  }
  // And of a short one that is checked.
  ImmediateTransfer::Outcome transfer_now(const Transfer& transfer, std::uint64_t count) {
    if (order.queued.load(std::memory_order_acquire) != 0) [[unlikely]]
      return ImmediateTransfer::Outcome::not_this;
    return immediate_transfer_->carry_out(transfer, count);
  }
  bool may_transfer_now(const Transfer& transfer) {
    return immediate_transfer_->may_carry_out(transfer);
  }
  ImmediateTransfer::Outcome transfer_now(ShortGroup& group) {
    if (order.queued.load(std::memory_order_acquire) != 0) [[unlikely]]
      return ImmediateTransfer::Outcome::not_this;
    return immediate_transfer_->carry_out(group);
  }
  // What goes on with one that waits. As with `begin`.
  Resumable& take_over(const Request& request) {
    return breaking_if_thrown([&]() -> Resumable& {
      collective_op_->take_over(request);
      return *collective_op_;
    });
  }
  Resumable& take_over(std::span<const Transfer> left);
  // The same of one that was alone.
  Resumable& take_over_transfer() { return take_over({&immediate_transfer_->left(), 1}); }
  // As `begin`; the work stays where it is until that is finished.
  Resumable& begin(const Work& work, bool more = false);
  // The key of the messages of the next split: the same on all ranks, another for each; a split
  // takes microseconds, and 2^56 of one 2,000 years.
  std::uint64_t next_split_key() { return message_key(MessageTopic::split, ++splits_); }

  // Order of its calls; see CallOrder. Another thread goes on from here:
  CallOrder order;
  void change_driver() { leader_ = nullptr; }

  // See CommunicatorState.
  Status broken() const { return state_.broken(); }
  Status look_for_failure() { return state_.look_for_failure(); }
  Status fail(Status why) { return state_.fail(std::move(why)); }
  void abort() { state_.abort(); }
  void remember(const Status& status) noexcept { state_.remember(status); }
  std::string last_error() const { return state_.last_error(); }
  // gyreCommDestroy came before exit(): the others are told that this rank left, not that it ended.
  void let_leave() { may_leave_ = true; }

  Result<ReduceOp> find_made_op(int op, ElementType type, std::uint64_t& scalar) const;
  Result<int> make_op(ElementType type, std::uint64_t scalar);
  Status destroy_op(int op);

  // Whether a caller's buffer is memory that this communicator works on. In a DeviceScope.
  Status check_memory(std::string_view name, const void* buffer, std::uint64_t bytes) const {
    if (options().driver == nullptr) [[likely]]
      return {};
    return backend_->check_memory(name, buffer, bytes);
  }

  // Its own handle, once it has one.
  std::uint64_t handle() const { return handle_; }
  void set_handle(std::uint64_t handle, HandleTable<Communicator>& table) {
    handle_ = handle;
    order.handle = handle;
    order.table = &table;
  }
  // A non-blocking communicator's own host stream, as a handle; 0: it is blocking.
  std::uint64_t background_stream() const { return background_stream_; }
  void set_background_stream(std::uint64_t handle) { background_stream_ = handle; }

 private:
  Communicator(const Services& services, int size, int rank, CommunicatorOptions options);
  Resumable& begin_transfers(const Request& request, const OperationRecord* so_far = nullptr);
  template <typename Begin>
  Resumable& breaking_if_thrown(const Begin& begin) {
    try {
      return begin();
    } catch (...) {
      (void)fail(Status::out_of_memory());
      throw;
    }
  }

  const std::atomic<bool>& process_is_over_;
  CommunicatorState state_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<JoinOp> join_op_;
  std::unique_ptr<CollectiveOp> collective_op_;
  std::unique_ptr<ImmediateTransfer> immediate_transfer_;
  std::vector<std::unique_ptr<SendRecvOp>> sendrecv_ops_;  // that there are
  SendRecvOp::Leader leader_ = nullptr;
  std::uint64_t splits_;  // begins at GYRE_FIRST_SEQUENCE
  std::uint64_t handle_ = 0;
  std::uint64_t background_stream_ = 0;
  std::atomic<bool> may_leave_{false};
  mutable std::mutex mutex_;
  PreMulSumOps pre_mul_sum_ops_;  // of the mutex
};

}  // namespace gyre::comm
