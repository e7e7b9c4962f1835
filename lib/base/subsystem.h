// Subsystem: the topic of a log line, with NCCL's name where it has one. Also the grammar of
// GYRE_DEBUG_SUBSYS: a comma list of names, ALL, or ^ and the names to leave out.
#pragma once

#include "lib/base/status.h"

#include <cstdint>
#include <string_view>

namespace gyre {

enum class Subsystem : std::uint8_t {
  init,       // processes, ranks and communicators: who they are, where they run
  bootstrap,  // how ranks meet
  env,        // settings
  graph,      // which way leads to which rank, and why
  tuning,     // algorithm and protocol
  net,        // sockets
  shm,        // memory between processes
  alloc,      // memory for users
  coll,       // each collective (TRACE), and what became of those of a broken communicator
  p2p,        // each call of sends and receives (TRACE)
  call,       // calls that fail
};
inline constexpr int subsystem_count = 11;
std::string_view subsystem_name(Subsystem subsystem);  // "INIT"

using SubsystemMask = std::uint32_t;
inline constexpr SubsystemMask all_subsystems = (SubsystemMask{1} << subsystem_count) - 1;
constexpr SubsystemMask mask_of(Subsystem subsystem) {
  return SubsystemMask{1} << static_cast<int>(subsystem);
}

// Any case. The error names what is not known, and the nearest name.
Result<SubsystemMask> parse_subsystems(std::string_view list);

}  // namespace gyre
