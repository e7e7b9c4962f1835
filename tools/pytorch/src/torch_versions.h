// PyTorch's interfaces of process groups, as the newest release that is known here has them: this
// file adds what older ones lack. All differences between releases that are not told by the
// presence of a member stand here.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/version.h>
#include <vector>

#define GYRE_TORCH_AT_LEAST(minor) \
  (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= (minor)))

#if !GYRE_TORCH_AT_LEAST(6)
#error "gyre_torch needs PyTorch 2.6 or newer"
#endif

namespace gyre_torch {

#if GYRE_TORCH_AT_LEAST(13)
using PreMulSumFactor = c10d::PreMulSumSupplement;
#else
using PreMulSumFactor = c10d::NCCLPreMulSumSupplement;
#endif

#if GYRE_TORCH_AT_LEAST(14)
inline constexpr auto all_gather_coalesced_type = c10d::OpType::ALLGATHER_INTO_TENSOR_COALESCED;
#else
inline constexpr auto all_gather_coalesced_type = c10d::OpType::ALLGATHER_COALESCED;
#endif
#if GYRE_TORCH_AT_LEAST(12)
inline constexpr auto reduce_scatter_coalesced_type = c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED;
#else
inline constexpr auto reduce_scatter_coalesced_type = c10d::OpType::_REDUCE_SCATTER_BASE;
#endif

#if GYRE_TORCH_AT_LEAST(7)
using ErrorType = c10d::ErrorType;
#else
enum class ErrorType { SUCCESS, TIMEOUT, COMM_ERROR, REMOTE_ERROR };
#endif

// Work and Backend with functions that old releases never call: so theirs and ours override alike.
class TorchWork : public c10d::Work {
 public:
  using c10d::Work::Work;
#if !GYRE_TORCH_AT_LEAST(9)
  virtual void blockCurrentStream() { synchronize(); }
#endif
#if !GYRE_TORCH_AT_LEAST(14)
  virtual std::chrono::milliseconds getTimeout() const { return {}; }
#endif
};

class TorchBackend : public c10d::Backend {
 public:
  using c10d::Backend::Backend;

#if GYRE_TORCH_AT_LEAST(9)
  using Options = c10d::Backend::Options;
#else
  struct Options final : c10d::Backend::Options {
    using c10d::Backend::Options::Options;
    std::string group_name;
  };
  virtual c10::intrusive_ptr<Options> getBackendOptions() { return nullptr; }
  virtual void setTimeout(std::chrono::milliseconds) {}
  virtual c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>&,
                                                  const std::vector<int>&,
                                                  const c10::intrusive_ptr<Options>&) {
    return nullptr;
  }
#endif
#if !GYRE_TORCH_AT_LEAST(7)
  virtual bool supportsCoalescing() const { return false; }
  virtual bool supportsTensorAlloc(c10::DeviceIndex) { return false; }
  virtual at::Tensor allocateTensor(long, at::TensorOptions) { return {}; }
  virtual void abort() {}
  virtual void shutdown() {}
  virtual ErrorType getError() { return ErrorType::SUCCESS; }
#endif
#if !GYRE_TORCH_AT_LEAST(15)
  virtual bool supportsAbortHooks() const { return false; }
#endif
#if !GYRE_TORCH_AT_LEAST(14)
  virtual void registerAbortHook(std::int64_t, std::function<void()>) {}
  virtual void unregisterAbortHook(std::int64_t) {}
  virtual c10::intrusive_ptr<c10d::Work> gather_into_tensor(at::Tensor&, at::Tensor&,
                                                            const c10d::GatherOptions&) {
    return nullptr;
  }
#endif
};

}  // namespace gyre_torch
