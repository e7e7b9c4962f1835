// Backend's reductions and broadcasts: collectives that work on whole tensors in place.
#include "tools/pytorch/src/arguments.h"
#include "tools/pytorch/src/elements.h"
#include "tools/pytorch/src/host_comm_queue.h"
#include "tools/pytorch/src/release_gil.h"
#include "tools/pytorch/src/work.h"

namespace gyre_torch {

using c10d::OpType;

namespace {

std::size_t count_of(const at::Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()); }

Operation reduce_all(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const Target target(to_reduce(tensor, op), true);
  Operation operation;
  operation.outputs = {tensor};
  operation.call = [target, op](gyreComm_t comm, gyreStream_t stream) {
    const Reduction reduction(op, target.block().scalar_type(), comm);
    return gyreAllReduce(target.data(), target.data(), count_of(target.block()), reduction.type(),
                         reduction.op(), comm, stream);
  };
  operation.deliver = delivery_of(target);
  return operation;
}

}  // namespace

WorkPointer ProcessGroupGyre::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors[0].is_sparse()) return allreduce_sparse(tensors, options);
  return submit({OpType::ALLREDUCE, "all_reduce", is_async(options), options.timeout},
                reduce_all(only_tensor(tensors, "all_reduce"), options.reduceOp));
}

WorkPointer ProcessGroupGyre::allreduce_coalesced(Tensors& tensors,
                                                  const c10d::AllreduceCoalescedOptions& options) {
  TORCH_CHECK_VALUE(!tensors.empty(), "gyre: all_reduce_coalesced takes at least one tensor");
  std::vector<Operation> parts;
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor, "all_reduce_coalesced");
    parts.push_back(reduce_all(tensor, options.reduceOp));
  }
  return submit(
      {OpType::ALLREDUCE_COALESCED, "all_reduce_coalesced", is_async(options), options.timeout},
      together(std::move(parts)));
}

WorkPointer ProcessGroupGyre::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = only_tensor(tensors, "reduce");
  check_root(options.rootRank, getSize(), "reduce");
  const bool is_root = options.rootRank == getRank();
  const Target target(to_reduce(tensor, options.reduceOp), true);
  Operation operation;
  operation.outputs = tensors;
  operation.call = [target, op = options.reduceOp, root = static_cast<int>(options.rootRank)](
                       gyreComm_t comm, gyreStream_t stream) {
    const Reduction reduction(op, target.block().scalar_type(), comm);
    return gyreReduce(target.data(), target.data(), count_of(target.block()), reduction.type(),
                      reduction.op(), root, comm, stream);
  };
  if (is_root) operation.deliver = delivery_of(target);
  return submit({OpType::REDUCE, "reduce", is_async(options), options.timeout},
                std::move(operation));
}

WorkPointer ProcessGroupGyre::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = only_tensor(tensors, "broadcast");
  check_root(options.rootRank, getSize(), "broadcast");
  const Target target(tensor, options.rootRank == getRank());
  Operation operation;
  operation.outputs = tensors;
  operation.call = [target, root = static_cast<int>(options.rootRank)](gyreComm_t comm,
                                                                       gyreStream_t stream) {
    const Elements elements = to_move(target.block());
    return gyreBroadcast(target.data(), target.data(), elements.count, elements.type, root, comm,
                         stream);
  };
  operation.deliver = delivery_of(target);
  return submit({OpType::BROADCAST, "broadcast", is_async(options), options.timeout},
                std::move(operation));
}

// Every rank gets all ranks' indices and values, and sums what is at one place. It is done on
// return: how much there is has to be known first.
WorkPointer ProcessGroupGyre::allreduce_sparse(Tensors& tensors,
                                               const c10d::AllreduceOptions& options) {
  TORCH_CHECK_VALUE(tensors.size() == 1 && tensors[0].is_sparse() && tensors[0].device().is_cpu(),
                    "gyre: all_reduce of a sparse tensor takes one sparse COO tensor on the CPU");
  const auto op = options.reduceOp.op_;
  TORCH_CHECK_VALUE(op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG,
                    "gyre: all_reduce of a sparse tensor takes ReduceOp.SUM or ReduceOp.AVG");
  const at::Tensor mine = tensors[0].coalesce();
  const auto share = [&](const at::Tensor& part, const std::vector<std::int64_t>& widths) {
    TensorLists lists(1);
    for (const std::int64_t width : widths) {
      std::vector<std::int64_t> sizes = part.sizes().vec();
      sizes[0] = width;
      lists[0].push_back(at::empty(sizes, part.options()));
    }
    Tensors inputs{part};
    c10d::AllgatherOptions gathering;
    gathering.timeout = options.timeout;
    allgather(lists, inputs, gathering)->wait();
    return lists[0];
  };
  const auto ranks = static_cast<std::size_t>(getSize());
  const at::Tensor count = at::tensor({mine._nnz()}, at::kLong);
  std::vector<std::int64_t> widths;
  for (const at::Tensor& one : share(count, std::vector<std::int64_t>(ranks, 1)))
    widths.push_back(one.item<std::int64_t>());
  // Places are columns of the indices: rows here, to have them in blocks.
  const at::Tensor indices = at::cat(share(mine._indices().t().contiguous(), widths)).t();
  at::Tensor values = at::cat(share(mine._values().contiguous(), widths));
  if (op == c10d::ReduceOp::AVG) values.div_(getSize());
  const at::Tensor sum = at::sparse_coo_tensor(indices, values, mine.sizes()).coalesce();
  tensors[0].copy_(sum);
  auto work = c10::make_intrusive<HostWork>(getRank(), Description{}, Tensors{}, tensors, nullptr);
  work->end_here();
  return work;
}

// ------------------------------------------------------------------------------ averages

void ProcessGroupGyre::begin_average(const at::Tensor& tensor) {
  check_tensor(tensor, "average");
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), "gyre: average takes a tensor on the CPU, not on ",
                    tensor.device());
  const ReleaseGil released;
  const std::shared_ptr<HostCommQueue> queue = queues_.open_for_caller(averages_.size());
  Operation operation = reduce_all(tensor, c10d::ReduceOp::AVG);
  const std::lock_guard order(queue->order());
  operation.description =
      describe({OpType::ALLREDUCE, "all_reduce", true, Milliseconds(0)}, operation.outputs, false);
  averages_.emplace_back(queue, queue->begin_by_caller(std::move(operation)));
}

void ProcessGroupGyre::finish_averages() {
  const ReleaseGil released;
  const auto begun = std::exchange(averages_, {});
  for (const auto& [queue, work] : begun) {
    queue->go_on();
    work->wait(kNoTimeout);  // throws: those after it may wait for a rank that does something else
  }
}

}  // namespace gyre_torch
