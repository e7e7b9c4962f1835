// The benchmarks' runner: what its command line means, what it prints, column for column, and that
// its checks find wrong data. No communicator is made here.
#include "bench/runner/check.h"
#include "bench/runner/json.h"
#include "bench/runner/machine.h"
#include "bench/runner/options.h"
#include "bench/runner/plot.h"
#include "bench/runner/table.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <unistd.h>

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
      {'y', "stream_null", "0", [](const Options& o) { return !o.null_stream; }},
      {'T', "timeout", "30", [](const Options& o) { return o.timeout_s == 30; }},
      {'C', "report_cputime", "1", [](const Options& o) { return o.cpu_time; }},
      {'S', "report_timestamps", "1", [](const Options& o) { return o.timestamps; }},
      {'J', "output_file", "a.json", [](const Options& o) { return o.json_file == "a.json"; }},
      {'a', "average", "3", [](const Options& o) { return o.average == Average::most; }},
      {'R', "local_register", "1", [](const Options& o) { return o.local_register; }},
      {'M', "memory", "1", [](const Options& o) { return o.memory; }},
      {'u', "unalign", "3", [](const Options& o) { return o.unaligned_elements == 3; }},
      {'I', "per_iter_timing", "1", [](const Options& o) { return o.per_iteration; }},
      {'G', "cudagraph", "0", [](const Options&) { return true; }},
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
                                                    {"-q 5", "-q is not an option"}};
  for (const auto& [line, expected] : cases) {
    INFO(line);
    CHECK(refused(line).find(expected) != std::string::npos);
  }
}

TEST_CASE("values that mean nothing are refused, with the option's name") {
  const std::map<std::string, std::string> cases = {{"-b 8X", "-b"},
                                                    {"-b -8", "-b"},
                                                    {"-e ''", "-e"},
                                                    {"-n 0", "iters"},
                                                    {"-n ten", "iters"},
                                                    {"-b 64 -e 8", "-b 64"},
                                                    {"-a 4", "average"},
                                                    {"-z 4", "blocking"},
                                                    {"-r -1", "-r"},
                                                    {"-K 20 -I 1", "-K 20"},
                                                    {"-K 1", "-K"},
                                                    {"-J a.txt", "-J a.txt"},
                                                    {"-I 1 --stats", "-I"},
                                                    {"-G 5", "-G"},
                                                    {"-x 2", "-x"},
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
    CHECK(help.find("-" + letter + ",--") != std::string::npos);
  for (const char* name :
       {"--stats", "--cold", "--plot", "--seed", "Exit codes", "MIN_BW", "SPLIT"})
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

// ---- the table

namespace {

Row sample_row() {
  Row row;
  row.bytes = 1048576;
  row.count = 262144;
  row.type = ElementType::float32;
  row.op = ReduceOp::sum;
  row.out_of_place.time_us = 123.456;
  row.out_of_place.algorithm_bandwidth = 8.4937;
  row.out_of_place.bus_bandwidth = 12.74;
  row.out_of_place.wrong = 0;
  row.in_place.time_us = 1234567.8;
  row.in_place.algorithm_bandwidth = 1234.5678;
  row.in_place.bus_bandwidth = 0.001;
  row.in_place.wrong = 1234567;
  const std::vector<double> times = {4, 1, 3, 2};
  for (Placement* placement : {&row.out_of_place, &row.in_place}) {
    placement->iteration_us = times;
    placement->statistics = summarize(times);
  }
  return row;
}

}  // namespace

TEST_CASE("a row of the table is what nccl-tests prints") {
  CHECK(row_line(accepted(""), sample_row(), "") ==
        "     1048576        262144     float     sum      -1   123.46    8.49   12.74       0"
        "  1234568  1234.6    0.00  1.23457e+06\n");
  Row unchecked = sample_row();
  unchecked.out_of_place.wrong.reset();
  unchecked.in_place.wrong.reset();
  CHECK(row_line(accepted("-S 1"), unchecked, "2025-01-31 12:00:00") ==
        "     1048576        262144     float     sum      -1   123.46    8.49   12.74    N/A"
        "  1234568  1234.6    0.00    N/A  2025-01-31 12:00:00\n");
}

TEST_CASE("the header and the footer are what nccl-tests prints") {
  CHECK(column_header(accepted("")) ==
        "#\n"
        "#                                                              out-of-place             "
        "          in-place          \n"
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong   "
        "  time   algbw   busbw  #wrong \n"
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)           "
        "  (us)  (GB/s)  (GB/s)         \n");
  CHECK(opening(accepted("-b 8 -e 64M -f 2 -t 2 -c 3"), "all_reduce_perf", 100, 10203) ==
        "# gyre version 1.2.3 gyre-headers=100 gyre-library=10203\n"
        "# Collective test starting: all_reduce_perf\n"
        "# nThread 2 nGpus 1 minBytes 8 maxBytes 67108864 step: 2(factor) warmup iters: 1 iters: "
        "20 agg iters: 1 validation: 3 graph: 0 unalign: 0\n"
        "#\n"
        "# Using devices\n");
  CHECK(seat_line({.rank = 1, .group = 0, .pid = 1234, .host = "node"}) ==
        "#  Rank  1 Group  0 Pid   1234 on       node device  0 [0000:00:00] host memory\n");
  CHECK(closing({.failed_checks = 0, .average_bus_bandwidth = 1.5}, "all_reduce_perf") ==
        "# Out of bounds values : 0 OK\n"
        "# Avg bus bandwidth    : 1.5 \n"
        "#\n"
        "# Collective test concluded: all_reduce_perf\n");
  CHECK(closing({.failed_checks = 2, .average_bus_bandwidth = 1.5, .least_bandwidth = 9}, "x") ==
        "# Out of bounds values : 2 FAILED\n"
        "# Avg bus bandwidth    : 1.5 FAILED\n"
        "#\n"
        "# Collective test concluded: x\n");
}

TEST_CASE("columns stand under their headings, whatever is asked for") {
  for (const char* line : {"", "-I 1", "--stats", "-C 1", "-I 1 -S 1", "--stats -S 1"}) {
    INFO(line);
    const Options options = accepted(line);
    std::istringstream header(column_header(options));
    std::string skipped, halves, names;
    std::getline(header, skipped);
    std::getline(header, halves);
    std::getline(header, names);
    std::string row = row_line(options, sample_row(), "2025-01-31 12:00:00");
    row.pop_back();
    // The row's last number is wider than its column: six digits must not hide a disaster.
    const std::size_t wider = row.find("1.23457e+06");
    REQUIRE(wider != std::string::npos);
    row.replace(wider, 11, "999999");
    while (!names.empty() && names.back() == ' ') names.pop_back();
    // nccl-tests sets a time of day one column further right than its heading.
    CHECK(row.size() == names.size() + (options.timestamps ? 1 : 0));
    // "#" is a word of the heading only; a time of day is two words.
    CHECK(words(row).size() == words(names).size() - 1 + (options.timestamps ? 1 : 0));
  }
}

TEST_CASE("numbers keep as many decimals as fit their column") {
  CHECK(number_text(0.456, 7) == "   0.46");
  CHECK(number_text(9999.994, 7) == "9999.99");
  CHECK(number_text(12345.67, 7) == "12345.7");
  CHECK(number_text(99999.99, 7) == " 100000");
  CHECK(number_text(12345678, 7) == "1.2e+07");
  CHECK(number_text(1234567, 6) == " 1e+06");
}

TEST_CASE("a run fails on wrong data and below nine tenths of the bandwidth asked for") {
  CHECK(Verdict{.failed_checks = 0, .average_bus_bandwidth = 0}.good());
  CHECK_FALSE(Verdict{.failed_checks = 1, .average_bus_bandwidth = 5}.good());
  CHECK(Verdict{.average_bus_bandwidth = 9.1, .least_bandwidth = 10}.good());
  CHECK_FALSE(Verdict{.average_bus_bandwidth = 8.9, .least_bandwidth = 10}.good());
}

// ---- files

namespace {

struct Folder {
  std::string path;
  Folder() {
    char name[] = "/tmp/gyre-bench-test-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() {
    for (const std::string& file : files) unlink(file.c_str());
    rmdir(path.c_str());
  }
  std::string file(const std::string& name) {
    files.push_back(path + "/" + name);
    return files.back();
  }
  std::vector<std::string> files;
};

std::set<std::string> keys(const nlohmann::json& object) {
  std::set<std::string> names;
  for (const auto& [name, value] : object.items()) names.insert(name);
  return names;
}

}  // namespace

TEST_CASE("the JSON file has the keys and kinds of nccl-tests, and its values") {
  Folder folder;
  const std::string path = folder.file("out.json");
  const Options options = accepted("-I 1 -b 8 -e 64M -f 2");
  auto report = JsonReport::create(path, {"all_reduce_perf", "-I", "1"}, 100);
  REQUIRE(report.ok());
  (*report)->configuration(options, {{.rank = 0, .group = 0, .pid = 9, .host = "node"}});
  Row row = sample_row();
  row.in_place.wrong.reset();
  row.out_of_place.process_iteration_us = {{4, 1}, {3, 2}};
  (*report)->add(options, row);
  (*report)->conclude({.failed_checks = 0, .average_bus_bandwidth = 1.5});
  REQUIRE((*report)->write().ok());
  const nlohmann::json read = nlohmann::json::parse(std::ifstream(path));

  CHECK(keys(read) == std::set<std::string>{"version", "start_time", "args", "env", "nccl_version",
                                            "config", "results", "out_of_bounds",
                                            "average_bus_bandwidth", "errors", "end_time"});
  CHECK(keys(read["config"]) ==
        std::set<std::string>{"nthreads", "ngpus", "minimum_bytes", "maximum_bytes", "step_factor",
                              "warmup_iters", "iterations", "aggregated_iterations", "validation",
                              "graph", "blocking_collectives", "per_iter_timing", "per_iter_skip",
                              "parallel_init", "devices"});
  CHECK(read["config"]["devices"][0] == nlohmann::json({{"rank", 0},
                                                        {"group", 0},
                                                        {"pid", 9},
                                                        {"hostname", "node"},
                                                        {"device", 0},
                                                        {"device_hex", "0000:00:00"},
                                                        {"device_info", "host memory"}}));
  const nlohmann::json& result = read["results"][0];
  CHECK(keys(result) == std::set<std::string>{"size", "count", "type", "redop", "root",
                                              "out_of_place", "out_of_place_per_iter", "in_place",
                                              "in_place_per_iter", "actual_iterations",
                                              "experiment_name"});
  CHECK(result["size"] == 1048576);
  CHECK(result["root"] == "    -1");
  CHECK(
      result["out_of_place"] ==
      nlohmann::json({{"time", 123.456}, {"alg_bw", 8.4937}, {"bus_bw", 12.74}, {"nwrong", 0.0}}));
  CHECK(result["in_place"]["nwrong"].is_null());
  CHECK(keys(result["in_place_per_iter"]) ==
        std::set<std::string>{"skipped_iterations", "min_us", "max_us", "avg_us", "p50_us",
                              "p95_us", "p99_us", "stdev_us", "cv_pct", "times_us"});
  CHECK(result["out_of_place_per_iter"]["per_process_max_times_us"][1][0] == 3);
  CHECK(read["out_of_bounds"] == nlohmann::json({{"count", 0}, {"okay", "true"}}));
  CHECK(read["average_bus_bandwidth"]["okay"] == "unchecked");
}

TEST_CASE("an existing JSON file is never written over") {
  Folder folder;
  const std::string path = folder.file("out.json");
  std::ofstream(path) << "mine";
  folder.file("out.json.0");
  folder.file("out.json.1");
  auto first = JsonReport::create(path, {}, 100);
  auto second = JsonReport::create(path, {}, 100);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  CHECK((*first)->path() == path + ".0");
  CHECK((*second)->path() == path + ".1");
  std::string content;
  std::ifstream(path) >> content;
  CHECK(content == "mine");
  CHECK_FALSE(JsonReport::create(folder.path + "/missing/out.json", {}, 100).ok());
}

TEST_CASE("the JSON file keeps variables of other programs to itself") {
  Folder folder;
  setenv("GYRE_TESTS_MIN_BW", "3", 1);
  setenv("SOME_PASSWORD", "hunter2", 1);
  auto report = JsonReport::create(folder.file("out.json"), {}, 100);
  const std::string text = (*report)->document().dump();
  unsetenv("GYRE_TESTS_MIN_BW");
  unsetenv("SOME_PASSWORD");
  CHECK(text.find("GYRE_TESTS_MIN_BW=3") != std::string::npos);
  CHECK(text.find("hunter2") == std::string::npos);
}

TEST_CASE("the plot has one line for each type, operation and placement, and stays in its frame") {
  std::vector<Row> rows;
  for (std::uint64_t bytes = 8; bytes <= 1 << 20; bytes *= 4) {
    Row row = sample_row();
    row.bytes = bytes;
    row.out_of_place.statistics.p50 = static_cast<double>(bytes) / 100 + 1;
    rows.push_back(row);
  }
  const std::vector<PlotLine> lines = plot_lines(rows);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].name == "float sum, out of place");
  CHECK(lines[0].points.size() == rows.size());
  const std::string svg = plot_svg("a < b", lines);
  CHECK(svg.find("a &lt; b") != std::string::npos);
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(svg.find("inf") == std::string::npos);
  std::size_t circles = 0;
  for (std::size_t at = svg.find("cx=\""); at != svg.npos; at = svg.find("cx=\"", at + 1)) {
    const double x = std::strtod(svg.c_str() + at + 4, nullptr);
    const double y = std::strtod(svg.c_str() + svg.find("cy=\"", at) + 4, nullptr);
    CHECK((x >= 0 && x <= 960));
    CHECK((y >= 0 && y <= 400));
    ++circles;
  }
  CHECK(circles == 4 * rows.size());
  CHECK(plot_svg("empty", {}).find("</svg>") != std::string::npos);
}

TEST_CASE("the largest size leaves a sixteenth of the memory, and never more than there is") {
  const std::uint64_t gib = 1ULL << 30;
  CHECK(largest_size(16 * gib, 16 * gib, 2, 2) == 15 * gib / 4);
  CHECK(largest_size(200 * gib, 200 * gib, 1, 2) == 98 * gib);
  CHECK(largest_size(gib / 2, 16 * gib, 1, 2) == 0);
}
