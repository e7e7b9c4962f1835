// What the benchmarks print and write: the table column for column, the JSON file key for key, the
// plot. No communicator is made here.
#include "bench/runner/json.h"
#include "bench/runner/machine.h"
#include "bench/runner/options.h"
#include "bench/runner/plot.h"
#include "bench/runner/table.h"
#include "tests/support/catch.h"

#include <nlohmann/json.hpp>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <unistd.h>

namespace bench_report_test {

using namespace gyre;
using namespace gyre::bench;

namespace {

std::vector<std::string> words(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()};
}

Options accepted(const std::string& line) {
  Result<ParsedCommand> parsed = parse_command("all_reduce_perf", words(line));
  INFO(line << ": " << parsed.status().message());
  REQUIRE(parsed.ok());
  return parsed->options;
}

}  // namespace

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
  row.in_place.emplace();
  row.in_place->time_us = 1234567.8;
  row.in_place->algorithm_bandwidth = 1234.5678;
  row.in_place->bus_bandwidth = 0.001;
  row.in_place->wrong = 1234567;
  const std::vector<double> times = {4, 1, 3, 2};
  for (Placement* placement : {&row.out_of_place, &*row.in_place}) {
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
  unchecked.in_place->wrong.reset();
  CHECK(row_line(accepted("-S 1"), unchecked, "2025-01-31 12:00:00") ==
        "     1048576        262144     float     sum      -1   123.46    8.49   12.74    N/A"
        "  1234568  1234.6    0.00    N/A  2025-01-31 12:00:00\n");
}

TEST_CASE("a half that a collective does not have is N/A in every column") {
  Row row = sample_row();
  row.in_place.reset();
  CHECK(row_line(accepted(""), row, "") ==
        "     1048576        262144     float     sum      -1   123.46    8.49   12.74       0"
        "      N/A     N/A     N/A    N/A\n");
  for (const char* line : {"", "-I 1", "--stats", "-S 1"}) {
    const Options options = accepted(line);
    Row whole = sample_row();
    whole.in_place->wrong.reset();
    CHECK(row_line(options, row, "12:00").size() == row_line(options, whole, "12:00").size());
    CHECK(words(row_line(options, row, "12:00")).size() ==
          words(row_line(options, whole, "12:00")).size());
  }
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
  CHECK(closing({.failed_checks = 2, .average_bus_bandwidth = 1.5, .min_bandwidth = 9}, "x") ==
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
  CHECK(RunVerdict{.failed_checks = 0, .average_bus_bandwidth = 0}.good());
  CHECK_FALSE(RunVerdict{.failed_checks = 1, .average_bus_bandwidth = 5}.good());
  CHECK(RunVerdict{.average_bus_bandwidth = 9.1, .min_bandwidth = 10}.good());
  CHECK_FALSE(RunVerdict{.average_bus_bandwidth = 8.9, .min_bandwidth = 10}.good());
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
  row.in_place->wrong.reset();
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
                              "parallel_init", "plain_memory", "devices"});
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

TEST_CASE("a half that a collective does not have keeps its keys in JSON, without values") {
  Folder folder;
  for (const char* line : {"", "-I 1", "-C 1"}) {
    const Options options = accepted(line);
    auto report = JsonReport::create(folder.file(std::string("out.json") + line), {}, 100);
    REQUIRE(report.ok());
    (*report)->configuration(options, {});
    Row row = sample_row();
    row.in_place.reset();
    (*report)->add(options, row);
    const nlohmann::json result = (*report)->document()["results"][0];
    CHECK(keys(result["in_place"]) == keys(result["out_of_place"]));
    for (const auto& [name, value] : result["in_place"].items()) CHECK(value.is_null());
    CHECK(result.contains("in_place_per_iter") == result.contains("out_of_place_per_iter"));
  }
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

TEST_CASE("the largest size leaves a sixteenth of the memory, or half where little is left") {
  const std::uint64_t gib = 1ULL << 30;
  CHECK(largest_size(16 * gib, 16 * gib, 2, 2) == 15 * gib / 4);
  CHECK(largest_size(200 * gib, 200 * gib, 1, 2) == 98 * gib);
  CHECK(largest_size(gib, 16 * gib, 1, 2) == gib / 4);
  CHECK(largest_size(0, 16 * gib, 1, 2) == UINT64_MAX);
}

}  // namespace bench_report_test
