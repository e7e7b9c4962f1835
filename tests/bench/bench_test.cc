// The benchmarks' command line: every spelling of nccl-tests, and which options are refused with
// which message. No communicator is made here.
#include "bench/runner/options.h"
#include "bench/runner/ranks.h"
#include "tests/support/catch.h"

#include <functional>
#include <iterator>
#include <map>
#include <sstream>

namespace bench_test {

using namespace gyre;
using namespace gyre::bench;

namespace {

std::vector<std::string> words(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()};
}

Result<ParsedCommand> parse(const std::string& line) {
  return parse_command("all_reduce_perf", words(line));
}

Options accepted(const std::string& line) {
  Result<ParsedCommand> parsed = parse(line);
  INFO(line << ": " << parsed.status().message());
  REQUIRE(parsed.ok());
  return parsed->options;
}

std::string refused(const std::string& line) {
  Result<ParsedCommand> parsed = parse(line);
  INFO(line);
  REQUIRE_FALSE(parsed.ok());
  return std::string(parsed.status().message());
}

}  // namespace

// ---- the command line

TEST_CASE("without options the values are those of nccl-tests") {
  const Options o = accepted("");
  CHECK(o.threads == 1);
  CHECK(o.ranks_per_thread == 1);
  CHECK(o.min_bytes == 32 << 20);
  CHECK(o.max_bytes == 32 << 20);
  CHECK(o.step_bytes == 1 << 20);
  CHECK(o.step_factor == 1);
  CHECK(o.iterations == 20);
  CHECK(o.warmup == 1);
  CHECK(o.aggregated == 1);
  CHECK(o.cycles == 1);
  CHECK(o.checks == 1);
  CHECK(o.ops == std::vector{ReduceOp::sum});
  CHECK(o.types == std::vector{ElementType::float32});
  CHECK(o.root == 0);
  CHECK(o.average == Average::mean);
  CHECK(o.blocking == Blocking::none);
  CHECK(o.unaligned_elements == 0);
  CHECK_FALSE(o.parallel_init);
  CHECK_FALSE(o.cpu_time);
  CHECK_FALSE(o.local_register);
  CHECK_FALSE(o.per_iteration);
}

TEST_CASE("every spelling of an option of nccl-tests sets the same value") {
  struct Case {
    char letter;
    std::string name, value;
    std::function<bool(const Options&)> holds;
  };
  const Case cases[] = {
      {'t', "nthreads", "3", [](const Options& o) { return o.threads == 3; }},
      {'g', "ngpus", "4", [](const Options& o) { return o.ranks_per_thread == 4; }},
      {'b', "minbytes", "1.5K", [](const Options& o) { return o.min_bytes == 1536; }},
      {'e', "maxbytes", "1g", [](const Options& o) { return o.max_bytes == 1 << 30; }},
      {'i', "stepbytes", "7", [](const Options& o) { return o.step_bytes == 7; }},
      {'f', "stepfactor", "2", [](const Options& o) { return o.step_factor == 2; }},
      {'n', "iters", "50", [](const Options& o) { return o.iterations == 50; }},
      {'m', "agg_iters", "5", [](const Options& o) { return o.aggregated == 5; }},
      {'w', "warmup_iters", "0", [](const Options& o) { return o.warmup == 0; }},
      {'N', "run_cycles", "0", [](const Options& o) { return o.cycles == 0; }},
      {'p', "parallel_init", "1", [](const Options& o) { return o.parallel_init; }},
      {'c', "check", "0", [](const Options& o) { return o.checks == 0; }},
      {'o', "op", "mulsum",
       [](const Options& o) { return o.ops == std::vector{ReduceOp::pre_mul_sum}; }},
      {'d', "datatype", "bfloat16",
       [](const Options& o) { return o.types == std::vector{ElementType::bfloat16}; }},
      {'r', "root", "all", [](const Options& o) { return o.root == Options::every_root; }},
      {'z', "blocking", "3",
       [](const Options& o) { return o.blocking == Blocking::barrier_untimed; }},
      {'y', "stream_null", "0", [](const Options& o) { return o.null_stream == NullStream::no; }},
      {'T', "timeout", "30", [](const Options& o) { return o.timeout_s == 30; }},
      {'C', "report_cputime", "1", [](const Options& o) { return o.cpu_time; }},
      {'S', "report_timestamps", "1", [](const Options& o) { return o.timestamps; }},
      {'J', "output_file", "a.json", [](const Options& o) { return o.json_file == "a.json"; }},
      {'a', "average", "3", [](const Options& o) { return o.average == Average::most; }},
      {'R', "local_register", "1", [](const Options& o) { return o.local_register; }},
      {'M', "memory", "1", [](const Options& o) { return o.memory; }},
      {'u', "unalign", "3", [](const Options& o) { return o.unaligned_elements == 3; }},
      {'I', "per_iter_timing", "1", [](const Options& o) { return o.per_iteration; }},
      {'G', "cudagraph", "7", [](const Options& o) { return o.graph_launches == 7; }},
      {'x', "cta_policy", "0", [](const Options&) { return true; }},
      {'D', "device_implementation", "0", [](const Options&) { return true; }},
      {'V', "device_cta_count", "16", [](const Options&) { return true; }},
  };
  for (const Case& c : cases) {
    INFO("-" << c.letter);
    CHECK(c.holds(accepted(std::string("-") + c.letter + " " + c.value)));
    CHECK(c.holds(accepted(std::string("-") + c.letter + c.value)));
    CHECK(c.holds(accepted("--" + c.name + " " + c.value)));
    CHECK(c.holds(accepted("--" + c.name + "=" + c.value)));
  }
  CHECK(accepted("-K 3 -I 1").per_iteration_skip == 3);
  CHECK(accepted("--per_iter_skip 3 --stats").per_iteration_skip == 3);
}

TEST_CASE("where the buffers lie is said in words") {
  CHECK(accepted("--device host").device == DeviceKind::host);
  CHECK(accepted("--device cuda").device == DeviceKind::cuda);
  CHECK(accepted("--device auto").device == DeviceKind::as_library);
}

TEST_CASE("long names may be cut and options repeated, as getopt allows") {
  CHECK(accepted("--minb 8").min_bytes == 8);
  CHECK(accepted("--minb=8").min_bytes == 8);
  CHECK(accepted("-n 3 -n 4").iterations == 4);
  CHECK(refused("--per_iter 1").find("--per_iter") != std::string::npos);  // two begin so
}

TEST_CASE("an unknown or misspelt word is answered with the nearest one") {
  const std::map<std::string, std::string> cases = {{"--itres 5", "--iters"},
                                                    {"--max_bytes=5", "--maxbytes"},
                                                    {"--datatpye half", "--datatype"},
                                                    {"-d flaot", "float"},
                                                    {"-o summ", "sum"},
                                                    {"-d bfloa16", "bfloat16"},
                                                    {"-q 5", "there is no option -q"}};
  for (const auto& [line, expected] : cases) {
    INFO(line);
    CHECK(refused(line).find(expected) != std::string::npos);
  }
}

TEST_CASE("values that mean nothing are refused, with the option's name") {
  const std::map<std::string, std::string> cases = {
      {"-b 8X", "-b"},
      {"-b -8", "-b"},
      {"-e ''", "-e"},
      {"-n 0", "-n: 0 is not from 1"},
      {"--iters ten", "--iters: ten is not a number"},
      {"-b 64 -e 8", "-b 64"},
      {"-a 4", "-a: 4 is not from 0 to 3"},
      {"--blocking=4", "--blocking: 4"},
      {"-r -1", "-r"},
      {"-K 20 -I 1", "-K 20"},
      {"-K 1", "-K"},
      {"-J a.txt", "-J a.txt"},
      {"-I 1 --stats", "-I"},
      {"-G 5 --device host", "-G"},
      {"-G 5 -z 1", "-G with -z"},
      {"-G 5 -y 1", "-G with -y 1"},
      {"-G 5 -I 1", "-G with -I"},
      {"--device gpu", "--device"},
      {"-y 2", "-y: 2"},
      {"-x 2", "-x: 2 is not supported; 0 is accepted"},
      {"-x", "-x needs a value"},
      {"-D 1", "-D"},
      {"-V 8", "-V"},
      {"-R 2", "-R"},
      {"-m 2 -z 1", "-z"},
      {"--plot a.png", "a.png"},
      {"-i 0 -b 1 -e 9", "-i 0"}};
  for (const auto& [line, expected] : cases) {
    INFO(line);
    CHECK(refused(line).find(expected) != std::string::npos);
  }
}

TEST_CASE("all means every type, and every operation in nccl-tests' order first") {
  CHECK(accepted("-d all").types.size() == element_type_count);
  const std::vector<ReduceOp> ops = accepted("-o all").ops;
  REQUIRE(ops.size() == reduce_op_count);
  CHECK(std::vector(ops.begin(), ops.begin() + 6) ==
        std::vector{ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min, ReduceOp::avg,
                    ReduceOp::pre_mul_sum});
}

TEST_CASE("help names every option and the exit codes") {
  const std::string help = parse("-h")->help;
  for (const std::string& letter :
       words("t g b e i f n m w N p I K c o d r z y T h G C a R x D V J S M u"))
    CHECK(help.find("-" + letter + ", --") != std::string::npos);
  for (const char* name :
       {"--stats", "--cold", "--plain_memory", "--plot", "--seed", "Exit codes", "MIN_BW", "SPLIT"})
    CHECK(help.find(name) != std::string::npos);
  CHECK(parse("--help")->help == help);
}

TEST_CASE("the sweep multiplies or adds, and always contains its ends' lower one") {
  CHECK(sweep_sizes(accepted("-b 8 -e 64 -f 2")) == std::vector<std::uint64_t>{8, 16, 32, 64});
  CHECK(sweep_sizes(accepted("-b 8 -e 70 -f 3")) == std::vector<std::uint64_t>{8, 24});
  CHECK(sweep_sizes(accepted("-b 0 -e 20 -i 10")) == std::vector<std::uint64_t>{0, 10, 20});
  CHECK(sweep_sizes(accepted("-b 5 -e 5")) == std::vector<std::uint64_t>{5});
  CHECK(warmup_sizes(accepted("-b 8 -e 70 -f 3")) == std::vector<std::uint64_t>{8, 16, 32, 64});
  CHECK(warmup_sizes(accepted("-b 0 -e 20 -i 10")) == std::vector<std::uint64_t>{0});
}

TEST_CASE("processes are split into groups as the variables say") {
  const auto color = [](const char* text, int process) {
    return parse_split(text, process).ok() ? *parse_split(text, process) : -1;
  };
  CHECK(color("AND 1", 3) == 1);
  CHECK(color("&2", 3) == 2);
  CHECK(color("or4", 1) == 5);
  CHECK(color("MOD 3", 5) == 2);
  CHECK(color("% 3", 4) == 1);
  CHECK(color("/2", 5) == 2);
  CHECK(color("div 0", 5) == -1);
  CHECK(color("AND", 5) == -1);
  CHECK(color("XOR 2", 5) == -1);
}

}  // namespace bench_test
