// The process-wide state of communicators: the control plane, the tables of handles, the service
// threads, and each thread's open group and last error. It is made at first use and never
// destroyed, because threads may be inside when the process exits. A forked child starts with a
// fresh one, which does not know the parent's handles.
#pragma once

#include "lib/base/handle_table.h"
#include "lib/base/state_page.h"
#include "lib/base/thread_state.h"
#include "lib/comm/communicator.h"
#include "lib/comm/device_services.h"
#include "lib/comm/host_machine.h"
#include "lib/comm/ring_searches.h"
#include "lib/comm/short_group.h"
#include "lib/comm/stream.h"
#include "lib/loaded/shared_ucp.h"
#include "lib/loaded/shared_verbs.h"
#include "lib/rendezvous/launcher_store.h"
#include "lib/trust/unique_id.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace gyre::comm {

// A call that waits for gyreGroupEnd.
struct GroupedCall {
  HandleTable<Communicator>::Pin communicator;
  Work work;
  HandleTable<HostStream>::Pin stream;  // none: at GroupEnd itself
  bool background = false;              // the stream is a non-blocking communicator's own
};

struct CallerState {
  int group_depth = 0;
  ShortGroup short_group;          // empty where `group` is not
  std::vector<GroupedCall> group;  // the open group, or what is left of it
  Status group_error;
  std::string last_error = "no error";
  std::string shown_error;  // what gyreGetLastError returned
};

class Process {
 public:
  // `before_fork`: of the process that this one was forked from, if that had one.
  explicit Process(Process* before_fork);
  ~Process() = delete;
  // At exit(): the threads stop, and those who count on this process hear of its end. Other threads
  // may still be inside; what they call from here on fails, and nothing that they use goes away.
  void say_farewell();
  // exit() was called: whoever destroys a communicator now does not leave it, as this process dies
  // in it.
  bool ends() const { return ends_.load(std::memory_order_relaxed); }

  // Gives a communicator a handle and, if it is non-blocking, a stream of its own; the call has
  // both.
  Result<GroupedCall> adopt(std::unique_ptr<Communicator> made);

  // Whether it was a communicator, or a stream, of a process that this one was forked from.
  bool was_known_before_fork(std::uint64_t handle);

  // Begins the log, once: all that is made afterwards can be heard of.
  Status begin_log(const Settings& settings);
  // Starts the control plane at the first call, and metrics at the first that wishes for them.
  Result<control::ControlPlane*> plane(const Settings& settings);

  // The CUDA driver, or why there is none.
  Result<const loaded::CudaDriver*> cuda_driver(loaded::CudaPresence presence);
  // NVIDIA's management library, or why it is not there; asked for once.
  Result<const loaded::Nvml*> nvml();
  // A device of it with this build's kernels, which all communicators of the process share.
  Result<std::shared_ptr<const exec::CudaDevice>> cuda_device(int ordinal);
  // What the calling thread works on if it does not say: its current device, or GYRE_DEVICE_HOST
  // where this build has no kernels, or there is no driver: `why` tells then.
  int default_device(Status* why = nullptr);
  // Another driver and other kernels: the tests'. Null: those of this machine again. No
  // communicator of a device is left.
  void use_cuda(std::unique_ptr<const loaded::CudaDriver> driver,
                std::span<const cuda::KernelImage> images);
  // Another NVML: the tests'. Null: there is none. No communicator of a device is left.
  void use_nvml(std::unique_ptr<const loaded::Nvml> nvml);

  StatePage state_page;  // what tools may see of this process; communicators hold parts of it
  HandleTable<Communicator> communicators;
  HandleTable<HostStream> streams;
  transport::RegionTable regions;  // what gyreMemAlloc gave
  DeviceHoldings device_holdings;  // of the GPUs
  HostMachine machine;
  RingSearches ring_searches;
  loaded::SharedVerbs verbs;
  rendezvous::LauncherStore launcher;
  loaded::SharedUcp ucp;
  // Calls of gyreCommInitEnv that succeeded. It turns after 2^31 of 100 us, 2.5 days, on all ranks
  // alike, and does no harm: names and secrets of meetings differ by it, no more.
  std::atomic<int> meetings = 0;
  // The id with which the last of them failed; none if it succeeded.
  std::optional<trust::UniqueId> tried_id() {
    const std::lock_guard lock(mutex_);
    return tried_id_;
  }
  void note_tried(std::optional<trust::UniqueId> id) {
    const std::lock_guard lock(mutex_);
    tried_id_ = std::move(id);
  }

 private:
  Status open_plane(const Settings& settings);
  Status serve_metrics(const Settings& settings);
  std::shared_ptr<const exec::CudaDevice> known_device(int ordinal);  // null: not open yet

  Process* const before_fork_;
  std::atomic<bool> ends_{false};
  std::mutex mutex_;
  std::optional<trust::UniqueId> tried_id_;
  std::unique_ptr<control::ControlPlane> plane_;
  std::string metrics_;  // where they are served; empty: nowhere
  bool logs_ = false;
  std::unique_ptr<const loaded::CudaDriver> cuda_;
  std::optional<Result<std::unique_ptr<const loaded::Nvml>>> nvml_;
  std::span<const cuda::KernelImage> images_ = cuda::built_in_images();
  std::map<int, std::shared_ptr<const exec::CudaDevice>> cuda_devices_;  // by ordinal

 public:
  DeviceAllocations device_memory;  // what gyreMemAlloc gave
  RelayProgress device_progress;
  DeviceWatch device_watch{device_progress};
  const DeviceServices device_services;
  const Services services;
  StreamWorker worker;
};

namespace process_state {
extern std::atomic<Process*> current;  // null: none has been made in this process
}
Process& make_process();
// Null if there is none yet.
inline Process* known_process() noexcept {
  // Pairs with the release in make_process.
  return process_state::current.load(std::memory_order_acquire);
}
inline Process& process() {
  Process* const known = known_process();
  return known != nullptr ? *known : make_process();
}
inline CallerState& caller() { return thread_state<CallerState>(); }
// Of a call without a stream: whether it is carried out alone and at once. It makes nothing.
inline bool is_outside_groups() noexcept {
  const CallerState* const known = known_thread_state<CallerState>();
  return known == nullptr || known->group_depth == 0;
}

}  // namespace gyre::comm
