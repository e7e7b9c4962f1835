// OpenedRegions: what peers in other processes lend, as this rank has it mapped: a table for each
// peer in device memory, by which kernels find what a grant names. What is offered is fetched at
// the peer's door, by its ticket. What was withdrawn leaves the table at once, and is unmapped when
// no kernel can be using it; a graph can bring one at any time, so whoever is in a graph keeps it.
#pragma once

#include "kernels/cuda/launch.h"
#include "lib/base/clock.h"
#include "lib/comm/region_letter.h"
#include "lib/exec/cuda_executor.h"
#include "transports/p2p/virtual_memory.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gyre::comm {

class OpenedRegions {
 public:
  // `doors`: of the peers' processes. The executor outlives it, or `close`.
  static Result<std::unique_ptr<OpenedRegions>> create(int rank, exec::CudaExecutor& executor,
                                                       std::map<int, std::string> doors);
  // Of device memory, for each peer.
  static constexpr std::uint64_t table_bytes = cuda::regions_most * sizeof(cuda::DeviceRegion);
  // Null for who is no peer in another process.
  const cuda::DeviceRegion* table(int peer) const;

  // One thread at a time from here on.
  using Answer = std::function<void(int peer, const RegionLetter& letter)>;
  void hear(int from, const RegionLetter& letter, const Answer& answer);
  // True while something is to be looked at again soon.
  bool tend(const Answer& answer);
  // What is open stays so for as long as the executor.
  void close();

 private:
  using Key = std::pair<int, std::uint64_t>;  // peer, slot of its table
  struct Open {
    std::uint64_t number = 0;
    std::shared_ptr<p2p::VirtualMemory> memory;
  };
  // The executor's, which graphs keep.
  struct Mappings {
    std::map<Key, Open> open;
    std::vector<std::shared_ptr<p2p::VirtualMemory>> withdrawn;
  };
  // On its way.
  struct Coming {
    int peer = -1;
    RegionLetter letter;
    FileDescriptor socket;  // none: it has not knocked yet
    std::int64_t until_ns = 0;
  };

  OpenedRegions(int rank, exec::CudaExecutor& executor, std::map<int, std::string> doors)
      : rank_(rank), executor_(executor), doors_(std::move(doors)) {}
  void withdraw(const Key& key, std::uint64_t number);
  Result<bool> fetch(Coming& coming);
  Status open(const Coming& coming, const FileDescriptor& file);
  Status write(const Key& key, const cuda::DeviceRegion& region);
  bool free_withdrawn();

  const int rank_;
  exec::CudaExecutor& executor_;
  const std::map<int, std::string> doors_;
  std::map<int, std::shared_ptr<std::byte>> tables_;
  std::shared_ptr<Mappings> mappings_;
  std::vector<Coming> coming_;
};

}  // namespace gyre::comm
