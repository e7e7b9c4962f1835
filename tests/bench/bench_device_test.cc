// The benchmarks' runner on CUDA devices, over the fake driver: what a perf program does from its
// command line to its exit code, read back from its JSON file.
#include "bench/runner/collective.h"
#include "bench/runner/table.h"
#include "lib/comm/process.h"
#include "tests/support/catch.h"
#include "tests/support/comm/ranks.h"
#include "tests/support/fake_cuda/fake_cuda.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <unistd.h>

namespace bench_device_test {

using namespace gyre;
using namespace gyre::bench;
using namespace gyre::tests;

namespace {

BufferExtent same_extent(const Shape& shape) {
  return {.send = shape.count, .recv = shape.count, .param = shape.count};
}
std::vector<ExpectedBlock> whole(const Shape&, const BufferExtent& extent, int) {
  return {{.output_first = 0, .count = extent.recv, .source_rank = ExpectedBlock::reduced}};
}
gyreResult_t all_reduce(const CallArguments& call) {
  return gyreAllReduce(call.send, call.recv, call.count, call.type, call.op, call.comm,
                       call.stream);
}
// Of one element less, so that the last one stays as it was.
gyreResult_t short_all_reduce(const CallArguments& call) {
  return gyreAllReduce(call.send, call.recv, call.count - 1, call.type, call.op, call.comm,
                       call.stream);
}

BufferExtent gather_extent(const Shape& shape) {
  const std::uint64_t share = equal_share(shape);
  return {.send = share,
          .recv = share * static_cast<std::uint64_t>(shape.ranks),
          .param = share,
          .send_in_place_offset = share};
}
std::vector<ExpectedBlock> gathered_blocks(const Shape& shape, const BufferExtent& extent, int) {
  return gathered(shape.ranks, extent.send);
}
gyreResult_t all_gather(const CallArguments& call) {
  return gyreAllGather(call.send, call.recv, call.count, call.type, call.comm, call.stream);
}

constexpr CollectiveBenchmark reduces = {.program = "all_reduce_perf",
                                         .name = "AllReduce",
                                         .calls = "gyreAllReduce",
                                         .reduces = true,
                                         .same_everywhere = true,
                                         .extent = same_extent,
                                         .bus_factor = whole_size,
                                         .expected = whole,
                                         .call = all_reduce};
constexpr CollectiveBenchmark gathers = {.program = "all_gather_perf",
                                         .name = "AllGather",
                                         .calls = "gyreAllGather",
                                         .extent = gather_extent,
                                         .bus_factor = without_own_share,
                                         .expected = gathered_blocks,
                                         .call = all_gather};

struct Outcome {
  int code = -1;
  nlohmann::json document;
};

// A machine with a fake driver and small slots, and a perf program on it.
class BenchOnFake {
 public:
  explicit BenchOnFake(const FakeCudaOptions& options = {}, Variables variables = {})
      : fake(options), variables_(with_small_slots(std::move(variables))) {
    comm::process().use_cuda(fake.library_table(), FakeCuda::images());
  }
  ~BenchOnFake() {
    comm::process().use_cuda(nullptr, {});
    CHECK(fake.failure() == "");
    CHECK(fake.leaks() == "");
    std::filesystem::remove(file_);
  }

  Outcome run(const CollectiveBenchmark& collective, const std::string& line) {
    std::filesystem::remove(file_);
    std::istringstream stream(std::string(collective.program) + " -J " + file_ + " " + line);
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    Outcome outcome;
    outcome.code = run_benchmark(
        collective, static_cast<int>(arguments.size()), arguments.data(),
        [this]() -> Result<std::unique_ptr<const loaded::CudaDriver>> { return fake.table(); });
    std::ifstream file(file_);
    outcome.document = nlohmann::json::parse(file, nullptr, false);
    return outcome;
  }

  FakeCuda fake;

 private:
  static Variables with_small_slots(Variables variables) {
    variables.emplace("GYRE_BUFFSIZE", "4096");
    return variables;
  }
  WithVariables variables_;
  const std::string file_ =
      std::filesystem::temp_directory_path() / fmt::format("gyre_bench_device_{}.json", getpid());
};

void check_right(const Outcome& outcome, std::size_t rows) {
  INFO(outcome.document.dump(1));
  CHECK(outcome.code == 0);
  REQUIRE(outcome.document["results"].size() == rows);
  for (const auto& row : outcome.document["results"]) {
    CHECK(row["out_of_place"]["nwrong"] == 0);
    CHECK(row["in_place"]["nwrong"] == 0);
    CHECK(row["out_of_place"]["time"] > 0);
  }
}

std::vector<int> devices_of(const Outcome& outcome) {
  std::vector<int> found;
  for (const auto& seat : outcome.document["config"]["devices"]) found.push_back(seat["device"]);
  return found;
}

}  // namespace

TEST_CASE("threads and groups of ranks measure and check device memory", "[device]") {
  const std::string ranks = GENERATE("-g 2", "-t 2", "-t 2 -p 1", "-g 2 -t 2");
  BenchOnFake on;
  const Outcome outcome = on.run(reduces, ranks + " -b 4 -e 40000 -f 100 -n 2");
  check_right(outcome, 3);
  CHECK(on.fake.launches() > 0);
  CHECK(outcome.document["config"]["devices"][0]["device_info"] == "Fake 0");
  CHECK(outcome.document["config"]["devices"][0]["device_hex"] == "0000:10:00");
}

TEST_CASE("a captured graph of the iterations is launched as often as asked", "[device]") {
  BenchOnFake on;
  const Outcome outcome = on.run(reduces, "-g 2 -b 4K -e 4K -n 3 -m 2 -G 4 -c 2");
  check_right(outcome, 1);
  CHECK(outcome.document["config"]["graph"] == 4);
}

TEST_CASE("blocks of an all-gather are found in place on a device", "[device]") {
  BenchOnFake on;
  check_right(on.run(gathers, "-g 3 -b 1K -e 12K -f 12 -n 1 -d int8 -u 3"), 2);
}

TEST_CASE("options of the timing keep their meaning on a device", "[device]") {
  const std::string more = GENERATE("-z 1", "-z 2", "-z 3", "-I 1 -n 3", "-M 1", "-o mulsum",
                                    "-R 1", "--cold", "-d half -o avg");
  BenchOnFake on({.memory_bytes = 1 << 30});
  check_right(on.run(reduces, "-g 2 -b 2K -e 2K -n 2 " + more), 1);
}

TEST_CASE("ranks have the visible devices in turn, from the one that a variable names",
          "[device]") {
  {
    BenchOnFake on({.devices = 2});
    CHECK(devices_of(on.run(reduces, "-g 3 -b 64 -e 64 -n 1")) == std::vector{0, 1, 0});
  }
  BenchOnFake on({.devices = 2}, {{"NCCL_TESTS_DEVICE", "1"}});
  CHECK(devices_of(on.run(reduces, "-g 2 -b 64 -e 64 -n 1")) == std::vector{1, 0});
}

TEST_CASE("one rank alone may use the device's default stream, two on a device may not",
          "[device]") {
  BenchOnFake on({.devices = 2});
  CHECK(on.run(reduces, "-g 2 -b 64 -e 64 -n 1 -y 1").code == 0);
  CHECK(on.run(reduces, "-g 3 -b 64 -e 64 -n 1 -y 1").code == 2);
}

TEST_CASE("host memory is used where it is asked for, and graphs are refused there", "[device]") {
  BenchOnFake on;
  check_right(on.run(reduces, "--device host -g 2 -b 64 -e 64 -n 1"), 1);
  CHECK(on.fake.launches() == 0);
  check_right(on.run(reduces, "--device host -g 2 -b 64 -e 64 -n 1 --plain_memory"), 1);
  CHECK(on.run(reduces, "-g 2 -b 64 -e 64 -n 1 --plain_memory").code == 2);
  // No kernels: the library's default is the host.
  comm::process().use_cuda(on.fake.library_table(), {});
  CHECK(on.run(reduces, "-g 2 -b 64 -e 64 -n 1 -G 2").code == 2);
  check_right(on.run(reduces, "-g 2 -b 64 -e 64 -n 1"), 1);
  CHECK(on.run(reduces, "--device cuda -g 2 -b 64 -e 64 -n 1").code == 3);
}

TEST_CASE("an element that no kernel wrote is counted wrong", "[device]") {
  CollectiveBenchmark spoilt = reduces;
  spoilt.call = short_all_reduce;
  BenchOnFake on;
  const Outcome outcome = on.run(spoilt, "-g 2 -b 64 -e 64 -n 1");
  CHECK(outcome.code == 1);
  CHECK(outcome.document["results"][0]["out_of_place"]["nwrong"] == 2);  // one of each rank
}

TEST_CASE("buffers are cut to what the device has room for", "[device]") {
  BenchOnFake on({.memory_bytes = 256 << 20});
  const Outcome outcome = on.run(reduces, "-b 1G -e 1G -n 1 -c 0 -w 0");
  INFO(outcome.document.dump(1));
  CHECK(outcome.code == 0);
  REQUIRE(outcome.document["results"].size() == 1);
  CHECK(outcome.document["results"][0]["size"] < 128 << 20);
}

TEST_CASE("without memory on the device a run ends with the driver's words", "[device]") {
  BenchOnFake on;
  CHECK(on.run(reduces, "-t 2 -b 64 -e 64 -n 1").code == 0);
  const int before = on.fake.allocations();
  CHECK(on.run(reduces, "-t 2 -b 64 -e 64 -n 1").code == 0);
  const int all = on.fake.allocations() - before;
  for (int failing = 1; failing <= all; ++failing) {
    INFO("allocation " << failing << " of " << all);
    on.fake.fail_allocation(failing);
    CHECK(on.run(reduces, "-t 2 -b 64 -e 64 -n 1").code == 3);
    on.fake.fail_allocation(0);
  }
  CHECK(on.run(reduces, "-t 2 -b 64 -e 64 -n 1").code == 0);
}

TEST_CASE("the header tells of ranks that share a GPU, and of processes that take turns") {
  const auto seat = [](int rank, int pid, const char* uuid, bool mps) {
    return Seat{
        .rank = rank,
        .pid = pid,
        .host = "node",
        .device = {
            .ordinal = 0, .shares_by_mps = mps, .bus = "0000:19:00", .name = "H", .uuid = uuid}};
  };
  const auto lines = [](std::vector<Seat> seats) { return sharing_lines(seats); };
  CHECK(lines({seat(0, 1, "a", false), seat(1, 1, "b", false)}) == "");
  CHECK(lines({seat(0, 1, "", false), seat(1, 1, "", false)}) == "");
  CHECK(lines({seat(0, 1, "a", false), seat(1, 1, "b", false), seat(2, 1, "a", false)}) ==
        "#  Ranks 0 2 share the GPU [0000:19:00] of node\n");
  CHECK(lines({seat(0, 1, "a", false), seat(1, 2, "a", false)}) ==
        "#  Ranks 0 1 share the GPU [0000:19:00] of node; without MPS their 2 processes take turns "
        "on it, and times include the waiting\n");
  CHECK(lines({seat(0, 1, "a", true), seat(1, 2, "a", true)}) ==
        "#  Ranks 0 1 share the GPU [0000:19:00] of node; MPS runs the kernels of their 2 "
        "processes side by side\n");
  CHECK(seat_line(seat(3, 77, "a", false)) ==
        "#  Rank  3 Group  0 Pid     77 on       node device  0 [0000:19:00] H\n");
}

}  // namespace bench_device_test
