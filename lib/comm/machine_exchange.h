// MachineExchange: how all ranks of a communicator on GPUs come to know the machines of its hosts.
// The lowest rank of a host speaks for it. The first speaker of several equal machines sends the
// outline to the ranks that have another one. So equal hosts send nothing.
#pragma once

#include "lib/comm/machine_message.h"
#include "lib/comm/rank_layout.h"
#include "lib/topology/cluster.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace gyre::comm {

class MachineExchange {
 public:
  // All have joined. `own`: nothing if this rank does not know its host's machine. The layout stays
  // where it is. `patience_ns`: so long after `begin` it waits for others.
  MachineExchange(const RankLayout& layout, control::Membership& membership, int rank,
                  std::optional<OutlinedMachine> own, std::int64_t patience_ns);

  // Sends what others lack. An error if the roster does not say of this rank what it said.
  Status begin();
  // True once every machine is here. An error blames the rank that sent something else, or nothing.
  Result<bool> advance();
  // Until then: the rank whose description is awaited, or -1.
  int awaited_rank() const { return awaited_rank_; }
  // After that: where each rank is; or why nothing is known of that, the same on all ranks.
  Result<topology::Cluster> cluster() const;

 private:
  struct ToldMachine {
    MachineNote note;
    int speaker = 0;
    std::optional<topology::Topology> outline;  // once it is here
  };
  Status find_machines();
  std::optional<MachineNote> note_of(int rank) const;
  Status send_to_others(int index);

  const RankLayout& layout_;
  control::Membership& membership_;
  const int rank_;
  const std::optional<OutlinedMachine> own_;
  Status objection_;  // why machines do not matter, or are not told
  std::vector<ToldMachine> machines_;
  std::vector<int> machine_of_host_;
  const std::int64_t patience_ns_;
  std::int64_t until_ns_ = 0;
  int awaited_rank_ = -1;
};

}  // namespace gyre::comm
