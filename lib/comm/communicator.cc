#include "lib/comm/communicator.h"

#include "lib/comm/make_backend.h"

#include <algorithm>

namespace gyre::comm {

Communicator::Communicator(const Services& services, int size, int rank,
                           CommunicatorOptions options)
    : process_is_over_(services.is_over),
      state_(rank, size, std::move(options)),
      splits_(static_cast<std::uint64_t>(state_.options.settings.first_sequence)) {}

Result<std::unique_ptr<Communicator>> Communicator::join(control::ControlPlane& plane,
                                                         const Services& services,
                                                         const trust::UniqueId& id, int size,
                                                         int rank, CommunicatorOptions options) {
  std::unique_ptr<Communicator> made(new Communicator(services, size, rank, std::move(options)));
  CommunicatorState& state = made->state_;
  state.self = plane.identity();
  GYRE_ASSIGN(made->backend_, make_backend(state, services, plane, id));
  made->join_op_ = std::make_unique<JoinOp>(state, *made->backend_);
  made->collective_op_ =
      std::make_unique<CollectiveOp>(state, *made->backend_, made->wait_policy());
  made->immediate_transfer_ =
      std::make_unique<ImmediateTransfer>(state, *made->backend_, made->wait_policy());
  const RankIdentity identity{
      .communicator = communicator_hash(id),
      .name = FixedText<16>(trust::short_name(id)),
      .label = FixedText<64>(state.options.label),
      .rank = rank,
      .size = size,
  };
  GYRE_ASSIGN(state.rank_state,
              claim_rank_state(*state.options.state_page, plane.identity(), identity));
  GYRE_ASSIGN(control::MessageBytes note, made->backend_->join_info());
  GYRE_ASSIGN(state.membership,
              plane.join(id, size, rank, std::move(note), state.options.settings));
  state.self = state.membership->self();
  state.backend = made->backend_.get();
  state.answer_peers();
  return made;
}

Communicator::~Communicator() {
  if (backend_ != nullptr) backend_->leave();
  if (state_.membership && (may_leave_ || !process_is_over_)) state_.membership->leave();
}

Resumable& Communicator::take_over(std::span<const Transfer> left) {
  return breaking_if_thrown([&]() -> Resumable& {
    Request request;
    request.transfers = std::make_shared<const std::vector<Transfer>>(left.begin(), left.end());
    return begin_transfers(request, &immediate_transfer_->record());
  });
}

Resumable& Communicator::begin_transfers(const Request& request, const OperationRecord* so_far) {
  auto idle = std::ranges::find_if(sendrecv_ops_, [](const auto& one) { return one->is_idle(); });
  if (idle == sendrecv_ops_.end())
    idle = sendrecv_ops_.insert(idle, std::make_unique<SendRecvOp>(state_, *backend_, leader_));
  (*idle)->begin(request, so_far);
  return **idle;
}

Resumable& Communicator::begin(const Work& work, bool more) {
  if (work.joins) return *join_op_;
  if (work.resumable != nullptr) return *work.resumable;
  return begin(work.request, more);
}

Result<ReduceOp> Communicator::find_made_op(int op, ElementType type, std::uint64_t& scalar) const {
  const std::lock_guard lock(mutex_);
  GYRE_ASSIGN(scalar, pre_mul_sum_ops_.find(op, type));
  return ReduceOp::pre_mul_sum;
}

Result<int> Communicator::make_op(ElementType type, std::uint64_t scalar) {
  const std::lock_guard lock(mutex_);
  return pre_mul_sum_ops_.make(type, scalar);
}

Status Communicator::destroy_op(int op) {
  const std::lock_guard lock(mutex_);
  return pre_mul_sum_ops_.destroy(op);
}

}  // namespace gyre::comm
