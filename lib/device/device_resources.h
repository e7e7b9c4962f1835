// DeviceResources: the parts that only a communicator on a GPU has: an executor, links between
// devices, and the code that turns calls into kernels. It also shows kernels that give up to the
// watch (device_watch.h). Only the communicator's thread calls it, except for `look`.
#pragma once

#include "lib/call/binding.h"
#include "lib/call/call_history.h"
#include "lib/device/device_links.h"
#include "lib/device/device_regions.h"
#include "lib/device/device_share.h"
#include "lib/device/gpu_info.h"
#include "lib/tune/choice.h"

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::comm {

struct DeviceEnvironment {
  control::Membership& membership;
  trust::TicketBook& tickets;
  int rank = 0;
  int size = 1;
  bool other_gpus_here = false;                    // some of this process are on another GPU
  const DeviceAllocations* allocations = nullptr;  // what gyreMemAlloc gave
  std::vector<p2p::PairRoute> ways;                // to each rank
  std::vector<tune::Level> levels;
  // Where some pair of ranks is relayed, not of this rank's alone, all choose `simple`, and lend
  // nothing.
  DeviceDemand demand;
  Links* links = nullptr;             // over which relays reach each other
  RelayProgress* progress = nullptr;  // which drives them
  // The memory that NICs may keep keys of.
  std::shared_ptr<transport::LastingMemory> lasting;
  std::function<std::string(std::string_view port)> why_nic_is_far;  // see DeviceRelays
  std::int64_t timeout_ns = 0;
  std::int64_t liveness_ns = 0;
  bool reproducible = false;
  bool whole_lines = false;  // see tune::TuningInputs
  exec::CudaExecutor::Reclaim reclaim;
};

class DeviceResources {
 public:
  static Result<std::unique_ptr<DeviceResources>> create(
      std::shared_ptr<const exec::CudaDevice> device, const DeviceShare& share,
      DeviceEnvironment around);
  // Kernels of it leave first, if there are any; see `settle`. What peers in other processes may
  // still use has to outlive it: see DeviceLinks::take_lent.
  ~DeviceResources();

  const exec::CudaDevice& device() const { return *executor_->device(); }
  const tune::TuningInputs& tuning() const { return tuning_; }
  exec::CudaExecutor& executor() { return *executor_; }
  std::weak_ptr<const exec::CudaExecutor> weak_executor() const { return executor_; }
  DeviceLinks& links() { return links_; }
  // Null if all ranks are of this process, or lend nothing.
  const std::shared_ptr<DeviceRegions>& regions() const { return regions_; }
  std::byte* barrier_byte() const { return barrier_byte_.get(); }

  // Whether the protocol has room for the least messages of the plan.
  bool fits(const plan::Plan& plan, plan::Protocol protocol) const;
  std::uint32_t channels() const { return executor_->shape().channels; }  // at most
  Result<const exec::DevicePlan*> bind_plan(std::span<const plan::Plan> by_channel);
  // All of a call but its buffers, kept until another kind of call comes.
  // `history`: of all calls before, as messages tell it (lib/call/call_history.h).
  Status bind(const Request& request, std::span<const plan::Plan> by_channel,
              const tune::Choice& choice, std::uint64_t bytes, std::uint64_t history);
  // Puts the call on its stream; false if it has to wait for room. With `more` calls of a group to
  // come, it may be kept, to go with them in one kernel.
  Result<bool> launch(const Request& request, const exec::DevicePlan& plan, bool more);
  // What is kept: there is room for it.
  Status launch_pending();

  // Any thread. Whether a kernel has still to end; `why` if something is wrong.
  struct KernelStatus {
    bool running = false;
    Status why;
    int asks = -1;            // a peer to ask for its call, as its message was of another one
    bool is_symptom = false;  // of a failure that others may know more of
    // While one runs: what it waits for, or `stream` if it has not begun; and a number that changes
    // with each kernel that begins.
    Blocked waits;
    std::uint32_t starts = 0;
  };
  KernelStatus look();
  void note_launch() {
    if (DeviceRelays* const relays = links_.relays()) relays->expect(true);
  }
  // The communicator ends. Graphs may go on with what they hold of it, if that is in peace.
  void leave(bool in_peace);
  void abort() { executor_->abort(); }
  // Waits until no kernel runs any more, `max_ns` at most; false if one still does.
  bool settle(std::int64_t max_ns);

 private:
  DeviceResources(const DeviceShare& share, DeviceEnvironment around,
                  std::shared_ptr<exec::CudaExecutor> executor);
  std::uint32_t channels_for(std::span<const plan::Plan> by_channel, std::uint64_t bytes) const;
  exec::DeviceLink link_with_regions(plan::Link link) const;
  // Where a buffer lies, as the last call found it.
  struct CachedPlace {
    const void* memory = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t as_of = ~0ULL;  // the regions' changes
    cuda::DevicePlace place;
  };
  cuda::DevicePlace place_of(CachedPlace& known, const void* memory, std::uint64_t bytes);
  // Whether kernels of the other GPUs of this process reach it, by its address.
  Result<bool> is_reached(const void* memory, std::uint64_t bytes);
  Status decide_lending(const Request& request);
  // Calls of a group that go together, and their stripes.
  struct PendingBatch {
    const exec::DevicePlan* plan = nullptr;
    loaded::CuStream stream = nullptr;
    std::deque<std::vector<plan::Geometry>> stripes;
    std::vector<exec::DeviceCall> calls;

    bool takes(const exec::DevicePlan& other, loaded::CuStream on,
               const exec::DeviceCall& call) const;
    void add(const exec::DeviceCall& call);
    void clear() { stripes.clear(), calls.clear(); }
  };
  Status blame_peer(const exec::DevicePlan& plan, int& asks) const;
  Blocked waits_of(const exec::CudaExecutor::KernelProgress& progress);

  const int rank_;
  const DeviceShare share_;
  const std::int64_t timeout_ns_;
  const DeviceAllocations* const allocations_;
  const bool other_gpus_here_;
  std::shared_ptr<exec::CudaExecutor> executor_;  // which graphs keep, too
  DeviceLinks links_;
  std::shared_ptr<DeviceRegions> regions_;
  tune::TuningInputs tuning_;
  std::shared_ptr<std::byte> barrier_byte_;
  std::vector<Binding> bindings_;  // by channel
  std::vector<plan::Geometry> stripes_;
  exec::DeviceCall call_;
  PendingBatch pending_batch_;
  CachedPlace input_place_, output_place_;
  bool has_tables_ = false;
  bool may_lend_ = false, may_lend_in_place_ = false;
  bool told_of_unreached_ = false;
  // The watch's: what a thread of a kernel told last, and when.
  std::uint64_t waiting_ = 0;
  std::int64_t waiting_since_ns_ = 0;
};

}  // namespace gyre::comm
