// The kernels of kernels/cuda, launched through a driver's table on links that this makes itself,
// without an executor or a communicator. Either all ranks are in one grid, each block with tasks of
// its own, for tools that run kernels one after another; or each rank has a launch. It runs over
// the fake driver or on a GPU and expects the bits of the host's interpreter.
#pragma once

#include "lib/cuda/cuda_device.h"
#include "tests/support/device/on_cuda.h"
#include "tests/support/kernels/job_data.h"

#include <map>
#include <memory>
#include <tuple>

namespace gyre::tests {

// The same on the host, where it is filled in and looked at, and on the device: words, lanes,
// tasks.
template <typename T>
struct Placed {
  T* here = nullptr;
  T* there = nullptr;
};

class KernelMemory {
 public:
  KernelMemory(const OnCuda& on, std::size_t bytes) : on_(on), host_(bytes), device_(on, bytes) {}

  std::size_t used() const { return used_; }
  // Gives back all that was taken after that.
  void shrink(std::size_t used) { used_ = used; }
  template <typename T>
  Placed<T> take(std::size_t count = 1) {
    const std::size_t begin = used_;
    used_ += round_up(std::max<std::size_t>(count, 1) * sizeof(T), 128);
    REQUIRE(used_ <= host_.size());
    std::fill(place(begin), place(used_), std::byte{0});
    return {reinterpret_cast<T*>(host_.data() + begin),
            reinterpret_cast<T*>(device_.address() + begin)};
  }
  template <typename T>
  Placed<T> copy(const T* from, std::size_t count) {
    const Placed<T> made = take<T>(count);
    std::copy_n(from, count, made.here);
    return made;
  }
  void upload(std::size_t begin) {
    on_.write(device_.address() + begin, host_.data() + begin, used_ - begin);
  }
  void download(std::size_t begin) {
    on_.read(host_.data() + begin, device_.address() + begin, used_ - begin);
  }

 private:
  std::vector<std::byte>::iterator place(std::size_t at) {
    return host_.begin() + static_cast<std::ptrdiff_t>(at);
  }
  const OnCuda& on_;
  std::vector<std::byte> host_;
  DeviceBytes device_;
  std::size_t used_ = 0;
};

enum class KernelForm { one_grid, launch_each };

class KernelJob {
 public:
  // Not relayed, and no multicast: one device has neither. All of the memory is the job's.
  KernelJob(const OnCuda& on, const exec::CudaDevice& device, KernelMemory& memory,
            const DeviceCase& one);
  ~KernelJob();
  KernelJob(const KernelJob&) = delete;
  KernelJob& operator=(const KernelJob&) = delete;

  std::uint32_t blocks() const;  // of all ranks
  // One call of all ranks, in blocks of so many threads; calls follow one another on the same
  // links. Empty, or what went wrong.
  std::string run(KernelForm form, std::uint32_t threads);

 private:
  struct Ring {
    Placed<std::uint64_t> sender_next, receiver_next, tail, head;
    Placed<cuda::DeviceGrant> sender_grant, receiver_grant;
    std::vector<DeviceBytes> memory;
    Placed<transport::SlotHeader> notes;
  };
  // A rank's part of a call. In place there is no input.
  struct RankCall {
    RankMemory host;
    std::vector<DeviceBytes> output, input, scratch;  // one of each
    cuda::LaneCall call;
  };

  bool are_one_process(int a, int b) const { return (a - b) % case_.processes == 0; }
  const cuda::DeviceRegion* find_regions(int rank, int of);
  // An allocation of the rank, opened by those of other processes; some lie in no region.
  cuda::DevicePlace open_region(std::size_t rank, const std::byte* begin, std::uint64_t bytes);
  const Ring& ring(int from, int to, int link_channel, std::uint32_t channel);
  void wire(std::size_t rank);
  cuda::DeviceLane lane(std::size_t rank, std::uint32_t block);
  plan::Geometry geometry(std::size_t rank, std::uint32_t channel);
  // An allocation that ends where these bytes end, so that tools see what goes beyond.
  std::byte* place(std::vector<DeviceBytes>& into, const std::byte* from, std::uint64_t bytes);
  RankCall rank_call(std::size_t rank, std::uint32_t ordinal);
  std::vector<cuda::DeviceTask> tasks(std::size_t rank);
  std::vector<cuda::DeviceLaunch> launches(KernelForm form);
  cuda::DeviceLaunch of_tasks(const std::vector<cuda::DeviceTask>& tasks);
  std::string launch_all(const std::vector<cuda::DeviceLaunch>& launches,
                         const std::vector<std::uint32_t>& blocks, std::uint32_t threads);
  std::string outcome();

  const OnCuda& on_;
  const exec::CudaDevice& device_;
  KernelMemory& memory_;
  const DeviceCase case_;
  const JobData data_;
  std::map<std::tuple<int, int, int, std::uint32_t>, Ring> rings_;
  std::map<std::pair<int, int>, Placed<cuda::DeviceRegion>> regions_;  // by reader and lender
  std::uint64_t regions_made_ = 0;
  std::vector<Placed<cuda::DeviceLane>> lanes_;          // by rank
  std::vector<std::vector<plan::Geometry>> geometries_;  // by rank and channel, the device's
  Placed<std::uint32_t> abort_;
  std::size_t links_end_ = 0;  // of the memory; a call's begins there
  std::uint64_t sequence_ = 0;
  std::uint64_t calls_ = 0;
  std::vector<std::vector<RankCall>> going_;  // of this call, by ordinal and rank
  std::vector<Placed<cuda::DeviceStatus>> statuses_;
  std::vector<Placed<std::uint32_t>> claims_;  // of those
  std::vector<Placed<std::uint32_t>> gave_up_;
  std::vector<loaded::CuStream> streams_;
};

}  // namespace gyre::tests
