// VirtualMemory: GPU memory by the driver's virtual memory management: physical memory, mapped at
// addresses of this process. A file descriptor carries it to other processes of the host, which map
// it as well. The driver counts the mappings, so the memory lasts until the last process has
// released it, whichever made it.
#pragma once

#include "lib/base/owned.h"
#include "lib/loaded/cuda.h"

#include <cstdint>
#include <memory>

namespace gyre::p2p {

// The device that uses it: by its number in this process, and its primary context.
struct MemoryOwner {
  const loaded::CudaDriver& driver;
  loaded::CuContext context = nullptr;
  int device = 0;
};

class VirtualMemory {
 public:
  // Whether the device has such memory, with descriptors of it.
  static Result<bool> is_there(const MemoryOwner& owner);
  // Of the device, for its kernels and those of every device here that can reach it. Not zeroed.
  static Result<std::shared_ptr<VirtualMemory>> make(const MemoryOwner& owner, std::uint64_t bytes);
  // What another process has made, of so many bytes, for the device's kernels. The driver refuses
  // a descriptor of something else, and of less memory.
  static Result<std::shared_ptr<VirtualMemory>> import(const MemoryOwner& owner,
                                                       const FileDescriptor& file,
                                                       std::uint64_t bytes);
  // No kernel uses it any more.
  ~VirtualMemory();
  VirtualMemory(const VirtualMemory&) = delete;
  VirtualMemory& operator=(const VirtualMemory&) = delete;

  std::byte* begin() const { return reinterpret_cast<std::byte*>(begin_); }
  std::uint64_t bytes() const { return bytes_; }  // of whole granules
  // Whether every device here that can reach the one it is of has been given it.
  bool is_everybodys() const { return is_everybodys_; }
  Result<FileDescriptor> export_file() const;

 private:
  explicit VirtualMemory(const MemoryOwner& owner) : owner_(owner) {}
  loaded::CuMemoryKind kind() const;
  Status create(std::uint64_t bytes);
  Status map();
  Status give_access();
  void give_others_access();

  const MemoryOwner owner_;
  std::uint64_t bytes_ = 0;
  // As far as they were had.
  loaded::CuMemory memory_ = 0;
  bool has_memory_ = false, mapped_ = false;
  bool is_everybodys_ = true;
  loaded::CuDevicePointer begin_ = 0;
};

}  // namespace gyre::p2p
