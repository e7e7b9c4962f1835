// Checks of the arguments of collectives, and copies of tensors that do not lie in one block of
// memory.
#pragma once

#include "tools/pytorch/src/process_group_gyre.h"

#include <c10/util/Exception.h>

namespace gyre_torch {

// Older PyTorch has no asyncOp in some options: then the caller waits by itself.
template <typename Options>
bool is_async(const Options& options) {
  if constexpr (requires { options.asyncOp; })
    return options.asyncOp;
  else
    return true;
}

inline void check_tensor(const at::Tensor& tensor, const char* call) {
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "gyre: ", call, " takes dense tensors, not ",
                    tensor.layout());
  TORCH_CHECK_VALUE(tensor.device().is_cpu() || tensor.device().is_cuda(), "gyre: ", call,
                    " got a tensor on ", tensor.device(), ": it takes tensors of the CPU and CUDA");
}

inline at::Tensor& only_tensor(Tensors& tensors, const char* call) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "gyre: ", call, " takes one tensor, not ", tensors.size());
  check_tensor(tensors[0], call);
  return tensors[0];
}

inline void check_same_type(const at::Tensor& one, const at::Tensor& other, const char* call) {
  TORCH_CHECK_TYPE(one.scalar_type() == other.scalar_type(), "gyre: ", call,
                   " takes tensors of one type, not ", one.scalar_type(), " and ",
                   other.scalar_type());
}

inline void check_root(std::int64_t root, int size, const char* call) {
  TORCH_CHECK_VALUE(root >= 0 && root < size, "gyre: ", call, " got root ", root,
                    ", and there are ", size, " ranks");
}

// Copies of ours are no part of anybody's gradient, and run on threads that know nothing of the
// caller's inference mode.
using OutsideAutograd = at::AutoDispatchBelowADInplaceOrView;

// A result: written here, and copied to the user's tensor if that does not lie in one block.
class Target {
 public:
  explicit Target(const at::Tensor& tensor, bool keeps_content = false) : tensor_(tensor) {
    if (tensor.is_contiguous()) return;
    const OutsideAutograd guard;
    block_ = keeps_content
                 ? tensor.contiguous()
                 : at::empty(tensor.sizes(), tensor.options(), at::MemoryFormat::Contiguous);
  }
  void* data() const { return block().data_ptr(); }
  void deliver() const {
    const OutsideAutograd guard;
    if (block_.defined()) at::Tensor(tensor_).copy_(block_);
  }
  bool is_direct() const { return !block_.defined(); }
  const at::Tensor& block() const { return block_.defined() ? block_ : tensor_; }

 private:
  at::Tensor tensor_, block_;
};

// What an operation has to do for a result once it is there.
inline std::function<void()> delivery_of(const Target& target) {
  if (target.is_direct()) return nullptr;
  return [target] { target.deliver(); };
}

// Tensors side by side in one block: a list of them as Gyre's collectives know it.
class TensorBlocks {
 public:
  explicit TensorBlocks(const Tensors& tensors) : tensors_(tensors) {
    for (const at::Tensor& tensor : tensors) {
      begins_.push_back(total_);
      total_ += tensor.numel();
    }
    flat_ = at::empty({total_}, tensors[0].options());
  }
  void fill() const {
    const OutsideAutograd guard;
    for (std::size_t i = 0; i < tensors_.size(); ++i) part(i).copy_(tensors_[i]);
  }
  void deliver() const {
    const OutsideAutograd guard;
    for (std::size_t i = 0; i < tensors_.size(); ++i) at::Tensor(tensors_[i]).copy_(part(i));
  }
  void* data() const { return flat_.data_ptr(); }
  const at::Tensor& flat() const { return flat_; }
  // In elements of Gyre.
  std::vector<std::size_t> counts(std::size_t each) const {
    std::vector<std::size_t> all;
    for (const at::Tensor& tensor : tensors_)
      all.push_back(static_cast<std::size_t>(tensor.numel()) * each);
    return all;
  }
  std::vector<std::size_t> begins(std::size_t each) const {
    std::vector<std::size_t> all;
    for (const std::int64_t begin : begins_) all.push_back(static_cast<std::size_t>(begin) * each);
    return all;
  }

 private:
  at::Tensor part(std::size_t i) const {
    return flat_.narrow(0, begins_[i], tensors_[i].numel()).view(tensors_[i].sizes());
  }
  const Tensors tensors_;
  at::Tensor flat_;
  std::vector<std::int64_t> begins_;
  std::int64_t total_ = 0;
};

}  // namespace gyre_torch
