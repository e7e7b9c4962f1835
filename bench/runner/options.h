// Options: the command line of a perf program. Spellings, values and defaults are those of
// nccl-tests 2.19.6 (getopt: -b 8, -b8, --minbytes 8, --minbytes=8, unique prefixes of long names);
// options beyond it have long names only. Nothing is ignored: an option that is not supported, or
// has no meaning on host memory, is accepted with its neutral value and refused with any other.
#pragma once

#include "lib/base/element.h"
#include "lib/base/status.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::bench {

enum class Average { rank0, mean, least, most };

// What -z asks for between the collectives.
enum class Blocking { none, wait_and_barrier, wait, barrier_untimed };

// Where the buffers lie; as_library: where a communicator puts itself that is not told.
enum class DeviceKind { as_library, host, cuda };

// Whether operations are queued on no stream, or the device's default one.
enum class NullStream { as_usual, yes, no };

struct Options {
  int threads = 1;
  int ranks_per_thread = 1;
  bool parallel_init = false;
  DeviceKind device = DeviceKind::as_library;

  std::uint64_t min_bytes = 32ULL << 20;
  std::uint64_t max_bytes = 32ULL << 20;
  std::uint64_t step_bytes = 1ULL << 20;
  std::uint64_t step_factor = 1;  // above 1: the steps multiply

  int iterations = 20;
  int warmup = 1;
  int aggregated = 1;  // operations in a group
  int cycles = 1;      // 0: for ever
  Average average = Average::mean;
  Blocking blocking = Blocking::none;
  NullStream null_stream = NullStream::as_usual;  // yes on the host, no on a device
  int graph_launches = 0;                         // of a captured loop; 0: no CUDA graph
  bool local_register = false;
  bool cold = false;
  bool plain_memory = false;  // host buffers from malloc
  int timeout_s = 0;          // 0: the library's

  std::vector<ElementType> types = {ElementType::float32};
  std::vector<ReduceOp> ops = {ReduceOp::sum};
  int root = 0;
  static constexpr int every_root = -1;
  std::uint64_t unaligned_elements = 0;
  int checks = 1;
  std::uint64_t seed = 1;

  bool cpu_time = false;
  bool timestamps = false;
  bool memory = false;
  bool per_iteration = false;  // -I: four columns
  int per_iteration_skip = 0;
  bool stats = false;  // --stats: three columns
  std::string json_file;
  std::string plot_file;

  bool iteration_times() const { return per_iteration || stats || !plot_file.empty(); }
};

struct ParsedCommand {
  Options options;
  std::string help;  // not empty: print this and stop
};

// `arguments` without the program's name. `more_variables`: lines for --help on variables that only
// this program reads.
Result<ParsedCommand> parse_command(const std::string& program,
                                    const std::vector<std::string>& arguments,
                                    std::string_view more_variables = "");

// The sizes of the table, ascending.
std::vector<std::uint64_t> sweep_sizes(const Options& options);
// The sizes of the warm-up sweep: always doubling.
std::vector<std::uint64_t> warmup_sizes(const Options& options);

}  // namespace gyre::bench
