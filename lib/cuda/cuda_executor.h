// CudaExecutor: one rank's side of a CUDA communicator: its memory on the device, plans as kernels
// read them, and kernels on the caller's streams, each for one call or several. Kernels follow one
// another, whatever their streams, because links tell messages apart by their order alone.
// Launching waits for nothing. The outcome is read from `take_failed` and `running`
// (lib/device/device_watch.h).
#pragma once

#include "lib/cuda/cuda_device.h"
#include "lib/cuda/cuda_stream.h"
#include "lib/cuda/device_link.h"
#include "lib/loaded/cuda_rest.h"
#include "lib/plan/plan.h"

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace gyre::exec {

// See cuda_places.h.
struct PinnedPlaces;
struct PinnedPart;
struct LaunchInProgress;
struct RetainedLaunch;

// A plan in device memory, for all protocols and channels.
struct DevicePlan {
  const plan::Plan* plan = nullptr;  // of the first channel; null: sends and receives
  const cuda::DeviceLane* lanes[cuda::device_protocol_count] = {};  // channel after channel
  std::byte* scratch = nullptr;                                     // of channel 0
  std::uint64_t scratch_stride = 0;
  cuda::DeviceStatus* status = nullptr;  // pinned; of the first call that fails
  std::uint32_t* claim = nullptr;        // of the status, in device memory
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
  cuda::DevicePlace input_place, output_place;  // in regions, for peers in other processes
  bool pairs = false;
  std::uint32_t rank = 0;
  std::uint64_t signature = 0;
};

// Both ways between two ranks, for sends and receives: a lane for each channel, of one step each.
struct DevicePair {
  const cuda::DeviceLane* send = nullptr;
  const cuda::DeviceLane* receive = nullptr;
};

// What one block moves for a send or receive: a part of the buffer, over one channel.
struct DeviceTransfer {
  const cuda::DeviceLane* lane = nullptr;
  std::uint32_t block = 0;      // of the launch; a lane stays with one
  std::byte* place = nullptr;   // of the part
  std::uint64_t bytes = 0;      // of the part
  std::uint64_t signature = 0;  // what both ends must agree on
};

// Who is told when graphs run what was captured of an executor: before the kernel begins, and when
// it has ended. On a thread of the driver's that must not be kept, nor call the driver.
class ReplayWatch {
 public:
  virtual ~ReplayWatch() = default;
  virtual bool is_needed() const = 0;  // by what is captured now
  virtual void begins() = 0;
  virtual void ends() = 0;
};

class CudaExecutor final : public std::enable_shared_from_this<CudaExecutor>,
                           private loaded::CudaRest::Kernels {
 public:
  // Takes what a graph has let go of, on a thread where the driver must not be called: it is given
  // back elsewhere, soon.
  using Reclaim = std::function<void(std::shared_ptr<void>)>;
  // `reserved_bytes`: device memory taken at once, so that calls need not take any later; of the
  // host as much as a kernel may read of tables, `tables_bytes`.
  static Result<std::shared_ptr<CudaExecutor>> create(std::shared_ptr<const CudaDevice> device,
                                                      const DeviceShape& shape,
                                                      std::uint64_t reserved_bytes,
                                                      std::int64_t patience_ns, Reclaim reclaim,
                                                      std::uint64_t tables_bytes = 0);
  // No kernel of it runs any more: see `settle`.
  ~CudaExecutor();

  const std::shared_ptr<const CudaDevice>& device() const { return device_; }
  const DeviceShape& shape() const { return shape_; }

  // What memory is given of, while there is some.
  const std::shared_ptr<DeviceBlock>& pool() const { return pool_; }
  // Zeroed memory of the device, from what is reserved or new; lives as long as who holds it.
  Result<std::shared_ptr<std::byte>> allocate(std::uint64_t bytes, std::string_view purpose);
  // `find` gives the link to a peer on a channel of the plan. `by_channel`: plans that are alike
  // but for the order of ranks; channel i takes the one of number i, modulo how many there are.
  using FindLink = std::function<DeviceLink(plan::Link)>;
  // The result lives as long as the executor; its `plan` as long as the caller keeps that.
  Result<const DevicePlan*> bind(std::span<const plan::Plan> by_channel, const FindLink& find);

  // For as long as the executor, which graphs keep alive: what its kernels reach beyond its own.
  void keep(std::shared_ptr<void> memory) { kept_.push_back(std::move(memory)); }
  void watch_replays(std::unique_ptr<ReplayWatch> watch) { replays_ = std::move(watch); }
  Result<DevicePair> bind_pair(int peer, std::uint32_t channels, const DeviceLink& link);

  // Whether one more kernel may follow those that were launched, and what it reads of the host, if
  // anything, can be kept until it has ended; if not yet, later. A driver that has taken a thousand
  // launches keeps the next one waiting, and maybe all that others ask of it.
  Result<bool> has_room(bool reads_host);
  // So many tasks can be kept for one kernel without more memory of the host.
  std::size_t max_tasks() const { return place_bytes_ / sizeof(cuda::DeviceTask); }
  // Whether the calls can follow one another in one kernel: blocks of one lane stay together, and
  // no buffer of one is another's output.
  static bool can_follow(const DeviceCall& before, const DeviceCall& after);
  // Puts calls of one plan on the stream, in one kernel: a single one, or each can follow all those
  // before it. Only a single one may have tables. The device's context is current.
  Status launch(const DevicePlan& plan, std::span<const DeviceCall> calls,
                const StreamState& stream);
  // Blocks go through theirs in the order given.
  Status launch(std::span<const DeviceTransfer> transfers, std::uint32_t rank,
                const StreamState& stream);
  // The same where nobody has asked what the stream is. Transfers go on the first stream, after and
  // before what is on the others.
  Status launch(const DevicePlan& plan, std::span<const DeviceCall> calls, loaded::CuStream stream);
  Status launch(std::span<const DeviceTransfer> transfers, std::uint32_t rank,
                std::span<const loaded::CuStream> streams);

  // Any thread from here on.
  // Kernels leave at their next look at the host.
  void abort();
  // Whether a kernel has still to end; or what the driver says went wrong.
  Result<bool> running() const;
  bool is_running() const;  // what went wrong has ended
  // Whether a launch ever went into a graph.
  bool was_captured() const { return captured_once_.load(std::memory_order_relaxed); }
  // What the kernels that run show of themselves.
  struct KernelProgress {
    bool started = false;       // the last launch; else it waits in its stream, or for room
    std::uint32_t starts = 0;   // launches and replays that have begun; it turns
    std::uint64_t waiting = 0;  // changes while some thread waits; see DeviceProgress
    cuda::WaitingFor what = cuda::WaitingFor::nothing;
    int peer = -1;
  };
  KernelProgress progress() const;
  // The same of what a thread waits for, by what kernels wrote alone.
  KernelProgress waiting() const;
  // Whether any did, from when it ended on at the latest.
  bool has_given_up() const;
  // Whether a kernel has begun and not ended, by what kernels of graphs show themselves: no event
  // tells of them.
  bool shows_replay() const;
  // Once, the plan whose kernel gave up.
  const DevicePlan* take_failed();

 private:
  CudaExecutor(std::shared_ptr<const CudaDevice> device, const DeviceShape& shape,
               std::int64_t patience_ns, Reclaim reclaim, std::uint64_t tables_bytes);
  bool are_left() const override { return is_running() || shows_replay(); }
  bool may_come() const override;
  std::shared_ptr<const void> graph_mark();
  cuda::DeviceProgress* seen_progress() const;
  Result<bool> has_ended(loaded::CuEvent event) const;
  Result<bool> may_run_ahead();
  Status prepare(std::uint64_t reserved_bytes);
  Result<const DevicePlan*> add_plan(std::unique_ptr<DevicePlan> made);
  Result<LaunchInProgress> begin_launch(const StreamState& stream);
  Status finish_launch(LaunchInProgress& going, loaded::CuFunction kernel, std::uint32_t blocks,
                       cuda::DeviceLaunch& launch);
  Result<PinnedPart> place(LaunchInProgress& going, std::uint64_t bytes);
  Result<RetainedLaunch*> retain(LaunchInProgress& going);
  Status launch_captured(LaunchInProgress& going, const std::function<Status()>& launch);
  Status place_tables(LaunchInProgress& going, const DeviceCall& call, cuda::DeviceLaunch& launch);
  Status place_tasks(LaunchInProgress& going,
                     const std::vector<std::vector<cuda::DeviceTask>>& by_block,
                     cuda::DeviceLaunch& launch);
  cuda::DeviceLaunch filled(const DevicePlan& plan, const DeviceCall& call) const;
  Status join(std::span<const loaded::CuStream> streams, bool before);

  const std::shared_ptr<const CudaDevice> device_;
  const DeviceShape shape_;
  const std::int64_t patience_ns_;
  const Reclaim reclaim_;
  const std::uint64_t place_bytes_;
  std::unique_ptr<PinnedBlock> words_;  // see cuda_places.h
  std::shared_ptr<std::byte> counters_;
  std::shared_ptr<DeviceBlock> pool_;
  std::uint64_t pool_used_ = 0;
  std::vector<std::shared_ptr<void>> kept_;         // what plans lie in, and links
  std::vector<std::unique_ptr<DevicePlan>> plans_;  // mutex_'s; graphs may replay them
  std::vector<const DevicePlan*> taken_;            // of those, the failed ones
  mutable std::mutex mutex_;  // of what other threads look at; held over no call of the driver
  loaded::CuEvent ended_ = nullptr;  // of the last launch
  loaded::CuEvent joined_ = nullptr;
  // The capture that a call went into last, and after it.
  std::uint64_t last_capture_ = 0;
  loaded::CuStream last_captured_ = nullptr;
  loaded::CuEvent captured_ = nullptr;
  std::atomic<bool> captured_once_{false};
  std::weak_ptr<const void> graph_mark_;  // mutex_'s; graphs hold it
  std::atomic<bool> launched_{false};     // `ended_` has been recorded
  std::uint64_t launches_ = 0;            // mutex_'s; not of graphs
  // Of every so many launches, the last few: what the launching thread knows to have ended.
  struct LaunchMark {
    loaded::CuEvent ended = nullptr;
    std::uint64_t launched = 0;
  };
  static constexpr std::size_t marks_count = 4;
  std::array<LaunchMark, marks_count> marks_;
  std::uint64_t launched_in_all_ = 0, ended_in_all_ = 0;
  loaded::CuStream last_stream_ = nullptr;
  std::unique_ptr<PinnedPlaces> places_;
  const DevicePlan* transfers_ = nullptr;
  std::unique_ptr<ReplayWatch> replays_;  // null: nobody needs to know
};

}  // namespace gyre::exec
