// All ranks of one collective on the kernels of kernels/cuda, on the simulated device.
#pragma once

#include "tests/support/host_device/host_device.h"
#include "tests/support/kernels/job_data.h"
#include "tests/support/kernels/relay_mesh.h"

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gyre::tests {

class DeviceJob {
 public:
  explicit DeviceJob(const DeviceCase& one);
  ~DeviceJob();

  // One call of all ranks; calls follow one another on the same rings. Empty, or what went wrong.
  std::string run(const MachineOptions& options);

  // For tests that disturb a call. Valid until the next one.
  std::vector<cuda::DeviceLaunch>& launches() { return launches_; }
  // What `rank` has opened of another process's rank: the host may write there before the grids
  // run.
  std::vector<cuda::DeviceRegion>& regions(int rank, int of) { return regions_[{rank, of}]; }
  void begin();
  std::vector<Grid> grids();
  std::string compare();
  const cuda::DeviceStatus& status(int rank) const { return statuses_[std::size_t(rank)]; }
  const cuda::DeviceProgress& progress(int rank) const { return progress_[std::size_t(rank)]; }
  // Beside the ranks, as one more `rank`: tells them to abort after so many turns of theirs.
  Grid aborter(int rank, int turns);
  // The same: waits until rank `of` tells how it went, and reads that at once.
  Grid listener(int rank, int of);
  std::uint64_t ring_bytes() const { return data_.ring_bytes(); }
  const cuda::DeviceStatus& heard() const { return heard_; }

 private:
  struct Ring;
  void wire();
  Ring& ring(int from, int to, int link_channel, std::uint32_t channel);
  MulticastGroup group_of(RankMemory::Side RankMemory::*side, std::uint64_t bytes);
  void check_input(std::size_t rank);
  void launch_all(std::size_t rank, cuda::Kernel kernel);
  cuda::DeviceLaunch launch_of(std::size_t rank, const RankMemory& memory);
  void chain(std::size_t rank);
  bool are_one_process(int a, int b) const { return (a - b) % case_.processes == 0; }
  const cuda::DeviceRegion* find_regions(int rank, int of);
  cuda::DevicePlace open_region(std::size_t rank, const RankMemory::Side& side);
  void place_in_regions(std::size_t rank, RankMemory& memory);

  const DeviceCase case_;
  const JobData data_;
  std::uint64_t calls_ = 0;
  std::vector<RankMemory> memory_, earlier_;  // kept, so that each call has other addresses
  std::vector<RankMemory> second_;            // of the second call of a chain
  std::deque<std::vector<cuda::DeviceTask>> tasks_;
  std::deque<std::vector<std::byte>> group_addresses_;
  std::vector<MulticastGroup> groups_;
  std::string input_wrong_;
  std::map<std::tuple<int, int, int, std::uint32_t>, std::unique_ptr<Ring>> rings_;
  std::map<std::pair<int, int>, std::vector<cuda::DeviceRegion>> regions_;  // by reader and lender
  std::uint64_t regions_made_ = 0;
  std::unique_ptr<RelayMesh> relays_;
  std::size_t grids_ended_ = 0;
  std::deque<std::vector<cuda::DeviceEnd>> ends_;  // lanes point into them
  std::vector<std::vector<cuda::DeviceLane>> lanes_;
  std::vector<cuda::DeviceLaunch> launches_;
  std::vector<cuda::DeviceStatus> statuses_;
  std::vector<std::uint32_t> claims_;  // of those
  std::vector<std::uint32_t> gave_up_;
  cuda::DeviceStatus heard_;
  std::vector<std::uint64_t> sequences_;
  std::vector<std::uint32_t> starts_;
  std::vector<cuda::DeviceProgress> progress_;
  std::vector<std::uint32_t> ended_;
  std::vector<std::uint32_t> threads_ended_;  // of all launches so far
  std::uint32_t abort_ = 0;
};

// Calls of short messages over a protocol of lines: their credit goes back by quarters of a ring
// and once more when the call ends, not message by message. Empty, or how often it did.
std::string told_too_often(cuda::DeviceProtocol lines);

}  // namespace gyre::tests
