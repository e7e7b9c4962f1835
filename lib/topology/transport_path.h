// TransportPath: what the bytes of a transport go through between two ranks, and how many per
// second fit. A transport uses one medium; the machines say what that is worth.
#pragma once

#include "lib/topology/paths.h"
#include "lib/topology/speeds.h"

#include <cstdint>
#include <string>

namespace gyre::topology {

enum class Medium : std::uint8_t {
  own_memory,   // of one rank
  gpu_memory,   // the kernels of one GPU use the memory of another
  host_memory,  // two processes map it
  verbs,        // RDMA between ports of NICs, from host memory to host memory
  sockets,      // of the kernel, from host memory to host memory
  ucx,          // whatever UCX finds, from host memory to host memory
};

// Where a rank runs.
struct RankLocation {
  int host = 0;
  const Topology* machine = nullptr;  // null: nothing is known of this host
  int node = 0;                       // a GPU, a core or a wider place of processors
};

struct TransportPath {
  bool exists = false;
  double gigabytes_per_s = 0;  // of its narrowest part, one direction; 0: nobody knows
  FigureSource source = FigureSource::known;  // assumed: nobody knows the narrowest part
  std::string text;  // "SYS", "eth0 to eth1"; if it does not exist: why not
};

TransportPath find_path(const RankLocation& from, const RankLocation& to, Medium medium);
// "SYS, 22 GB/s"; "22 GB/s" alone.
std::string path_text(const TransportPath& path);
std::string figure_text(const TransportPath& path);

}  // namespace gyre::topology
