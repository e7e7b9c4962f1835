// Options: declared with CLI11, then checked as a whole. See options.h.
#include "bench/runner/options.h"

#include "lib/base/settings.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

namespace gyre::bench {
namespace {

constexpr int max_integer = std::numeric_limits<int>::max();

// What CLI11 fills; `finish` turns it into Options.
struct RawOptions {
  Options options;
  std::string min_bytes = "32M", max_bytes = "32M", step_bytes = "1M";
  std::string op = "sum", type = "float", root = "0";
  int average = 1, blocking = 0, local_register = 0;
  std::string device = "auto", stream_null = "auto";
  int parallel_init = 0, cpu_time = 0, timestamps = 0, memory = 0, per_iteration = 0;
  int cta_policy = 0, device_implementation = 0, device_cta_count = 16;
};

// A Range without its own text in --help.
template <typename Value>
CLI::Validator between(Value least, Value most) {
  return CLI::Range(least, most).description("");
}

CLI::Option* integer(CLI::App& app, const std::string& names, int& value, int least, int most,
                     const std::string& meaning) {
  return app.add_option(names, value, meaning)
      ->check(between(least, most))
      ->type_name(most == 1 ? "0|1" : "INT");
}

void add_rank_options(CLI::App& app, RawOptions& raw) {
  Options& o = raw.options;
  integer(app, "-t,--nthreads", o.threads, 1, 4096, "threads in each process");
  integer(app, "-g,--ngpus", o.ranks_per_thread, 1, 4096,
          "ranks in each thread, called in groups; on GPUs one after another, and round again");
  app.add_option("--device", raw.device,
                 "cuda: buffers in GPU memory; host; auto: as the library's default is")
      ->check(CLI::IsMember({"auto", "cuda", "host"}).description(""))
      ->type_name("cuda|host|auto");
  integer(app, "-p,--parallel_init", raw.parallel_init, 0, 1,
          "1: each thread makes its communicators itself");
  integer(app, "-T,--timeout", o.timeout_s, 0, 1 << 20,
          "seconds before a call fails, if GYRE_TIMEOUT does not say it; 0: 30 minutes");
}

void add_size_options(CLI::App& app, RawOptions& raw) {
  Options& o = raw.options;
  app.add_option("-b,--minbytes", raw.min_bytes, "smallest size (8, 1.5K, 32M, 1G)")
      ->type_name("SIZE");
  app.add_option("-e,--maxbytes", raw.max_bytes, "largest size")->type_name("SIZE");
  app.add_option("-i,--stepbytes", raw.step_bytes, "increment between sizes")->type_name("SIZE");
  app.add_option("-f,--stepfactor", o.step_factor, "factor between sizes; 1: use the increment")
      ->check(between(1, 1 << 20))
      ->type_name("INT");
}

void add_measure_options(CLI::App& app, RawOptions& raw) {
  Options& o = raw.options;
  integer(app, "-n,--iters", o.iterations, 1, max_integer, "timed iterations of each size");
  integer(app, "-m,--agg_iters", o.aggregated, 1, max_integer,
          "operations in one iteration, "
          "as a group");
  integer(app, "-w,--warmup_iters", o.warmup, 0, max_integer, "iterations of the warm-up sweep");
  integer(app, "-N,--run_cycles", o.cycles, 0, max_integer, "sweeps to run; 0: for ever");
  integer(app, "-a,--average", raw.average, 0, 3,
          "time over ranks: 0 of rank 0, 1 average, 2 minimum, 3 maximum");
  integer(app, "-z,--blocking", raw.blocking, 0, 3,
          "after each operation: 1 wait and barrier, 2 wait; 3 wait and an untimed barrier after "
          "each iteration");
  app.add_option("-y,--stream_null", raw.stream_null,
                 "1: the calling thread does the work (the default on host memory), or the GPU's "
                 "default stream; 0: a stream each (the default on GPUs)")
      ->check(CLI::IsMember({"auto", "0", "1"}).description(""))
      ->type_name("0|1");
  integer(app, "-G,--cudagraph", o.graph_launches, 0, max_integer,
          "GPUs: capture the iterations as a CUDA graph and launch it so often; 0: no graph");
  integer(app, "-C,--report_cputime", raw.cpu_time, 0, 1,
          "1: time until the calls return, not until they are done");
  integer(app, "-R,--local_register", raw.local_register, 0, 2,
          "1: register the buffers; 2 (symmetric windows) is not supported");
  app.add_flag("--cold", o.cold,
               "move through buffers larger than the last-level cache, so that no iteration finds "
               "its data there");
  app.add_flag("--plain_memory", o.plain_memory,
               "host buffers from malloc, as a program for MPI has them; default: from "
               "gyreMemAlloc, which peers of the host reach directly");
}

void add_data_options(CLI::App& app, RawOptions& raw) {
  Options& o = raw.options;
  app.add_option("-o,--op", raw.op, "sum prod min max avg mulsum band bor bxor, or all")
      ->type_name("OP");
  app.add_option("-d,--datatype", raw.type,
                 "int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2, "
                 "or all")
      ->type_name("TYPE");
  app.add_option("-r,--root", raw.root, "root rank, or all (collectives with a root)")
      ->type_name("RANK");
  integer(app, "-c,--check", o.checks, 0, max_integer,
          "checked passes of each row, every element; 0: none");
  app.add_option("-u,--unalign", o.unaligned_elements, "begin the buffers at this element")
      ->check(between(0, 4096))
      ->type_name("INT");
  app.add_option("--seed", o.seed, "seed of the random data")->type_name("INT");
}

void add_output_options(CLI::App& app, RawOptions& raw) {
  Options& o = raw.options;
  integer(app, "-I,--per_iter_timing", raw.per_iteration, 0, 1,
          "1: columns i_min i_max i_p99 i_cv% over the iterations");
  integer(app, "-K,--per_iter_skip", o.per_iteration_skip, 0, max_integer,
          "leading iterations that -I and --stats leave out");
  app.add_flag("--stats", o.stats, "columns min p50 p99 over the iterations");
  integer(app, "-S,--report_timestamps", raw.timestamps, 0, 1, "1: a time of day on each row");
  integer(app, "-M,--memory", raw.memory, 0, 1, "1: report the memory used");
  app.add_option("-J,--output_file", o.json_file,
                 "write the results as JSON to this new *.json file (a number is appended if it "
                 "exists)")
      ->type_name("FILE");
  app.add_option("--plot", o.plot_file, "draw latency and bus bandwidth over size into this file")
      ->type_name("FILE.svg");
}

void add_neutral_options(CLI::App& app, RawOptions& raw) {
  const std::string group = "Accepted with their neutral value only";
  app.add_option("-x,--cta_policy", raw.cta_policy, "CTA policy: 0")->group(group);
  app.add_option("-D,--device_implementation", raw.device_implementation, "device kernels: 0")
      ->group(group);
  app.add_option("-V,--device_cta_count", raw.device_cta_count, "CTAs of device kernels: 16")
      ->group(group);
}

constexpr const char* footer_begin =
    "Ranks are processes x threads x ranks per thread. Processes come from a launcher (gyre run,\n"
    "mpirun, torchrun, srun); without one there is one process. On GPUs, the ranks of a host have\n"
    "its visible GPUs in turn; with more ranks than GPUs, several have one. Times are of the wall\n"
    "clock, from the first launch until the streams are done.\n"
    "\n"
    "Environment (GYRE_TESTS_ or NCCL_TESTS_ before the name; the library's own: gyre settings):\n"
    "  MIN_BW          fail if the average bus bandwidth is below 0.9 of this (GB/s)\n"
    "  SPLIT           separate groups of processes: AND, OR, MOD or DIV and a number (or & | % "
    "/)\n"
    "  SPLIT_MASK      separate groups by rank & this hexadecimal mask\n"
    "  DEVICE          the GPU of this process's first rank; the next ranks have the next GPUs\n";
constexpr const char* footer_end =
    "\n"
    "Exit codes: 0 all right; 1 wrong data or less than MIN_BW; 2 the command line is wrong;\n"
    "3 a call of Gyre failed.";

// getopt_long takes any unique beginning of a long name. Others are left as they are.
std::string complete_name(const CLI::App& app, const std::string& argument) {
  if (!argument.starts_with("--") || argument.size() < 3) return argument;
  const std::size_t end = std::min(argument.find('='), argument.size());
  const std::string name = argument.substr(2, end - 2);
  std::vector<std::string> found;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& known : option->get_lnames()) {
      if (known == name) return argument;
      if (known.starts_with(name)) found.push_back(known);
    }
  return found.size() == 1 ? "--" + found[0] + argument.substr(end) : argument;
}

Status unknown_argument(const CLI::App& app, const std::string& argument) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& known : option->get_lnames()) names.push_back("--" + known);
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string word = argument.substr(0, argument.find('='));
  const std::string_view near = word.starts_with("--") ? nearest(word, views) : "";
  return invalid_argument(near.empty()
                              ? fmt::format("{} is not an option; see --help", argument)
                              : fmt::format("{} is not an option; did you mean {}?", word, near));
}

template <typename Value, typename NameOf>
Result<std::vector<Value>> choose(const char* option, const std::string& word,
                                  const std::vector<Value>& all, NameOf name_of) {
  if (word == "all") return all;
  std::vector<std::string_view> names;
  for (const Value value : all) {
    if (name_of(value) == word) return std::vector<Value>{value};
    names.push_back(name_of(value));
  }
  names.push_back("all");
  const std::string_view near = nearest(word, names);
  return invalid_argument(
      near.empty() ? fmt::format("{} {}: must be one of {}", option, word, fmt::join(names, " "))
                   : fmt::format("{} {}: did you mean {}?", option, word, near));
}

Result<std::uint64_t> size_of(const char* option, const std::string& text, std::int64_t least) {
  Result<std::int64_t> bytes = parse_size(text, least, 1LL << 50);
  if (!bytes.ok()) return std::move(bytes).status().while_doing(option);
  return static_cast<std::uint64_t>(*bytes);
}

Status check_neutral(const RawOptions& raw) {
  const auto only = [](const char* option, int value, int neutral) {
    if (value == neutral) return Status();
    return invalid_argument(
        fmt::format("{} {}: is not supported; {} is accepted", option, value, neutral));
  };
  GYRE_TRY(only("-x/--cta_policy", raw.cta_policy, 0));
  GYRE_TRY(only("-D/--device_implementation", raw.device_implementation, 0));
  GYRE_TRY(only("-V/--device_cta_count", raw.device_cta_count, 16));
  if (raw.local_register == 2)
    return invalid_argument(
        "-R/--local_register 2: symmetric windows are not supported; on host memory the buffers "
        "come from gyreMemAlloc, which peers on this host map as they are");
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
  GYRE_TRY(check_neutral(raw));
  Options o = raw.options;
  GYRE_ASSIGN(o.min_bytes, size_of("-b/--minbytes", raw.min_bytes, 0));
  GYRE_ASSIGN(o.max_bytes, size_of("-e/--maxbytes", raw.max_bytes, 0));
  GYRE_ASSIGN(o.step_bytes, size_of("-i/--stepbytes", raw.step_bytes, 0));
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
  std::vector<ElementType> types;
  for (int i = 0; i < element_type_count; ++i) types.push_back(static_cast<ElementType>(i));
  GYRE_ASSIGN(o.types, choose("-d/--datatype", raw.type, types, element_name));
  // nccl-tests' order, then what only Gyre has.
  const std::vector<ReduceOp> ops = {ReduceOp::sum,  ReduceOp::prod, ReduceOp::max,
                                     ReduceOp::min,  ReduceOp::avg,  ReduceOp::pre_mul_sum,
                                     ReduceOp::band, ReduceOp::bor,  ReduceOp::bxor};
  GYRE_ASSIGN(o.ops, choose("-o/--op", raw.op, ops, op_name));
  if (raw.root == "all") {
    o.root = Options::every_root;
  } else {
    Result<std::int64_t> root = parse_integer(raw.root, 0, max_integer);
    if (!root.ok()) return std::move(root).status().while_doing("-r/--root");
    o.root = static_cast<int>(*root);
  }
  GYRE_TRY(check_together(o));
  return o;
}

}  // namespace

Result<ParsedCommand> parse_command(const std::string& program,
                                    const std::vector<std::string>& arguments,
                                    std::string_view more_variables) {
  RawOptions raw;
  CLI::App app("Measures and checks a collective, with the options and the table of nccl-tests.",
               program);
  app.set_help_flag("-h,--help", "print this and stop");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.option_defaults()->always_capture_default();
  app.footer(fmt::format("{}{}{}", footer_begin, more_variables, footer_end));
  app.allow_extras();
  add_rank_options(app, raw);
  add_size_options(app, raw);
  add_measure_options(app, raw);
  add_data_options(app, raw);
  add_output_options(app, raw);
  add_neutral_options(app, raw);

  std::vector<std::string> reversed;  // CLI11 takes arguments from the back
  for (const std::string& argument : arguments) reversed.push_back(complete_name(app, argument));
  std::reverse(reversed.begin(), reversed.end());
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    return ParsedCommand{.options = {}, .help = app.help()};
  } catch (const CLI::ParseError& error) {
    return invalid_argument(error.what());
  }
  if (app.remaining_size() > 0) return unknown_argument(app, app.remaining().front());
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
