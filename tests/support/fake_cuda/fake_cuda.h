// A CUDA driver without a GPU: it fills the table of lib/loaded/cuda.h. It has devices, primary
// contexts and memory that is known by address. A thread of its own carries out the streams in
// order. Kernels are those of kernels/cuda on the simulated device (host_device.h), as many blocks
// at a time as a device holds. Ranks of one process meet through their streams; processes meet in
// memory that one exports and others import. Only one fake lives in a process at a time. A harsh
// one does all that NVIDIA's driver may do to careless code (fake_cuda_harsh.cc).
#pragma once

#include "kernels/cuda/kernel_name.h"
#include "lib/loaded/cuda.h"

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::tests {

struct FakeCudaOptions {
  int devices = 1;
  int multiprocessors = 64;  // a block each
  int max_threads = 64;      // of a block: fibers are dear
  std::uint64_t memory_bytes = 1ULL << 30;
  bool peer_access = true;
  bool virtual_memory = true;  // by the driver's calls of that name, and by file descriptors
  // What it says of NICs and its devices' memory, by their attributes of CUDA.
  bool nics_reach = false, dmabuf = false;
  int nic_writes_ordering = 0;
  bool mps = false;  // as it says; processes are side by side in any case
  // What CUDA_VISIBLE_DEVICES leaves: the machine's number of each device; empty: all, in order.
  std::vector<int> visible = {};
  int capability = 90;          // compute capability
  int driver = 13000;           // as cuDriverGetVersion counts
  int images = 13000;           // the CUDA that images are of: older drivers load none
  bool mig = false;             // the devices are instances of one GPU
  bool delayed_stores = false;  // of the host's machine, as its options
  std::uint64_t seed = 1;
  bool harsh = harsh_by_environment();
  // Of a harsh one: streams that do not wait for each other; 0: as CUDA_DEVICE_MAX_CONNECTIONS
  // says, or the driver's own default, 8, and 2 under MPS.
  int connections = 0;
  // FAKE_CUDA_HARSH=1. Here, as programs for a real GPU have these options and no fake.
  static bool harsh_by_environment() {
    const char* const value = std::getenv("FAKE_CUDA_HARSH");
    return value != nullptr && std::string_view(value) == "1";
  }
};

class FakeCuda {
 public:
  explicit FakeCuda(const FakeCudaOptions& options);
  ~FakeCuda();
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  // The test's own, or a program's.
  std::unique_ptr<const loaded::CudaDriver> table() const;
  // Gyre's. Its calls are the ones that `synchronising_calls` counts.
  std::unique_ptr<const loaded::CudaDriver> library_table() const;
  static std::span<const cuda::KernelImage> images();

  // Allocations from now on: the `number`th fails for want of memory, counted from 1; 0: none does.
  void fail_allocation(int number);
  // The same of dmabufs that are exported from now on.
  void fail_dmabuf(int number);
  // What somebody has made and not given back, in words; empty if nothing.
  std::string leaks() const;
  int allocations() const;  // so far
  // Calls of Gyre's that a driver may make wait for kernels, while one was to end in this process:
  // allocations and the like.
  int synchronising_calls() const;
  std::string synchronising_shown() const;  // which, and on whose threads
  // Memory of a stream-ordered pool, as cuMemAllocAsync gives it: for its own device's kernels.
  loaded::CuDevicePointer allocate_from_pool(int device, std::size_t bytes);
  void free_from_pool(loaded::CuDevicePointer memory);
  // As cuMemAllocManaged gives it on device 0; null if there is none. cuMemFree frees it.
  void* allocate_managed(std::size_t bytes);
  // Whether memory of a device lies there.
  bool is_of_device(const void* place) const;
  // Memory that was exported to other processes and shares its block of 2 MiB with other memory.
  int exports_of_parts() const;
  int launches() const;
  int launches_apart() const;  // in the remote memory synchronisation domain, at a priority
  int host_calls() const;      // of host functions on streams
  // Why the host's machine stopped, if it did.
  std::string failure() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace gyre::tests
