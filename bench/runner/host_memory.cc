// The host's memory, the library's own or malloc's, with the library's streams. See memory.h.
#include "bench/runner/machine.h"
#include "bench/runner/memory.h"
#include "bench/runner/ranks.h"

#include <fmt/core.h>

#include <cstdlib>

namespace gyre::bench {
namespace {

Status without_graphs() { return internal_error("host memory has no graphs"); }

constexpr std::uint64_t page = 4096;

class HostMemory final : public Memory {
 public:
  explicit HostMemory(HostAllocator allocator) : allocator_(allocator) {}

  Result<std::byte*> allocate(std::uint64_t bytes) override {
    if (allocator_ == HostAllocator::malloc) {
      void* const plain = std::aligned_alloc(page, (bytes + page - 1) / page * page);
      if (plain == nullptr && bytes > 0)
        return Status(Code::SystemError, fmt::format("malloc has no {} bytes", bytes));
      return static_cast<std::byte*>(plain);
    }
    void* memory = nullptr;
    GYRE_TRY(checked(gyreMemAllocOn(&memory, bytes, GYRE_DEVICE_HOST),
                     fmt::format("gyreMemAllocOn of {} bytes of the host", bytes)));
    return static_cast<std::byte*>(memory);
  }
  void release(std::byte* memory) override {
    if (allocator_ == HostAllocator::malloc)
      std::free(memory);
    else
      (void)gyreMemFree(memory);
  }

  Status read(const std::byte* place, std::uint64_t bytes, const Look& act) override {
    if (bytes > 0) act(place, 0, bytes);
    return {};
  }
  Status write(std::byte* place, std::uint64_t bytes, const Make& act) override {
    if (bytes > 0) act(place, 0, bytes);
    return {};
  }

  Result<gyreStream_t> make_stream() override {
    gyreStream_t stream = nullptr;
    GYRE_TRY(checked(gyreStreamCreate(&stream), "gyreStreamCreate"));
    return stream;
  }
  void destroy_stream(gyreStream_t stream) override { (void)gyreStreamDestroy(stream); }
  Status synchronize(gyreStream_t stream) override {
    if (stream == nullptr) return {};
    return checked(gyreStreamSynchronize(stream), "gyreStreamSynchronize");
  }

  Status begin_capture(gyreStream_t) override { return without_graphs(); }
  Result<Replay> end_capture(gyreStream_t) override { return without_graphs(); }
  Status launch(const Replay&, gyreStream_t) override { return without_graphs(); }
  void destroy(const Replay&) override {}

  Room room() const override { return {available_memory(), total_memory()}; }
  std::uint64_t used() const override { return resident_memory(); }
  std::uint64_t cache_bytes() const override { return last_level_cache_bytes(); }
  bool on_device() const override { return false; }

 private:
  const HostAllocator allocator_;
};

}  // namespace

std::unique_ptr<Memory> host_memory(HostAllocator allocator) {
  return std::make_unique<HostMemory>(allocator);
}

}  // namespace gyre::bench
