// OpenedRegions: memory that peers in other processes lend, as this rank has it mapped. For each
// peer there is a table in device memory, by which kernels find the region that a grant names. An
// offered region is fetched at the peer's listener, by its ticket. It is opened when no kernel of
// this process runs, because the driver may wait for kernels. A withdrawn region leaves the table
// at once. It is unmapped when no kernel can be using it. A graph can use it at any time, so a
// communicator that is in a graph keeps it.
#pragma once

#include "kernels/cuda/launch.h"
#include "lib/base/clock.h"
#include "lib/cuda/cuda_executor.h"
#include "lib/device/region_message.h"
#include "lib/transport/handover.h"
#include "transports/p2p/virtual_memory.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gyre::comm {

class OpenedRegions {
 public:
  // A peer's process.
  struct Lender {
    std::string listener;
    std::uint32_t pid = 0;
  };
  // The executor outlives it, or `close`.
  static Result<std::unique_ptr<OpenedRegions>> create(int rank, exec::CudaExecutor& executor,
                                                       std::map<int, Lender> lenders);
  // Of device memory, for each peer.
  static constexpr std::uint64_t table_bytes = cuda::max_regions * sizeof(cuda::DeviceRegion);
  // Null for who is no peer in another process.
  const cuda::DeviceRegion* table(int peer) const;

  // One thread at a time from here on.
  using Answer = std::function<void(int peer, const RegionMessage& message)>;
  void hear(int from, const RegionMessage& message, const Answer& answer);
  // True while something is to be looked at again soon.
  bool tend(const Answer& answer);
  // What is open stays so for as long as the executor.
  void close();

 private:
  using Key = std::pair<int, std::uint64_t>;  // peer, slot of its table
  struct OpenRegion {
    std::uint64_t number = 0;
    bool exported = false;         // the lender waits until it is closed
    std::shared_ptr<void> memory;  // unmapped with it
  };
  struct WithdrawnRegion {
    int peer = -1;
    OpenRegion what;
    bool told_kept = false;
  };
  // The executor's, which graphs keep.
  struct Mappings {
    std::map<Key, OpenRegion> open;
    std::vector<WithdrawnRegion> withdrawn;
  };
  // On its way.
  struct IncomingRegion {
    int peer = -1;
    RegionMessage message;
    std::optional<transport::MemoryRequest> request;
    std::optional<FileDescriptor> file;  // that it was handed
    std::int64_t until_ns = 0;
  };

  OpenedRegions(int rank, exec::CudaExecutor& executor, std::map<int, Lender> lenders)
      : rank_(rank), executor_(executor), lenders_(std::move(lenders)) {}
  void withdraw(const Key& key, std::uint64_t number);
  Result<bool> fetch(IncomingRegion& coming);
  Result<bool> import(const IncomingRegion& coming);
  Status enter(const IncomingRegion& coming, cuda::DeviceRegion region,
               std::shared_ptr<void> memory);
  Status write(const Key& key, const cuda::DeviceRegion& region);
  bool free_withdrawn(const Answer& answer);

  const int rank_;
  exec::CudaExecutor& executor_;
  const std::map<int, Lender> lenders_;
  std::map<int, std::shared_ptr<std::byte>> tables_;
  std::shared_ptr<Mappings> mappings_;
  std::vector<IncomingRegion> coming_;
};

}  // namespace gyre::comm
