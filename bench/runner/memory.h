// Memory: where a rank's buffers are and which stream its calls use: the host's, or a CUDA
// device's. The runner accesses both through this interface alone; all that depends on the kind is
// decided once, at construction.
//
//   tile   a part of the memory that the host reads or fills; on the host all of it
#pragma once

#include "lib/base/status.h"
#include "lib/loaded/cuda.h"
#include <gyre/gyre.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace gyre::bench {

// Operations that a stream carries out again and again.
struct Replay {
  loaded::CuGraphRun run = nullptr;
};

class Memory {
 public:
  virtual ~Memory() = default;

  // Begins a page.
  virtual Result<std::byte*> allocate(std::uint64_t bytes) = 0;
  virtual void release(std::byte* memory) = 0;

  // Calls act(tile, offset, bytes) for tile after tile: with what is there, or for `make` to fill.
  // Offsets of tiles are multiples of 1 MiB. Nothing that is queued may touch it meanwhile.
  using Look =
      std::function<void(const std::byte* tile, std::uint64_t offset, std::uint64_t bytes)>;
  using Make = std::function<void(std::byte* tile, std::uint64_t offset, std::uint64_t bytes)>;
  virtual Status read(const std::byte* place, std::uint64_t bytes, const Look& act) = 0;
  virtual Status write(std::byte* place, std::uint64_t bytes, const Make& act) = 0;

  virtual Result<gyreStream_t> make_stream() = 0;
  virtual void destroy_stream(gyreStream_t stream) = 0;
  // A null stream: the calling thread did the work, or the device's default stream.
  virtual Status synchronize(gyreStream_t stream) = 0;

  // What the thread puts on the stream between the two is kept and not carried out.
  virtual Status begin_capture(gyreStream_t stream) = 0;
  virtual Result<Replay> end_capture(gyreStream_t stream) = 0;
  virtual Status launch(const Replay& replay, gyreStream_t stream) = 0;
  virtual void destroy(const Replay& replay) = 0;

  // Its own and everybody's; 0: not known.
  struct Room {
    std::uint64_t available = 0, total = 0;
  };
  virtual Room room() const = 0;
  virtual std::uint64_t used() const = 0;  // by this process, or by all on a device
  virtual std::uint64_t cache_bytes() const = 0;
  virtual bool on_device() const = 0;
};

// Where host buffers come from. library: gyreMemAlloc, which peers of the host reach directly;
// malloc: what a program has that was written for another library.
enum class HostAllocator { library, malloc };
std::unique_ptr<Memory> host_memory(HostAllocator allocator = HostAllocator::library);
// Of the device with that number in this process.
Result<std::unique_ptr<Memory>> device_memory(const loaded::CudaDriver& driver, int ordinal);

}  // namespace gyre::bench
