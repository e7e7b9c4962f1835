// A CUDA driver without a GPU: it fills the table of lib/loaded/cuda.h. Devices, primary contexts
// and memory that the driver knows by address; streams in order, carried out by a thread of its
// own; kernels are those of kernels/cuda, on the host's machine (host_device.h), as many blocks at
// a time as a device holds. Ranks of one process launch on their streams and meet there; processes
// meet in memory that one exports and others import. One at a time in a process.
#pragma once

#include "kernels/cuda/kernel_name.h"
#include "lib/loaded/cuda.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gyre::tests {

struct FakeCudaOptions {
  int devices = 1;
  int multiprocessors = 64;  // a block each
  int threads_most = 64;     // of a block: fibers are dear
  std::uint64_t memory_bytes = 1ULL << 30;
  bool peer_access = true;
  bool virtual_memory = true;  // by the driver's calls of that name, and by file descriptors
  bool mps = true;             // as it says; processes are side by side in any case
  // What CUDA_VISIBLE_DEVICES leaves: the machine's number of each device; empty: all, in order.
  std::vector<int> visible = {};
  int capability = 90;          // compute capability
  int driver = 13000;           // as cuDriverGetVersion counts
  int images = 13000;           // the CUDA that images are of: older drivers load none
  bool mig = false;             // the devices are instances of one GPU
  bool delayed_stores = false;  // of the host's machine, as its options
  std::uint64_t seed = 1;
};

class FakeCuda {
 public:
  explicit FakeCuda(const FakeCudaOptions& options);
  ~FakeCuda();
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  std::unique_ptr<const loaded::CudaDriver> table() const;
  static std::span<const cuda::KernelImage> images();

  // Allocations from now on: the `number`th fails for want of memory, counted from 1; 0: none does.
  void fail_allocation(int number);
  // What somebody has made and not given back, in words; empty if nothing.
  std::string leaks() const;
  int allocations() const;  // so far
  // Calls that a driver may make wait for kernels, while one ran: allocations and the like.
  int synchronising_calls() const;
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
