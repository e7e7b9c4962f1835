// Collective: what a perf program says of the operation that it measures. Everything else (options,
// ranks, timing, checking, output) is the runner's and the same for all.
//
//   Extent   how many elements the buffers hold, and what "count" means in the call
//   Block    a run of output elements and where their values come from
#pragma once

#include <gyre/gyre.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace gyre::bench {

struct Extent {
  std::uint64_t send = 0;   // elements in the send buffer
  std::uint64_t recv = 0;   // elements in the receive buffer
  std::uint64_t param = 0;  // the count argument
  // In place, rank r sends from and receives into this buffer at r times these elements.
  std::uint64_t send_in_place_offset = 0;
  std::uint64_t recv_in_place_offset = 0;
};

struct Block {
  std::uint64_t output_first = 0;
  std::uint64_t count = 0;
  int source_rank = reduced;      // whose input is copied, or
  std::uint64_t input_first = 0;  // first element of the inputs that make this block
  static constexpr int reduced = -1;
};

struct Call {
  const void* send = nullptr;
  void* recv = nullptr;
  std::size_t count = 0;
  gyreDataType_t type = gyreFloat32;
  gyreRedOp_t op = gyreSum;
  int root = -1;
  gyreComm_t comm = nullptr;
  gyreStream_t stream = nullptr;
};

struct Collective {
  std::string_view program;      // "all_reduce_perf"
  std::string_view name;         // "AllReduce"
  bool reduces = false;          // takes an operation
  bool rooted = false;           // takes a root
  bool same_everywhere = false;  // every rank gets the same output
  // `count`: elements of the size that the table shows.
  Extent (*extent)(std::uint64_t count, int ranks) = nullptr;
  // Bus bandwidth over algorithm bandwidth: what the busiest link carries for each byte of size.
  double (*bus_factor)(int ranks) = nullptr;
  // What `rank` must have received; nothing where it receives nothing.
  std::vector<Block> (*expected)(const Extent& extent, int ranks, int rank, int root) = nullptr;
  gyreResult_t (*call)(const Call& call) = nullptr;
};

// The whole program: parses, runs, prints. Returns the exit code.
int run_benchmark(const Collective& collective, int argc, char** argv);

}  // namespace gyre::bench
