#include "tools/pytorch/src/shared_memory.h"

#include <gyre/gyre.h>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

namespace gyre_torch {
namespace {

struct Block {
  void* data;
  std::size_t bytes;
};

class BlockPool {
 public:
  // Never ends: tensors may outlive everything else.
  static BlockPool& shared() {
    static auto* const all = new BlockPool;
    return *all;
  }

  Block* take(std::size_t bytes) {
    constexpr std::size_t page = 4096;
    bytes = (bytes + page - 1) / page * page;
    {
      const std::lock_guard lock(mutex_);
      std::vector<Block*>& idle = idle_[bytes];
      if (!idle.empty()) {
        Block* const block = idle.back();
        idle.pop_back();
        return block;
      }
    }
    void* data = nullptr;
    TORCH_CHECK(gyreMemAllocOn(&data, bytes, GYRE_DEVICE_HOST) == gyreSuccess, "gyre: ", bytes,
                " bytes of memory that peers reach: ", gyreGetLastError(nullptr));
    return new Block{data, bytes};
  }

  void give_back(Block* block) {
    constexpr std::size_t idle_most = 8;  // of a size
    {
      const std::lock_guard lock(mutex_);
      std::vector<Block*>& idle = idle_[block->bytes];
      if (idle.size() < idle_most) return idle.push_back(block);
    }
    (void)gyreMemFree(block->data);
    delete block;
  }

 private:
  std::mutex mutex_;
  std::map<std::size_t, std::vector<Block*>> idle_;
};

void give_back(void* block) { BlockPool::shared().give_back(static_cast<Block*>(block)); }

at::DataPtr allocate(std::size_t bytes) {
  Block* const block = BlockPool::shared().take(bytes);
  return {block->data, block, give_back, at::Device(at::kCPU)};
}

}  // namespace

at::Tensor allocate_shared(std::int64_t count, const at::TensorOptions& options) {
  TORCH_CHECK_VALUE(count >= 0 && options.device().is_cpu(),
                    "gyre: allocates a number of elements on the CPU, not ", count, " on ",
                    options.device());
  const auto bytes = static_cast<std::size_t>(count) * options.dtype().itemsize();
  if (bytes == 0) return at::empty({count}, options);
  auto storage = c10::make_intrusive<at::StorageImpl>(
      at::StorageImpl::use_byte_size_t(), bytes, allocate(bytes), nullptr, /*resizable=*/false);
  return at::empty({0}, options).set_(at::Storage(std::move(storage)), 0, {count}, {1});
}

void move_to_shared(const at::Tensor& tensor) {
  const at::Storage storage = tensor.storage();
  const std::size_t bytes = storage.nbytes();
  if (!tensor.device().is_cpu() || bytes == 0) return;
  if (storage.data_ptr().get_deleter() == give_back) return;
  at::DataPtr moved = allocate(bytes);
  std::memcpy(moved.get(), storage.data(), bytes);
  storage.set_data_ptr_noswap(std::move(moved));
}

}  // namespace gyre_torch
