// CudaExecutor: one rank's side of a CUDA communicator: its memory on the device, plans as kernels
// read them, and one kernel a call on the caller's stream. Calls follow one another, whatever their
// streams: links tell messages apart by their order alone. `launch` waits for nothing; whoever
// looks at `failed` and `running` learns what became of it (lib/comm/device_watch.h).
#pragma once

#include "lib/exec/cuda_device.h"
#include "lib/exec/device_link.h"
#include "lib/plan/plan.h"

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace gyre::exec {

// A plan in device memory, for all protocols and channels.
struct DevicePlan {
  const plan::Plan* plan = nullptr;
  const cuda::DeviceLane* lanes[cuda::device_protocol_count] = {};  // channel after channel
  std::byte* scratch = nullptr;                                     // of channel 0
  std::uint64_t scratch_stride = 0;
  cuda::DeviceStatus* status = nullptr;  // pinned; of the first call that fails
};

struct DeviceCall {
  cuda::DeviceProtocol protocol = cuda::DeviceProtocol::simple;
  std::span<const plan::Geometry> stripes;  // one for each channel; tables in this memory
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::uint64_t input_bytes = 0;
  std::uint64_t output_bytes = 0;
  ElementType type = ElementType::uint8;
  ReduceOp op = ReduceOp::sum;
  std::uint64_t scalar = 0;  // pre_mul_sum
  std::uint32_t divisor = 1;
  bool lends = false;
  bool pairs = false;
  std::uint32_t rank = 0;
  std::uint64_t signature = 0;
};

class CudaExecutor {
 public:
  // `reserved_bytes`: device memory taken at once, so that calls need not take any later.
  static Result<std::unique_ptr<CudaExecutor>> create(std::shared_ptr<const CudaDevice> device,
                                                      const DeviceShape& shape,
                                                      std::uint64_t reserved_bytes,
                                                      std::int64_t patience_ns);
  // No kernel of it runs any more: see `settle`.
  ~CudaExecutor();

  const std::shared_ptr<const CudaDevice>& device() const { return device_; }
  const DeviceShape& shape() const { return shape_; }

  // Zeroed memory of the device, from what is reserved or new; lives as long as who holds it.
  Result<std::shared_ptr<std::byte>> allocate(std::uint64_t bytes, std::string_view purpose);
  // `find` gives the link to a peer on a channel of the plan.
  using FindLink = std::function<DeviceLink(plan::Link)>;
  Result<std::unique_ptr<DevicePlan>> bind(const plan::Plan& plan, const FindLink& find);

  // Whether tables of a call can be kept until its kernel has read them; if not yet, later.
  Result<bool> has_room_for_tables();
  // Puts the call on the stream.
  Status launch(const DevicePlan& plan, const DeviceCall& call, loaded::CuStream stream);

  // Any thread from here on.
  // Kernels leave at their next look at the host.
  void abort();
  // Whether a kernel has still to end; or what the driver says went wrong.
  Result<bool> running() const;
  // Once, the plan whose kernel gave up; at the second look after that, at the earliest.
  const DevicePlan* take_failed();

 private:
  struct Tables;
  CudaExecutor(std::shared_ptr<const CudaDevice> device, const DeviceShape& shape,
               std::int64_t patience_ns);
  Status prepare(std::uint64_t reserved_bytes);
  Status order(loaded::CuStream stream, bool captured);
  Status place_tables(const DeviceCall& call, bool captured, cuda::DeviceLaunch& launch);
  cuda::DeviceLaunch filled(const DevicePlan& plan, const DeviceCall& call) const;

  const std::shared_ptr<const CudaDevice> device_;
  const DeviceShape shape_;
  const std::int64_t patience_ns_;
  std::unique_ptr<PinnedBlock> words_;  // the abort word, then statuses
  std::shared_ptr<std::byte> counters_;
  std::shared_ptr<DeviceBlock> pool_;
  std::uint64_t pool_used_ = 0;
  std::vector<std::shared_ptr<std::byte>> held_;  // what plans lie in
  std::vector<const DevicePlan*> plans_;          // mutex_'s
  // Of those, the failed ones: seen to have failed, and taken.
  std::vector<const DevicePlan*> noticed_, told_;
  mutable std::mutex mutex_;         // of what other threads look at
  loaded::CuEvent ended_ = nullptr;  // of the last launch
  bool launched_ = false;            // mutex_'s
  loaded::CuStream last_stream_ = nullptr;
  std::unique_ptr<Tables> tables_;
};

}  // namespace gyre::exec
