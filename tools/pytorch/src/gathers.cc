// Backend's collectives on blocks: a block for each rank, in one tensor or in a list of tensors.
#include "tools/pytorch/src/arguments.h"
#include "tools/pytorch/src/elements.h"

#include <algorithm>
#include <numeric>

namespace gyre_torch {

using c10d::OpType;

namespace {

std::size_t as_count(std::int64_t count) { return static_cast<std::size_t>(count); }

bool are_equal(const Tensors& list) {
  return std::all_of(list.begin(), list.end(),
                     [&](const at::Tensor& tensor) { return tensor.numel() == list[0].numel(); });
}

void check_list(const Tensors& list, int size, const at::Tensor& like, const char* call) {
  TORCH_CHECK_VALUE(static_cast<int>(list.size()) == size, "gyre: ", call, " takes a list of ",
                    size, " tensors, one for each rank, not ", list.size());
  for (const at::Tensor& tensor : list) {
    check_tensor(tensor, call);
    check_same_type(tensor, like, call);
  }
}

void check_share(const at::Tensor& whole, const at::Tensor& part, int size, const char* call) {
  check_tensor(whole, call);
  check_tensor(part, call);
  check_same_type(whole, part, call);
  TORCH_CHECK_VALUE(whole.numel() == part.numel() * size, "gyre: ", call, " takes one tensor of ",
                    size, " times the elements of the other, not ", whole.numel(), " and ",
                    part.numel());
}

void check_own_place(const Tensors& list, const at::Tensor& input, int rank, const char* call) {
  const at::Tensor& place = list[as_count(rank)];
  TORCH_CHECK_VALUE(place.numel() == input.numel(), "gyre: ", call, " got an input of ",
                    input.numel(), " elements, and this rank's output has ", place.numel());
}

// Equal blocks by an all-gather; else each rank's block by a broadcast, straight to its place.
Operation gather_list(const Tensors& list, const at::Tensor& input, int rank, int size,
                      const char* call) {
  check_list(list, size, input, call);
  check_own_place(list, input, rank, call);
  const at::Tensor mine = input.contiguous();
  Operation operation;
  operation.inputs = {input};
  operation.outputs = list;
  if (are_equal(list)) {
    const auto blocks = std::make_shared<const TensorBlocks>(list);
    operation.call = [blocks, mine](gyreComm_t comm, gyreStream_t stream) {
      const Elements elements = to_move(mine);
      return gyreAllGather(mine.data_ptr(), blocks->data(), elements.count, elements.type, comm,
                           stream);
    };
    operation.deliver = [blocks] { blocks->deliver(); };
    return operation;
  }
  std::vector<Target> targets;
  for (const at::Tensor& tensor : list) targets.emplace_back(tensor);
  operation.call = [targets, mine, rank](gyreComm_t comm, gyreStream_t stream) {
    for (int root = 0; root < static_cast<int>(targets.size()); ++root) {
      const Target& target = targets[as_count(root)];
      const Elements elements = to_move(target.block());
      const void* source = root == rank ? mine.data_ptr() : target.data();
      const gyreResult_t result =
          gyreBroadcast(source, target.data(), elements.count, elements.type, root, comm, stream);
      if (result != gyreSuccess) return result;
    }
    return gyreSuccess;
  };
  operation.deliver = [targets] {
    for (const Target& target : targets) target.deliver();
  };
  return operation;
}

Operation gather_whole(const at::Tensor& output, const at::Tensor& input, int size,
                       const char* call) {
  check_share(output, input, size, call);
  const Target target(output);
  const at::Tensor mine = input.contiguous();
  Operation operation;
  operation.inputs = {input};
  operation.outputs = {output};
  operation.call = [target, mine](gyreComm_t comm, gyreStream_t stream) {
    const Elements elements = to_move(mine);
    return gyreAllGather(mine.data_ptr(), target.data(), elements.count, elements.type, comm,
                         stream);
  };
  operation.deliver = delivery_of(target);
  return operation;
}

Operation scatter_whole(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op,
                        int size, const char* call) {
  check_share(input, output, size, call);
  const Target target(to_reduce(output, op));
  const at::Tensor all = to_reduce(input, op).contiguous();
  Operation operation;
  operation.inputs = {input};
  operation.outputs = {output};
  operation.call = [target, all, op](gyreComm_t comm, gyreStream_t stream) {
    const Reduction reduction(op, all.scalar_type(), comm);
    return gyreReduceScatter(all.data_ptr(), target.data(), as_count(target.block().numel()),
                             reduction.type(), reduction.op(), comm, stream);
  };
  operation.deliver = delivery_of(target);
  return operation;
}

// Of each output and its input.
template <typename Make>
Operation each(const Tensors& outputs, const Tensors& inputs, const char* call, const Make& make) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "gyre: ", call, " takes as many outputs as ",
                    "inputs, not ", outputs.size(), " and ", inputs.size());
  std::vector<Operation> parts;
  for (std::size_t i = 0; i < inputs.size(); ++i) parts.push_back(make(outputs[i], inputs[i]));
  return together(std::move(parts));
}

// To `block` on the root; undefined elsewhere.
Operation gather_to(const at::Tensor& block, const at::Tensor& input, int root) {
  Operation operation;
  operation.inputs = {input};
  operation.call = [mine = input.contiguous(), block, root](gyreComm_t comm, gyreStream_t stream) {
    const Elements elements = to_move(mine);
    return gyreGather(mine.data_ptr(), block.defined() ? block.data_ptr() : nullptr, elements.count,
                      elements.type, root, comm, stream);
  };
  return operation;
}

// Blocks of a tensor along its first dimension: counts and displacements, in Gyre's elements.
struct Split {
  std::vector<std::size_t> counts, begins;
};
Split split_of(const at::Tensor& tensor, const std::vector<std::int64_t>& sizes, int ranks,
               const char* which) {
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  std::vector<std::int64_t> parts = sizes;
  if (parts.empty()) {
    TORCH_CHECK_VALUE(rows % ranks == 0, "gyre: all_to_all: the ", which, " has ", rows,
                      " rows, which do not divide into ", ranks, " equal blocks");
    parts.assign(as_count(ranks), rows / ranks);
  }
  const std::int64_t sum = std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
  TORCH_CHECK_VALUE(parts.size() == as_count(ranks) && sum == rows, "gyre: all_to_all: the ", which,
                    " has ", rows, " rows, and its ", parts.size(), " split sizes sum to ", sum,
                    " for ", ranks, " ranks");
  const std::size_t row = rows == 0 ? 0 : to_move(tensor).count / as_count(rows);
  Split split;
  std::size_t begin = 0;
  for (const std::int64_t part : parts) {
    TORCH_CHECK_VALUE(part >= 0, "gyre: all_to_all: a split size of the ", which, " is ", part);
    split.counts.push_back(as_count(part) * row);
    split.begins.push_back(begin);
    begin += split.counts.back();
  }
  return split;
}

void check_contiguous(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.is_contiguous(), "Tensors must be contiguous");
}

}  // namespace

WorkPointer ProcessGroupGyre::allgather(TensorLists& outputs, Tensors& inputs,
                                        const c10d::AllgatherOptions& options) {
  const char* const call = "all_gather";
  const at::Tensor& input = only_tensor(inputs, call);
  TORCH_CHECK_VALUE(outputs.size() == 1, "gyre: all_gather takes one list of tensors");
  return submit({OpType::ALLGATHER, call, is_async(options), options.timeout},
                gather_list(outputs[0], input, getRank(), getSize(), call));
}

// outputs[rank][i] is what inputs[i] of that rank is.
WorkPointer ProcessGroupGyre::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                  const c10d::AllgatherOptions& options) {
  const char* const call = "all_gather_coalesced";
  TORCH_CHECK_VALUE(static_cast<int>(outputs.size()) == getSize(), "gyre: ", call, " takes ",
                    getSize(), " lists of tensors, not ", outputs.size());
  std::vector<Operation> parts;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_tensor(inputs[i], call);
    Tensors list;
    for (const Tensors& of_rank : outputs) {
      TORCH_CHECK_VALUE(of_rank.size() == inputs.size(), "gyre: ", call,
                        " takes lists of as many tensors as there are inputs");
      list.push_back(of_rank[i]);
    }
    parts.push_back(gather_list(list, inputs[i], getRank(), getSize(), call));
  }
  return submit({OpType::ALLGATHER_COALESCED, call, is_async(options), options.timeout},
                together(std::move(parts)));
}

WorkPointer ProcessGroupGyre::_allgather_base(at::Tensor& output, at::Tensor& input,
                                              const c10d::AllgatherOptions& options) {
  const char* const call = "all_gather_single";
  return submit({OpType::_ALLGATHER_BASE, call, is_async(options), options.timeout},
                gather_whole(output, input, getSize(), call));
}

WorkPointer ProcessGroupGyre::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  const char* const call = "all_gather_single_coalesced";
  const auto make = [&](const at::Tensor& output, const at::Tensor& input) {
    return gather_whole(output, input, getSize(), call);
  };
  return submit({all_gather_coalesced_type, call, is_async(options), options.timeout},
                each(outputs, inputs, call, make));
}

WorkPointer ProcessGroupGyre::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                             const c10d::ReduceScatterOptions& options) {
  const char* const call = "reduce_scatter";
  const at::Tensor& output = only_tensor(outputs, call);
  TORCH_CHECK_VALUE(inputs.size() == 1, "gyre: reduce_scatter takes one list of tensors");
  check_list(inputs[0], getSize(), output, call);
  TORCH_CHECK_VALUE(output.numel() == inputs[0][as_count(getRank())].numel(),
                    "gyre: reduce_scatter's output has ", output.numel(),
                    " elements, and this rank's input ", inputs[0][as_count(getRank())].numel());
  const Target target(to_reduce(output, options.reduceOp));
  Tensors reduced;
  for (const at::Tensor& input : inputs[0]) reduced.push_back(to_reduce(input, options.reduceOp));
  const auto blocks = std::make_shared<const TensorBlocks>(reduced);
  blocks->fill();
  Operation operation;
  operation.inputs = inputs[0];
  operation.outputs = outputs;
  operation.call = [blocks, target, op = options.reduceOp, is_even = are_equal(inputs[0])](
                       gyreComm_t comm, gyreStream_t stream) {
    const Reduction reduction(op, target.block().scalar_type(), comm);
    const std::vector<std::size_t> counts = blocks->counts(1);
    if (is_even)
      return gyreReduceScatter(blocks->data(), target.data(), counts[0], reduction.type(),
                               reduction.op(), comm, stream);
    return gyreReduceScatterv(blocks->data(), target.data(), counts.data(), reduction.type(),
                              reduction.op(), comm, stream);
  };
  operation.deliver = delivery_of(target);
  return submit({OpType::REDUCE_SCATTER, call, is_async(options), options.timeout},
                std::move(operation));
}

WorkPointer ProcessGroupGyre::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                   const c10d::ReduceScatterOptions& options) {
  const char* const call = "reduce_scatter_single";
  return submit({OpType::_REDUCE_SCATTER_BASE, call, is_async(options), options.timeout},
                scatter_whole(output, input, options.reduceOp, getSize(), call));
}

WorkPointer ProcessGroupGyre::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  const char* const call = "reduce_scatter_single_coalesced";
  const auto make = [&](const at::Tensor& output, const at::Tensor& input) {
    return scatter_whole(output, input, options.reduceOp, getSize(), call);
  };
  return submit({reduce_scatter_coalesced_type, call, is_async(options), options.timeout},
                each(outputs, inputs, call, make));
}

WorkPointer ProcessGroupGyre::alltoall_base(at::Tensor& output, at::Tensor& input,
                                            std::vector<std::int64_t>& output_splits,
                                            std::vector<std::int64_t>& input_splits,
                                            const c10d::AllToAllOptions& options) {
  const char* const call = "all_to_all_single";
  check_tensor(output, call);
  check_tensor(input, call);
  check_same_type(output, input, call);
  check_contiguous(output);
  check_contiguous(input);
  const auto from =
      std::make_shared<const Split>(split_of(input, input_splits, getSize(), "input"));
  const auto to =
      std::make_shared<const Split>(split_of(output, output_splits, getSize(), "output"));
  const bool is_even = output_splits.empty() && input_splits.empty();
  TORCH_CHECK_VALUE(!is_even || output.numel() == input.numel(),
                    "gyre: all_to_all_single takes tensors of one size without split sizes, not ",
                    output.numel(), " and ", input.numel(), " elements");
  Operation operation;
  operation.inputs = {input};
  operation.outputs = {output};
  operation.call = [output, input, from, to, is_even](gyreComm_t comm, gyreStream_t stream) {
    const gyreDataType_t type = to_move(input).type;
    if (is_even)
      return gyreAlltoAll(input.data_ptr(), output.data_ptr(), from->counts[0], type, comm, stream);
    return gyreAlltoAllv(input.data_ptr(), from->counts.data(), from->begins.data(),
                         output.data_ptr(), to->counts.data(), to->begins.data(), type, comm,
                         stream);
  };
  return submit({OpType::ALLTOALL_BASE, call, is_async(options), options.timeout},
                std::move(operation));
}

WorkPointer ProcessGroupGyre::alltoall(Tensors& outputs, Tensors& inputs,
                                       const c10d::AllToAllOptions& options) {
  const char* const call = "all_to_all";
  TORCH_CHECK_VALUE(!inputs.empty(), "gyre: all_to_all takes lists of tensors");
  check_list(inputs, getSize(), inputs[0], call);
  check_list(outputs, getSize(), inputs[0], call);
  for (const Tensors* list : {&inputs, &outputs})
    for (const at::Tensor& tensor : *list) check_contiguous(tensor);
  const auto from = std::make_shared<const TensorBlocks>(inputs);
  const auto to = std::make_shared<const TensorBlocks>(outputs);
  from->fill();
  Operation operation;
  operation.inputs = inputs;
  operation.outputs = outputs;
  operation.call = [from, to](gyreComm_t comm, gyreStream_t stream) {
    const Elements one = to_move(from->flat());
    return gyreAlltoAllv(from->data(), from->counts(one.each).data(), from->begins(one.each).data(),
                         to->data(), to->counts(one.each).data(), to->begins(one.each).data(),
                         one.type, comm, stream);
  };
  operation.deliver = [to] { to->deliver(); };
  return submit({OpType::ALLTOALL, call, is_async(options), options.timeout}, std::move(operation));
}

WorkPointer ProcessGroupGyre::gather(TensorLists& outputs, Tensors& inputs,
                                     const c10d::GatherOptions& options) {
  const char* const call = "gather";
  const at::Tensor& input = only_tensor(inputs, call);
  check_root(options.rootRank, getSize(), call);
  const int root = static_cast<int>(options.rootRank);
  const bool is_root = root == getRank();
  TORCH_CHECK_VALUE(is_root ? outputs.size() == 1 : outputs.empty() || outputs[0].empty(),
                    "gyre: gather takes a list of outputs on the root and on no other rank");
  const Kind kind{OpType::GATHER, call, is_async(options), options.timeout};
  if (!is_root) return submit(kind, gather_to({}, input, root));
  check_list(outputs[0], getSize(), input, call);
  TORCH_CHECK_VALUE(are_equal(outputs[0]) && outputs[0][0].numel() == input.numel(),
                    "gyre: gather takes tensors of one size");
  const auto blocks = std::make_shared<const TensorBlocks>(outputs[0]);
  Operation operation = gather_to(blocks->flat(), input, root);
  operation.outputs = outputs[0];
  operation.deliver = [blocks] { blocks->deliver(); };
  return submit(kind, std::move(operation));
}

WorkPointer ProcessGroupGyre::gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                                 const c10d::GatherOptions& options) {
  const char* const call = "gather_single";
  check_tensor(input, call);
  check_root(options.rootRank, getSize(), call);
  const int root = static_cast<int>(options.rootRank);
  const Kind kind{OpType::GATHER, call, is_async(options), options.timeout};
  if (root != getRank()) return submit(kind, gather_to({}, input, root));
  check_share(output, input, getSize(), call);
  const Target target(output);
  Operation operation = gather_to(target.block(), input, root);
  operation.outputs = {output};
  operation.deliver = delivery_of(target);
  return submit(kind, std::move(operation));
}

WorkPointer ProcessGroupGyre::scatter(Tensors& outputs, TensorLists& inputs,
                                      const c10d::ScatterOptions& options) {
  const char* const call = "scatter";
  const at::Tensor& output = only_tensor(outputs, call);
  check_root(options.rootRank, getSize(), call);
  const int root = static_cast<int>(options.rootRank);
  const bool is_root = root == getRank();
  TORCH_CHECK_VALUE(is_root ? inputs.size() == 1 : inputs.empty() || inputs[0].empty(),
                    "gyre: scatter takes a list of inputs on the root and on no other rank");
  const Target target(output);
  Operation operation;
  operation.outputs = outputs;
  std::shared_ptr<const TensorBlocks> blocks;
  if (is_root) {
    check_list(inputs[0], getSize(), output, call);
    TORCH_CHECK_VALUE(are_equal(inputs[0]) && inputs[0][0].numel() == output.numel(),
                      "gyre: scatter takes tensors of one size");
    blocks = std::make_shared<const TensorBlocks>(inputs[0]);
    blocks->fill();
    operation.inputs = inputs[0];
  }
  operation.call = [target, blocks, root](gyreComm_t comm, gyreStream_t stream) {
    const Elements elements = to_move(target.block());
    return gyreScatter(blocks != nullptr ? blocks->data() : nullptr, target.data(), elements.count,
                       elements.type, root, comm, stream);
  };
  operation.deliver = delivery_of(target);
  return submit({OpType::SCATTER, call, is_async(options), options.timeout}, std::move(operation));
}

}  // namespace gyre_torch
