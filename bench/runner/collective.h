// Collective: a perf program's description of the operation that it measures. Everything else
// (options, ranks, timing, checking, output) is the runner's and the same for all.
//
//   Extent   how many elements the buffers hold, and what "count" means in the call
//   Block    a run of output elements and where their values come from
#pragma once

#include "bench/runner/devices.h"
#include "bench/runner/shape.h"
#include "bench/runner/traffic.h"
#include <gyre/gyre.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace gyre::bench {

struct BufferExtent {
  // Elements in the buffers; where ranks differ, the most of any.
  std::uint64_t send = 0;
  std::uint64_t recv = 0;
  std::uint64_t param = 0;  // the count argument
  // In place, rank r sends from and receives into this buffer at r times these elements.
  std::uint64_t send_in_place_offset = 0;
  std::uint64_t recv_in_place_offset = 0;
};

struct ExpectedBlock {
  std::uint64_t output_first = 0;
  std::uint64_t count = 0;
  int source_rank = reduced;      // whose input is copied, or
  std::uint64_t input_first = 0;  // first element of the inputs that make this block
  static constexpr int reduced = -1;
};

struct CallArguments {
  const void* send = nullptr;
  void* recv = nullptr;
  std::size_t count = 0;
  gyreDataType_t type = gyreFloat32;
  std::size_t element_bytes = 4;
  gyreRedOp_t op = gyreSum;
  int root = -1;
  int rank = 0, ranks = 1;
  int phase = 0;
  const Counts* counts = nullptr;  // of uneven collectives
  gyreComm_t comm = nullptr;
  gyreStream_t stream = nullptr;
};

// What `parts` calls, as one group; the first error.
template <gyreResult_t parts(const CallArguments&)>
gyreResult_t grouped(const CallArguments& call) {
  gyreResult_t result = gyreGroupStart();
  if (result != gyreSuccess) return result;
  result = parts(call);
  const gyreResult_t end = gyreGroupEnd();
  return result == gyreSuccess ? end : result;
}

struct CollectiveBenchmark {
  std::string_view program;         // "all_reduce_perf"
  std::string_view name;            // "AllReduce"
  std::string_view calls;           // "gyreAllReduce"
  std::string_view variables = {};  // --help on variables that only this program reads
  bool reduces = false;             // takes an operation
  bool rooted = false;              // takes a root
  bool same_everywhere = false;     // every rank gets the same output, and rounding must not differ
  bool in_place = true;             // has an in-place form
  bool uneven = false;              // sends blocks as a Traffic says
  bool powers_of_two = false;       // is defined for these numbers of ranks only
  BufferExtent (*extent)(const Shape& shape) = nullptr;
  // Bus bandwidth over algorithm bandwidth: what the busiest link carries for each byte counted.
  double (*bus_factor)(int ranks) = nullptr;
  // What the algorithm bandwidth counts of the size; all of it if absent.
  double (*counted)(int ranks) = nullptr;
  // Elements that `rank` sends, from the beginning of its send buffer; Extent::send if absent.
  std::uint64_t (*input)(const Shape& shape, const BufferExtent& extent, int rank) = nullptr;
  // What `rank` must have received, ascending. It must find all else in its buffer as it was.
  std::vector<ExpectedBlock> (*expected)(const Shape& shape, const BufferExtent& extent,
                                         int rank) = nullptr;
  // Calls that follow each other; those of one phase may be grouped. 1 if absent.
  int (*phases)(int ranks) = nullptr;
  gyreResult_t (*call)(const CallArguments& call) = nullptr;
};

// The blocks of a gather: `count` elements of each rank, in rank order.
std::vector<ExpectedBlock> gathered(int ranks, std::uint64_t count);

// The whole program: parses, runs, prints. Returns the exit code.
int run_benchmark(const CollectiveBenchmark& collective, int argc, char** argv);
// The same on another driver than the machine's: the tests'.
int run_benchmark(const CollectiveBenchmark& collective, int argc, char** argv,
                  const DriverSource& source);

}  // namespace gyre::bench
