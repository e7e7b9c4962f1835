#include "tests/torch/fake_gpu/memory.h"

#include "tests/torch/fake_gpu/guard.h"

#include <cstring>
#include <memory>
#include <vector>

namespace fake_gpu {
namespace {

struct Block {
  void* data;
  std::size_t bytes;
  c10::Stream stream;
};

void give_back(void* opaque) {
  const std::unique_ptr<Block> block(static_cast<Block*>(opaque));
  // Part of a graph: it stays the graph's.
  if (gyreFakeIsCapturing(handle_of(block->stream)) != 0) return;
  gyreFakeFree(block->data, block->bytes, handle_of(block->stream), block->stream.device_index());
}

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    const int device = gyreFakeGetDevice();
    const c10::Device place(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
    if (bytes == 0) return {nullptr, place};
    auto* const block = new Block{gyreFakeAllocate(device, bytes), bytes, current_stream(device)};
    return {block->data, block, give_back, place};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

// A tensor's elements, without the tensor.
struct Strided {
  std::byte* first;
  std::vector<std::int64_t> strides;  // in bytes
};

Strided strided(const at::Tensor& tensor) {
  Strided made{static_cast<std::byte*>(tensor.data_ptr()), tensor.strides().vec()};
  for (std::int64_t& stride : made.strides) stride *= static_cast<std::int64_t>(tensor.itemsize());
  return made;
}

struct Copy {
  Strided to, from;
  std::vector<std::int64_t> sizes;
  std::size_t each;

  void run(std::size_t dimension, std::int64_t to_offset, std::int64_t from_offset) const {
    if (dimension == sizes.size()) {
      std::memcpy(to.first + to_offset, from.first + from_offset, each);
      return;
    }
    for (std::int64_t i = 0; i < sizes[dimension]; ++i)
      run(dimension + 1, to_offset + i * to.strides[dimension],
          from_offset + i * from.strides[dimension]);
  }
};

Allocator only;
const auto registered = (c10::SetAllocator(c10::DeviceType::CUDA, &only), true);

}  // namespace

c10::Allocator& allocator() { return only; }

void copy_on_stream(const at::Tensor& to, const at::Tensor& from) {
  auto* const copy = new Copy{strided(to), strided(from), to.sizes().vec(), to.itemsize()};
  const int device = to.get_device();
  gyreFakeStreamCall(
      handle_of(current_stream(device)), device,
      [](void* opaque) {
        // Not deleted: it may be part of a graph, and run again.
        static_cast<const Copy*>(opaque)->run(0, 0, 0);
      },
      copy);
}

}  // namespace fake_gpu
