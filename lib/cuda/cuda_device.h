// CudaDevice: one GPU of this process as communicators share it: its primary context, which CUDA's
// runtime uses too, and all kernels. They are loaded here once. Inside a call nothing may load or
// synchronise, because that waits for kernels that wait for other ranks.
#pragma once

#include "kernels/cuda/kernel_name.h"
#include "lib/cuda/idle_memory.h"
#include "lib/loaded/cuda.h"

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace gyre::exec {

// Why the driver would load no kernels, whatever the device: there are none, or they are of a newer
// CUDA.
Status check_images(const loaded::CudaDriver& driver, std::span<const cuda::KernelImage> images);
// Why not on this device: it is older than what the kernels are for, or so new that the driver
// would have to compile them, and cannot.
Status check_device(const loaded::CudaDriver& driver, loaded::CuDevice device,
                    std::span<const cuda::KernelImage> images);

class CudaDevice {
 public:
  static Result<std::shared_ptr<const CudaDevice>> open(const loaded::CudaDriver& driver,
                                                        int ordinal,
                                                        std::span<const cuda::KernelImage> images);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const loaded::CudaDriver& driver() const { return driver_; }
  int ordinal() const { return ordinal_; }
  loaded::CuContext owner() const { return owner_; }
  const std::string& name() const { return name_; }
  // The same in every process, whatever CUDA_VISIBLE_DEVICES says.
  const std::string& uuid() const { return uuid_; }
  // Its place on the PCI bus of this host, as the driver writes it.
  const std::string& bus_id() const { return bus_id_; }
  std::uint32_t capability() const { return capability_; }  // compute capability: 90 for sm_90
  // Of a block of any kernel; whole warps.
  std::uint32_t threads() const { return threads_; }
  // Of any kernel, at one time. Some multiprocessors are left to the copies and kernels of others.
  std::uint32_t max_blocks() const { return max_blocks_; }
  std::string blocks_shown() const;          // how that comes about
  Result<std::uint64_t> free_bytes() const;  // of its memory, now
  loaded::CuFunction kernel(cuda::DeviceProtocol protocol, ElementType type, ReduceOp op) const {
    return kernels_[static_cast<std::size_t>(type)][static_cast<std::size_t>(op)]
                   [static_cast<std::size_t>(protocol)];
  }

  // Blocks of `threads`, in this device's context, with the one parameter that Gyre's kernels have.
  Status launch(loaded::CuFunction kernel, std::uint32_t blocks, loaded::CuStream stream,
                void* parameter) const;
  std::string launches_shown() const;  // how that goes

  // Copies by the copy engines alone, and waits for these copies alone: kernels that fill the GPU
  // keep nobody waiting.
  Status upload(std::byte* to, std::span<const std::byte> from) const;
  Status download(void* to, const std::byte* from, std::uint64_t bytes) const;
  Status zero(std::byte* to, std::uint64_t bytes) const;
  // What nobody uses any more, of its memory and of pinned memory; given back to the driver when
  // the process rests (lib/loaded/cuda_rest.h).
  enum class Kind : std::uint8_t { device, pinned };
  IdlePiece take_idle(Kind kind, std::uint64_t bytes) const { return idle(kind).take(bytes); }
  static void give_idle(const std::shared_ptr<const CudaDevice>& device, Kind kind,
                        const IdlePiece& piece);
  // So that this device's kernels reach the other's memory; why not, if they do not.
  Status reach(const CudaDevice& other) const;

 private:
  CudaDevice(const loaded::CudaDriver& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {}
  Status retain();
  Status load(std::span<const cuda::KernelImage> images);
  Status load_row(const cuda::KernelImage& image);
  Status count_blocks();
  void choose_attributes();
  IdleMemory& idle(Kind kind) const { return idle_[static_cast<std::size_t>(kind)]; }
  void free_idle() const;

  const loaded::CudaDriver& driver_;
  const int ordinal_;
  loaded::CuDevice device_ = 0;
  loaded::CuContext owner_ = nullptr;
  std::string name_, uuid_, bus_id_;
  std::vector<loaded::CuModule> modules_;
  using ByProtocol = std::array<loaded::CuFunction, cuda::device_protocol_count>;
  std::array<std::array<ByProtocol, reduce_op_count>, element_type_count> kernels_{};
  loaded::CuStream copies_ = nullptr;
  void* zeros_ = nullptr;                              // pinned
  std::vector<loaded::CuLaunchAttribute> attributes_;  // of launches; empty: cuLaunchKernel
  std::uint32_t capability_ = 0;
  int multiprocessors_ = 0;
  int blocks_each_ = 0;  // of a multiprocessor
  std::uint32_t threads_ = 0;
  std::uint32_t max_blocks_ = 0;
  mutable std::array<IdleMemory, 2> idle_;
  mutable std::mutex reach_mutex_;
  mutable std::set<int> reached_;  // ordinals of devices
};

// Memory of a device; given back with the last who holds it. A failure says what it was for.
class DeviceBlock {
 public:
  static Result<std::shared_ptr<DeviceBlock>> make(std::shared_ptr<const CudaDevice> device,
                                                   std::uint64_t bytes, std::string_view purpose);
  ~DeviceBlock();
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;

  std::byte* begin() const { return reinterpret_cast<std::byte*>(piece_.memory); }
  std::uint64_t bytes() const { return bytes_; }
  const CudaDevice& device() const { return *device_; }

 private:
  explicit DeviceBlock(std::shared_ptr<const CudaDevice> device) : device_(std::move(device)) {}
  const std::shared_ptr<const CudaDevice> device_;
  IdlePiece piece_;
  std::uint64_t bytes_ = 0;  // of it
};

// Memory of the host that the device reads and writes where it lies. Zeroed.
class PinnedBlock {
 public:
  static Result<std::unique_ptr<PinnedBlock>> make(std::shared_ptr<const CudaDevice> device,
                                                   std::uint64_t bytes, std::string_view purpose);
  ~PinnedBlock();
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;

  std::byte* begin() const { return reinterpret_cast<std::byte*>(piece_.memory); }
  // Where the device has it.
  std::byte* seen(const void* place) const {
    return reinterpret_cast<std::byte*>(seen_) + (static_cast<const std::byte*>(place) - begin());
  }

 private:
  explicit PinnedBlock(std::shared_ptr<const CudaDevice> device) : device_(std::move(device)) {}
  const std::shared_ptr<const CudaDevice> device_;
  IdlePiece piece_;
  loaded::CuDevicePointer seen_ = 0;
};

}  // namespace gyre::exec
