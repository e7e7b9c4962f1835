// Options: declared, read one by one, then checked as a whole. See options.h.
#include "bench/runner/options.h"

#include "lib/command_line/command_line.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <optional>

namespace gyre::bench {
namespace {

constexpr int max_integer = std::numeric_limits<int>::max();

using namespace command_line;

// What the words fill; `finish` turns it into Options.
struct RawOptions {
  Options options;
  std::string op = "sum", type = "float", root = "0";
  int average = 1, blocking = 0, local_register = 0;
  std::string device = "auto", stream_null = "auto";
  int parallel_init = 0, cpu_time = 0, timestamps = 0, memory = 0, per_iteration = 0;
  int cta_policy = 0, device_implementation = 0, device_cta_count = 16;
};

// An option whose --help shows what holds without it.
template <typename Value>
Option& add_option(CommandLine& line, std::string_view names, Value& target, Form form,
                   std::string value, std::string meaning) {
  Option& option =
      line.add_option(names, target, std::move(form), std::move(value), std::move(meaning));
  option.default_text = fmt::format("{}", target);
  return option;
}

void add_integer(CommandLine& line, std::string_view names, int& target, int least, int most,
                 std::string meaning) {
  add_option(line, names, target, whole(least, most), most == 1 ? "0|1" : "INT",
             std::move(meaning));
}

void add_size(CommandLine& line, std::string_view names, std::uint64_t& target,
              std::string meaning) {
  line.add_option(names, target, size(), "SIZE", std::move(meaning)).default_text =
      fmt::format("{}M", target >> 20);
}

void add_rank_options(CommandLine& line, RawOptions& raw) {
  Options& o = raw.options;
  add_integer(line, "-t,--nthreads", o.threads, 1, 4096, "threads in each process");
  add_integer(line, "-g,--ngpus", o.ranks_per_thread, 1, 4096,
              "ranks in each thread, called in groups; on GPUs one after another, and round again");
  add_option(line, "--device", raw.device, one_of({"cuda", "host", "auto"}), "cuda|host|auto",
             "cuda: buffers in GPU memory; host; auto: as the library's default is");
  add_integer(line, "-p,--parallel_init", raw.parallel_init, 0, 1,
              "1: each thread makes its communicators itself");
  add_integer(line, "-T,--timeout", o.timeout_s, 0, 1 << 20,
              "seconds before a call fails, if GYRE_TIMEOUT does not say it; 0: 30 minutes");
}

void add_size_options(CommandLine& line, RawOptions& raw) {
  Options& o = raw.options;
  add_size(line, "-b,--minbytes", o.min_bytes, "smallest size (8, 1.5K, 32M, 1G)");
  add_size(line, "-e,--maxbytes", o.max_bytes, "largest size");
  add_size(line, "-i,--stepbytes", o.step_bytes, "increment between sizes");
  add_option(line, "-f,--stepfactor", o.step_factor, whole(1, 1 << 20), "INT",
             "factor between sizes; 1: use the increment");
}

void add_measure_options(CommandLine& line, RawOptions& raw) {
  Options& o = raw.options;
  add_integer(line, "-n,--iters", o.iterations, 1, max_integer, "timed iterations of each size");
  add_integer(line, "-m,--agg_iters", o.aggregated, 1, max_integer,
              "operations in one iteration, as a group");
  add_integer(line, "-w,--warmup_iters", o.warmup, 0, max_integer,
              "iterations of the warm-up sweep");
  add_integer(line, "-N,--run_cycles", o.cycles, 0, max_integer, "sweeps to run; 0: for ever");
  add_integer(line, "-a,--average", raw.average, 0, 3,
              "time over ranks: 0 of rank 0, 1 average, 2 minimum, 3 maximum");
  add_integer(line, "-z,--blocking", raw.blocking, 0, 3,
              "after each operation: 1 wait and barrier, 2 wait; 3 wait and an untimed barrier "
              "after each iteration");
  add_option(line, "-y,--stream_null", raw.stream_null, one_of({"0", "1", "auto"}), "0|1",
             "1: the calling thread does the work (the default on host memory), or the GPU's "
             "default stream; 0: a stream each (the default on GPUs)");
  add_integer(line, "-G,--cudagraph", o.graph_launches, 0, max_integer,
              "GPUs: capture the iterations as a CUDA graph and launch it so often; 0: no graph");
  add_integer(line, "-C,--report_cputime", raw.cpu_time, 0, 1,
              "1: time until the calls return, not until they are done");
  add_integer(line, "-R,--local_register", raw.local_register, 0, 2,
              "1: register the buffers; 2 (symmetric windows) is not supported");
  line.add_flag("--cold", o.cold,
                "move through buffers larger than the last-level cache, so that no iteration finds "
                "its data there");
  line.add_flag("--plain_memory", o.plain_memory,
                "host buffers from malloc, as a program for MPI has them; default: from "
                "gyreMemAlloc, which peers of the host reach directly");
}

std::vector<ElementType> all_types() {
  std::vector<ElementType> types;
  for (int i = 0; i < element_type_count; ++i) types.push_back(static_cast<ElementType>(i));
  return types;
}

// nccl-tests' order, then what only Gyre has.
std::vector<ReduceOp> all_ops() {
  return {ReduceOp::sum,         ReduceOp::prod, ReduceOp::max, ReduceOp::min, ReduceOp::avg,
          ReduceOp::pre_mul_sum, ReduceOp::band, ReduceOp::bor, ReduceOp::bxor};
}

// One of these names, or "all".
template <typename Value, typename NameOf>
Form one_or_all(const std::vector<Value>& values, NameOf name_of) {
  std::vector<std::string> names;
  for (const Value value : values) names.emplace_back(name_of(value));
  names.emplace_back("all");
  return one_of(names);
}

template <typename Value, typename NameOf>
std::vector<Value> chosen(const std::string& word, std::vector<Value> values, NameOf name_of) {
  if (word != "all") std::erase_if(values, [&](Value value) { return name_of(value) != word; });
  return values;
}

std::string check_root(const std::string& text) {
  return text == "all" ? "" : whole(0, max_integer)(text);
}

void add_data_options(CommandLine& line, RawOptions& raw) {
  Options& o = raw.options;
  add_option(line, "-o,--op", raw.op, one_or_all(all_ops(), op_name), "OP",
             "sum prod min max avg mulsum band bor bxor, or all");
  add_option(line, "-d,--datatype", raw.type, one_or_all(all_types(), element_name), "TYPE",
             "int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2, or "
             "all");
  add_option(line, "-r,--root", raw.root, check_root, "RANK",
             "root rank, or all (collectives with a root)");
  add_integer(line, "-c,--check", o.checks, 0, max_integer,
              "checked passes of each row, every element; 0: none");
  add_option(line, "-u,--unalign", o.unaligned_elements, whole(0, 4096), "INT",
             "begin the buffers at this element");
  add_option(line, "--seed", o.seed, whole(0), "INT", "seed of the random data");
}

void add_output_options(CommandLine& line, RawOptions& raw) {
  Options& o = raw.options;
  add_integer(line, "-I,--per_iter_timing", raw.per_iteration, 0, 1,
              "1: columns i_min i_max i_p99 i_cv% over the iterations");
  add_integer(line, "-K,--per_iter_skip", o.per_iteration_skip, 0, max_integer,
              "leading iterations that -I and --stats leave out");
  line.add_flag("--stats", o.stats, "columns min p50 p99 over the iterations");
  add_integer(line, "-S,--report_timestamps", raw.timestamps, 0, 1, "1: a time of day on each row");
  add_integer(line, "-M,--memory", raw.memory, 0, 1, "1: report the memory used");
  line.add_option("-J,--output_file", o.json_file, any_text(), "FILE",
                  "write the results as JSON to this new *.json file (a number is appended if it "
                  "exists)");
  line.add_option("--plot", o.plot_file, any_text(), "FILE.svg",
                  "draw latency and bus bandwidth over size into this file");
}

void add_neutral_options(CommandLine& line, RawOptions& raw) {
  const auto add_neutral = [&](std::string_view names, int& target, std::string meaning) {
    const std::string neutral = std::to_string(target);
    const Form only = [neutral](const std::string& text) {
      return text == neutral ? ""
                             : fmt::format("{} is not supported; {} is accepted", text, neutral);
    };
    line.add_option(names, target, only, "INT", meaning + ": " + neutral).heading =
        "Accepted with their neutral value only";
  };
  add_neutral("-x,--cta_policy", raw.cta_policy, "CTA policy");
  add_neutral("-D,--device_implementation", raw.device_implementation, "device kernels");
  add_neutral("-V,--device_cta_count", raw.device_cta_count, "CTAs of device kernels");
}

constexpr const char* footer_begin =
    "Ranks are processes x threads x ranks per thread. Processes come from a launcher (gyre run, "
    "mpirun, torchrun, srun); without one there is one process. On GPUs, the ranks of a host have "
    "its visible GPUs in turn; with more ranks than GPUs, several have one. Times are of the wall "
    "clock, from the first launch until the streams are done.\n"
    "\n"
    "Environment (GYRE_TESTS_ or NCCL_TESTS_ before the name; the library's own: gyre settings):\n"
    "  MIN_BW          fail if the average bus bandwidth is below 0.9 of this (GB/s)\n"
    "  SPLIT           separate groups of processes: AND, OR, MOD or DIV and a number\n"
    "                  (or & | % /)\n"
    "  SPLIT_MASK      separate groups by rank & this hexadecimal mask\n"
    "  DEVICE          the GPU of this process's first rank; the next ranks have the next GPUs\n";
constexpr const char* footer_end =
    "\n"
    "Exit codes: 0 all right; 1 wrong data or less than MIN_BW; 2 the command line is wrong;\n"
    "3 a call of Gyre failed.";

Status check_registration(const RawOptions& raw) {
  if (raw.local_register == 2)
    return invalid_argument(
        "-R 2: symmetric windows are not supported; on host memory the buffers come from "
        "gyreMemAlloc, which peers on this host map as they are");
  return {};
}

Status check_graph(const Options& o) {
  if (o.graph_launches == 0) return {};
  if (o.device == DeviceKind::host)
    return invalid_argument("-G: CUDA graphs are for GPUs; --device host has none");
  if (o.null_stream == NullStream::yes)
    return invalid_argument("-G with -y 1: the default stream cannot be captured; use -y 0");
  if (o.blocking != Blocking::none)
    return invalid_argument("-G with -z: nothing waits inside a graph; use -z 0");
  if (o.iteration_times())
    return invalid_argument(
        "-G with -I, --stats or --plot: iterations inside a graph have no times of their own");
  return {};
}

Status check_together(const Options& o) {
  GYRE_TRY(check_graph(o));
  if (o.min_bytes > o.max_bytes)
    return invalid_argument(
        fmt::format("-b {} is more than -e {} (bytes)", o.min_bytes, o.max_bytes));
  if (o.step_factor == 1 && o.step_bytes == 0 && o.max_bytes > o.min_bytes)
    return invalid_argument("-i 0 with -f 1 never reaches -e; give a step");
  if (o.step_factor > 1 && o.min_bytes == 0)
    return invalid_argument("-b 0 cannot be multiplied by -f; begin at 1 or use -i");
  const bool wait_each = o.blocking == Blocking::wait || o.blocking == Blocking::wait_and_barrier;
  if (o.aggregated > 1 && wait_each)
    return invalid_argument(
        "-z 1 and -z 2 wait after each operation, but those of a group (-m) end together; use -z "
        "3");
  if (o.per_iteration && o.stats)
    return invalid_argument("-I 1 and --stats show the same times in two ways; give one of them");
  if (o.per_iteration_skip > 0 && !o.per_iteration && !o.stats)
    return invalid_argument("-K needs -I 1 or --stats");
  if (o.per_iteration_skip >= o.iterations)
    return invalid_argument(
        fmt::format("-K {} leaves none of -n {} iterations", o.per_iteration_skip, o.iterations));
  if (!o.json_file.empty() && !o.json_file.ends_with(".json"))
    return invalid_argument(
        fmt::format("-J {}: only names ending in .json are known", o.json_file));
  if (!o.plot_file.empty() && !o.plot_file.ends_with(".svg"))
    return invalid_argument(
        fmt::format("--plot {}: only names ending in .svg are known", o.plot_file));
  return {};
}

Result<Options> finish(const RawOptions& raw) {
  GYRE_TRY(check_registration(raw));
  Options o = raw.options;
  o.parallel_init = raw.parallel_init == 1;
  o.average = static_cast<Average>(raw.average);
  o.blocking = static_cast<Blocking>(raw.blocking);
  o.device = raw.device == "host"   ? DeviceKind::host
             : raw.device == "cuda" ? DeviceKind::cuda
                                    : DeviceKind::as_library;
  if (raw.stream_null != "auto")
    o.null_stream = raw.stream_null == "1" ? NullStream::yes : NullStream::no;
  o.local_register = raw.local_register == 1;
  o.cpu_time = raw.cpu_time == 1;
  o.timestamps = raw.timestamps == 1;
  o.memory = raw.memory == 1;
  o.per_iteration = raw.per_iteration == 1;
  o.types = chosen(raw.type, all_types(), element_name);
  o.ops = chosen(raw.op, all_ops(), op_name);
  o.root = raw.root == "all" ? Options::every_root : static_cast<int>(read_whole(raw.root));
  GYRE_TRY(check_together(o));
  return o;
}

}  // namespace

Result<ParsedCommand> parse_command(const std::string& program,
                                    const std::vector<std::string>& arguments,
                                    std::string_view more_variables) {
  RawOptions raw;
  CommandLine line(program,
                   "Measures and checks a collective, with the options and the table of "
                   "nccl-tests.");
  line.take_beginnings();  // as getopt_long does
  add_rank_options(line, raw);
  add_size_options(line, raw);
  add_measure_options(line, raw);
  add_data_options(line, raw);
  add_output_options(line, raw);
  add_neutral_options(line, raw);
  line.add_example(program + " -t 2 -b 8 -e 64M -f 2");
  line.add_example("gyre run -n 4 " + program + " -b 1M -e 1M -d bfloat16");
  line.set_footer(fmt::format("{}{}{}", footer_begin, more_variables, footer_end));
  if (std::optional<EarlyEnd> end = line.read(arguments)) {
    if (!end->is_help) return invalid_argument(std::move(end->text));
    return ParsedCommand{.options = {}, .help = std::move(end->text)};
  }
  GYRE_ASSIGN(Options options, finish(raw));
  return ParsedCommand{.options = std::move(options), .help = {}};
}

std::vector<std::uint64_t> sweep_sizes(const Options& options) {
  std::vector<std::uint64_t> sizes;
  std::uint64_t size = options.min_bytes;
  while (size <= options.max_bytes) {
    sizes.push_back(size);
    const std::uint64_t next =
        options.step_factor > 1 ? size * options.step_factor : size + options.step_bytes;
    if (next <= size) break;
    size = next;
  }
  return sizes;
}

std::vector<std::uint64_t> warmup_sizes(const Options& options) {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t size = options.min_bytes; size <= options.max_bytes; size *= 2) {
    sizes.push_back(size);
    if (size == 0) break;
  }
  return sizes;
}

}  // namespace gyre::bench
