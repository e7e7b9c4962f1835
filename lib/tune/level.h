// Level: how the ranks of a communicator lie in parts of one kind, and what two of them use that
// share such a part and no narrower one. All ranks know the same, from what each said when it
// joined.
#pragma once

#include "lib/topology/transport_path.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace gyre::tune {

enum class LevelPart : std::uint8_t { cache, numa_node, package, host, network };
std::string_view level_part_name(LevelPart part);  // "cache", "NUMA node"

struct Level {
  LevelPart part = LevelPart::host;
  int parts = 1;  // that hold ranks
  int ranks = 1;  // in each; 0: not as many in each
  topology::Medium medium = topology::Medium::host_memory;
  double gigabytes_per_s = 0;  // what leaves a host that way, or passes its rings; 0: not known
};

// Of a message without bytes, where nobody has measured it. The host's memory: what two ranks on
// cores of one cache take for an all-reduce of 8 bytes, which is one message each way at a time
// (bench/results/settings.jsonl, shm, AMD EPYC, 2026-11-25). GPUs and networks: as NCCL 2.30
// assumes for a step of a ring with Simple over NVLink, and over a network (src/graph/tuning.cc).
double assumed_microseconds(topology::Medium medium);

// For the log: "2 ranks in each of 4 hosts by the host's memory, no figure, 0.3 us assumed; ...".
std::string levels_text(std::span<const Level> levels);

}  // namespace gyre::tune
