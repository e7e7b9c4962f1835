#include "tools/pytorch/src/shared_memory.h"

#include "tools/pytorch/src/comm_queues.h"
#include "tools/pytorch/src/device_work.h"
#include "tools/pytorch/src/forks.h"
#include <gyre/gyre.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <c10/util/safe_numerics.h>
#include <cstdint>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace gyre_torch {
namespace {

// What one tensor has of Gyre's memory. That of a device belongs to the stream that was current
// when it was taken, as PyTorch's own does: only what comes later there gets it again.
struct TensorBlock {
  void* data;
  std::size_t bytes;
  at::Device device;
  std::optional<c10::Stream> stream;
  BirthProcess birth = {};
};

class TensorBlockPool {
 public:
  // Never ends: tensors may outlive everything else.
  static TensorBlockPool& shared() { return of_this_process<TensorBlockPool>(); }

  TensorBlock* take(std::size_t bytes, at::Device device) {
    constexpr std::size_t page = 4096;
    bytes = (bytes + page - 1) / page * page;
    std::optional<c10::Stream> stream;
    if (!device.is_cpu()) stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
    {
      const std::lock_guard lock(mutex_);
      std::vector<TensorBlock*>& idle = idle_[{bytes, device, stream}];
      if (!idle.empty()) {
        TensorBlock* const block = idle.back();
        idle.pop_back();
        return block;
      }
    }
    void* data = nullptr;
    TORCH_CHECK(gyreMemAllocOn(&data, bytes, number_of(device)) == gyreSuccess, "gyre: ", bytes,
                " bytes of memory that peers reach: ", gyreGetLastError(nullptr));
    return new TensorBlock{data, bytes, device, stream};
  }

  void give_back(TensorBlock* block) {
    constexpr std::size_t max_idle = 8;  // of a size
    // A graph goes on using what was let go of while it was made.
    if (block->stream && is_captured(*block->stream)) return;
    std::vector<TensorBlock*> unused;
    {
      const std::lock_guard lock(mutex_);
      std::vector<TensorBlock*>& idle = idle_[{block->bytes, block->device, block->stream}];
      if (idle.size() < max_idle)
        idle.push_back(block);
      else if (block->stream)
        leave(block);
      else
        unused.push_back(block);
      for (; !leaving_.empty() && leaving_.front().end.query(); leaving_.pop_front())
        unused.push_back(leaving_.front().block);
    }
    for (TensorBlock* gone : unused) {
      (void)gyreMemFree(gone->data);
      delete gone;
    }
  }

 private:
  // By bytes, device and stream.
  struct Key {
    std::size_t bytes;
    at::Device device;
    std::optional<c10::Stream> stream;
    bool operator<(const Key& other) const { return values() < other.values(); }

   private:
    std::tuple<std::size_t, int, c10::StreamId> values() const {
      return {bytes, number_of(device), stream ? stream->id() : 0};
    }
  };
  // Kernels may still use it; mutex_ is held.
  void leave(TensorBlock* block) {
    FreedBlock& last = leaving_.emplace_back(block, c10::Event(block->device.type()));
    last.end.record(*block->stream);
  }
  struct FreedBlock {
    FreedBlock(TensorBlock* left, c10::Event when) : block(left), end(std::move(when)) {}
    TensorBlock* block;
    c10::Event end;
  };

  std::mutex mutex_;
  std::map<Key, std::vector<TensorBlock*>> idle_;
  std::list<FreedBlock> leaving_;
};

// In a forked child the parent still has its blocks: they are shared, and not the child's to use.
void give_back(void* user) {
  auto* const block = static_cast<TensorBlock*>(user);
  if (block->birth.is_this()) TensorBlockPool::shared().give_back(block);
}

}  // namespace

at::Tensor allocate_shared(std::int64_t count, const at::TensorOptions& options) {
  at::Device device = options.device();
  if (device.is_cuda() && !device.has_index())
    device = c10::impl::VirtualGuardImpl(device.type()).getDevice();
  TORCH_CHECK_VALUE(count >= 0 && (device.is_cpu() || device.is_cuda()),
                    "gyre: allocates a number of elements of the CPU or CUDA, not ", count, " on ",
                    device);
  std::uint64_t bytes = 0;
  TORCH_CHECK_VALUE(!c10::mul_overflows(static_cast<std::uint64_t>(count),
                                        std::uint64_t{options.dtype().itemsize()}, &bytes),
                    "gyre: ", count, " elements of ", options.dtype(), " are more than any memory");
  if (bytes == 0) return at::empty({count}, options);
  TensorBlock* const block = TensorBlockPool::shared().take(bytes, device);
  return at::for_blob(block->data, {count})
      .context(block, give_back)
      .target_device(device)
      .options(options.device(device))
      .make_tensor();
}

void move_to_shared(const at::Tensor& tensor) {
  const at::Storage storage = tensor.storage();
  const std::size_t bytes = storage.nbytes();
  if (!tensor.device().is_cpu() || bytes == 0) return;
  if (storage.data_ptr().get_deleter() == give_back) return;
  TensorBlock* const block = TensorBlockPool::shared().take(bytes, at::kCPU);
  std::memcpy(block->data, storage.data(), bytes);
  storage.set_data_ptr_noswap({block->data, block, give_back, at::Device(at::kCPU)});
}

}  // namespace gyre_torch
