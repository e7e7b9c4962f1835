// Operators on tensors of the fake's devices. They are the CPU's, on the same memory, and run once
// all earlier work of the current stream is done. They do not wait for unordered work, so a missing
// dependency shows as wrong values. Only copies between devices are queued on the stream.
#include "tests/torch/fake_gpu/guard.h"
#include "tests/torch/fake_gpu/memory.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <torch/library.h>

namespace fake_gpu {
namespace {

using at::Tensor;
using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;

const DispatchKeySet on_device(DispatchKey::CUDA);

bool is_ours(const Tensor& tensor) { return tensor.defined() && tensor.is_cuda(); }

Tensor tensor_over(const c10::Storage& storage, DispatchKeySet keys, const Tensor& like) {
  Tensor made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), keys, like.dtype());
  c10::TensorImpl* const impl = made.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  return made;
}

// A call's tensors of devices, and tensors of the CPU on their memory.
class Aliases {
 public:
  explicit Aliases(bool waits) : waits_(waits) {}

  Tensor alias_of(const Tensor& original) {
    for (const Pair& pair : pairs_)
      if (pair.original.is_same(original)) return pair.alias;
    if (waits_) wait_for(original.get_device());
    const Tensor alias =
        tensor_over(host_of(original.storage()), DispatchKeySet(DispatchKey::CPU), original);
    pairs_.push_back({original, alias});
    device_ = original.device();
    return alias;
  }

  // What the operator has done to shapes and sizes of memory is done to the originals.
  void follow() {
    for (const auto& [original, host] : storages_) {
      c10::Storage ours = host.first;
      const c10::Storage& now = host.second;
      if (now.data() == ours.data()) continue;
      c10::DataPtr moved = taken(now);
      ours.set_data_ptr_noswap(std::move(moved));
      ours.set_nbytes(now.nbytes());
    }
    for (const Pair& pair : pairs_) {
      if (pair.alias.sizes() == pair.original.sizes() &&
          pair.alias.strides() == pair.original.strides() &&
          pair.alias.storage_offset() == pair.original.storage_offset())
        continue;
      pair.original.unsafeGetTensorImpl()->set_sizes_and_strides(
          pair.alias.sizes(), pair.alias.strides(), pair.alias.storage_offset());
    }
  }

  // A result: the original itself, a view of one, or a new tensor.
  Tensor original_of(const Tensor& result) {
    if (!result.defined() || !result.device().is_cpu()) return result;
    for (const Pair& pair : pairs_)
      if (pair.alias.is_same(result)) return pair.original;
    for (const auto& [original, host] : storages_)
      if (host.second.is_alias_of(result.storage()))
        return tensor_over(host.first, on_device, result);
    if (pairs_.empty() && !device_) return result;
    c10::DataPtr moved = taken(result.storage());
    const c10::Storage storage(c10::Storage::use_byte_size_t(), result.storage().nbytes(),
                               std::move(moved), &allocator(), true);
    return tensor_over(storage, on_device, result);
  }

  void is_on(c10::Device device) { device_ = device; }

 private:
  struct Pair {
    Tensor original, alias;
  };

  static void wait_for(int device) {
    gyreFakeStreamSynchronize(handle_of(current_stream(device)), device);
  }

  c10::Storage host_of(const c10::Storage& storage) {
    const auto found = storages_.find(storage.unsafeGetStorageImpl());
    if (found != storages_.end()) return found->second.second;
    auto* const kept = new c10::Storage(storage);
    c10::DataPtr data(
        const_cast<void*>(storage.data()), kept,
        [](void* opaque) { delete static_cast<c10::Storage*>(opaque); }, c10::Device(c10::kCPU));
    const c10::Storage host(c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(data),
                            c10::GetCPUAllocator(), true);
    storages_.emplace(storage.unsafeGetStorageImpl(), std::pair{storage, host});
    return host;
  }

  c10::DataPtr taken(const c10::Storage& host) const {
    const c10::DeviceGuard guard(*device_);
    c10::DataPtr moved = allocator().allocate(host.nbytes());
    // As a kernel would: what was freed before on this stream is free now.
    if (host.nbytes() > 0) {
      wait_for(index_of(*device_));
      std::memcpy(moved.get(), host.data(), host.nbytes());
    }
    return moved;
  }

  const bool waits_;
  std::optional<c10::Device> device_;
  std::vector<Pair> pairs_;
  std::map<c10::StorageImpl*, std::pair<c10::Storage, c10::Storage>> storages_;
};

// Applies the function to each tensor in a value.
template <typename Act>
IValue mapped(const IValue& value, const Act& act) {
  if (value.isTensor()) return act(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& tensor : value.toTensorVector()) list.push_back(act(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const std::optional<Tensor> tensor : value.toOptionalTensorList())
      list.push_back(tensor.has_value() ? std::optional<Tensor>(act(*tensor)) : std::nullopt);
    return list;
  }
  return value;
}

bool gives_views(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns())
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return true;
  return false;
}

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const c10::FunctionSchema& schema = op.schema();
  Aliases aliases(!gives_views(schema));
  const std::size_t first = stack->size() - schema.arguments().size();
  for (std::size_t i = first; i < stack->size(); ++i) {
    IValue& value = (*stack)[i];
    if (value.isDevice() && value.toDevice().is_cuda()) {
      aliases.is_on(value.toDevice());
      value = c10::Device(c10::kCPU);
      continue;
    }
    value = mapped(value, [&](const Tensor& tensor) {
      return is_ours(tensor) ? aliases.alias_of(tensor) : tensor;
    });
  }
  op.callBoxed(stack);
  aliases.follow();
  for (std::size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i)
    (*stack)[i] =
        mapped((*stack)[i], [&](const Tensor& tensor) { return aliases.original_of(tensor); });
}

Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
             std::optional<at::Device> device, std::optional<bool>,
             std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(device.value_or(c10::Device(c10::kCUDA)));
  return at::detail::empty_generic(size, &allocator(), on_device, c10::dtype_or_default(type),
                                   format);
}

Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                     std::optional<at::ScalarType> type, std::optional<at::Layout>,
                     std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(device.value_or(c10::Device(c10::kCUDA)));
  return at::detail::empty_strided_generic(size, stride, &allocator(), on_device,
                                           c10::dtype_or_default(type));
}

Tensor& copy(Tensor& to, const Tensor& from, bool) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  at::assert_no_internal_overlap(to);  // as PyTorch's own copy
  const bool on_stream = is_ours(to) && is_ours(from) && to.scalar_type() == from.scalar_type();
  if (on_stream) {
    copy_on_stream(to, from.expand_as(to));
    return to;
  }
  Aliases aliases(true);
  Tensor host = is_ours(to) ? aliases.alias_of(to) : to;
  host.copy_(is_ours(from) ? aliases.alias_of(from) : from);
  return to;
}

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}
TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("copy_", copy);
}

}  // namespace
}  // namespace fake_gpu
