// The benchmarks' uneven traffic: nccl-tests' formula, matrices from files, and refused input.
#include "bench/runner/collective.h"
#include "bench/runner/traffic.h"
#include "tests/support/catch.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <numeric>
#include <unistd.h>

namespace bench_traffic_test {

using namespace gyre;
using namespace gyre::bench;

namespace {

Shape bytes_of(std::uint64_t bytes, int ranks, std::uint32_t element_bytes = 1) {
  return {.count = bytes / element_bytes, .element_bytes = element_bytes, .ranks = ranks};
}

Traffic parsed(const std::string& text, double scale = 1) {
  Result<Traffic> traffic = Traffic::parse(text, scale, "matrix");
  INFO(text << ": " << traffic.status().message());
  REQUIRE(traffic.ok());
  return *traffic;
}

std::string refused(const std::string& text, double scale = 1) {
  Result<Traffic> traffic = Traffic::parse(text, scale, "matrix");
  INFO(text);
  REQUIRE_FALSE(traffic.ok());
  return std::string(traffic.status().message());
}

std::vector<std::uint64_t> line(const Traffic& traffic, const Shape& shape, int from) {
  std::vector<std::uint64_t> sizes;
  for (int to = 0; to < shape.ranks; ++to) sizes.push_back(traffic.elements(shape, from, to));
  return sizes;
}

// A variable of the tests for the time of a scope.
struct Variable {
  std::string name;
  Variable(const std::string& short_name, const std::string& value)
      : name("GYRE_TESTS_ALLTOALLV_" + short_name) {
    setenv(name.c_str(), value.c_str(), 1);
  }
  ~Variable() { unsetenv(name.c_str()); }
};

}  // namespace

TEST_CASE("a size divided among ranks is cut to 16 bytes for each") {
  CHECK(equal_share(bytes_of(64, 2)) == 32);
  CHECK(equal_share(bytes_of(63, 2)) == 16);
  CHECK(equal_share(bytes_of(31, 2)) == 0);
  CHECK(equal_share(bytes_of(1000, 3, 4)) == 80);
  CHECK(equal_share(bytes_of(1000, 3, 8)) == 40);
  CHECK(equal_share(bytes_of(100, 1, 2)) == 48);
}

TEST_CASE("generated traffic grows with the distance, and is the same from every rank") {
  const Traffic far(1);
  // 4 ranks: distances 1, 2, 3 of 6 in all.
  CHECK(line(far, bytes_of(6144, 4), 0) == std::vector<std::uint64_t>{0, 1024, 2048, 3072});
  CHECK(line(far, bytes_of(6144, 4), 3) == std::vector<std::uint64_t>{1024, 2048, 3072, 0});
  CHECK(line(far, bytes_of(6144, 4, 8), 1) == std::vector<std::uint64_t>{384, 0, 128, 256});
  CHECK(line(Traffic(0), bytes_of(4096, 4), 2) == std::vector<std::uint64_t>(4, 1024));
  CHECK(line(Traffic(0.5), bytes_of(6144, 4), 0) ==
        std::vector<std::uint64_t>{768, 1280, 1792, 2304});
  CHECK(line(far, bytes_of(100, 1), 0) == std::vector<std::uint64_t>{96});
}

TEST_CASE("whatever the traffic, what is sent is what is received, at offsets that follow") {
  const Traffic kinds[] = {Traffic(1), Traffic(0.3),
                           parsed("0 64 800 16\n0 0 0 0\n32 48 64 80\n160 0 0 1600\n")};
  for (const Traffic& traffic : kinds)
    for (const std::uint32_t size : {1U, 2U, 4U, 8U}) {
      const Shape shape = bytes_of(4096, 4, size);
      std::uint64_t sent = 0, received = 0;
      for (int rank = 0; rank < shape.ranks; ++rank) {
        const Counts counts = traffic.counts(shape, rank);
        sent += traffic.sent(shape, rank);
        received += traffic.received(shape, rank);
        CHECK(std::accumulate(counts.send.begin(), counts.send.end(), std::uint64_t{0}) ==
              traffic.sent(shape, rank));
        CHECK(std::accumulate(counts.recv.begin(), counts.recv.end(), std::uint64_t{0}) ==
              traffic.received(shape, rank));
        std::size_t before = 0;
        for (int peer = 0; peer < shape.ranks; ++peer) {
          const auto i = static_cast<std::size_t>(peer);
          CHECK(counts.send[i] == traffic.counts(shape, peer).recv[static_cast<std::size_t>(rank)]);
          CHECK(counts.send_displacements[i] == traffic.send_offset(shape, rank, peer));
          CHECK(counts.recv_displacements[i] == before);
          before += counts.recv[i];
        }
      }
      CHECK(sent == received);
      CHECK(sent > 0);
    }
}

TEST_CASE("a matrix is bytes, scaled and cut to 16, of which the first ranks are used") {
  const Traffic traffic = parsed("100 200 150\n\n  50\t100 75.9\n300 150 200");
  CHECK_FALSE(traffic.generated());
  CHECK(line(traffic, bytes_of(1 << 20, 3), 0) == std::vector<std::uint64_t>{96, 192, 144});
  CHECK(line(traffic, bytes_of(0, 3), 1) == std::vector<std::uint64_t>{48, 96, 64});
  CHECK(line(traffic, bytes_of(0, 2, 4), 1) == std::vector<std::uint64_t>{12, 24});
  CHECK(line(parsed("10 20\n30 1e3", 2.5), bytes_of(0, 2), 1) ==
        std::vector<std::uint64_t>{64, 2496});
  CHECK(line(parsed("7", 0), bytes_of(0, 1), 0) == std::vector<std::uint64_t>{0});
}

TEST_CASE("what is no square matrix of bytes is refused with its place") {
  const std::map<std::string, std::string> cases = {
      {"", "empty"},           {"\n \n", "empty"},
      {"1 2\n3", "row 1"},     {"1 2\n3 4\n5 6", "3 rows of 2 columns"},
      {"1 2\n3 x", "\"x\""},   {"1 2\n3 -4", "row 1, column 1"},
      {"1 4K\n3 4", "\"4K\""}, {"nan", "\"nan\""},
      {"inf", "\"inf\""},      {"1e30", "\"1e30\""}};
  for (const auto& [text, expected] : cases) {
    INFO(text);
    CHECK(refused(text).find(expected) != std::string::npos);
  }
  CHECK(refused("1e18", 1e6).find("1e18") != std::string::npos);
}

TEST_CASE("a matrix must have room, one size and a line for each rank") {
  const Traffic traffic = parsed("0 160\n320 480");  // rank 1 sends 800
  CHECK(traffic.fits(2, 800, 800).ok());
  CHECK(traffic.fits(1, 800, 800).ok());
  const auto reason = [&](int ranks, std::uint64_t least, std::uint64_t most) {
    return std::string(traffic.fits(ranks, least, most).message());
  };
  CHECK(reason(2, 799, 799).find("800 bytes") != std::string::npos);
  CHECK(reason(2, 400, 800).find("-b 400") != std::string::npos);
  CHECK(reason(3, 800, 800).find("3 ranks") != std::string::npos);
  // The column can be the fuller side.
  CHECK_FALSE(parsed("0 160\n0 160").fits(2, 319, 319).ok());
  CHECK(parsed("0 160\n0 160").fits(2, 320, 320).ok());
  CHECK(Traffic(1).fits(64, 8, 1 << 20).ok());
}

TEST_CASE("the variables choose spread, matrix and scale, and are read whole") {
  CHECK(line(*Traffic::from_environment(), bytes_of(6144, 4), 0)[0] == 0);
  {
    const Variable spread("SPREAD", "0");
    CHECK(line(*Traffic::from_environment(), bytes_of(4096, 4), 0)[0] == 1024);
  }
  for (const char* bad : {"", "x", "0.5x", "-1", "1.5", "nan"}) {
    const Variable spread("SPREAD", bad);
    INFO(bad);
    CHECK_FALSE(Traffic::from_environment().ok());
  }
  char path[] = "/tmp/gyre-bench-traffic-XXXXXX";
  close(mkstemp(path));
  std::ofstream(path) << "16 32\n48 64\n";
  {
    const Variable file("MATRIX_FILE", path), scale("MATRIX_SCALE", "2");
    CHECK(line(*Traffic::from_environment(), bytes_of(0, 2), 1) ==
          std::vector<std::uint64_t>{96, 128});
  }
  unlink(path);
  const Variable file("MATRIX_FILE", path);
  const Result<Traffic> missing = Traffic::from_environment();
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.status().message().find(path) != std::string::npos);
}

TEST_CASE("the summary shows each rank's bytes, and is wanted by 0 or 1 alone") {
  CHECK_FALSE(*summary_wanted());
  {
    const Variable summary("PRINT_SUMMARY", "1");
    CHECK(*summary_wanted());
  }
  {
    const Variable summary("PRINT_SUMMARY", "yes");
    CHECK_FALSE(summary_wanted().ok());
  }
  const Shape shape = bytes_of(0, 2, 4);
  const auto lines = parsed("0 160\n320 480").summary(shape, 1e-6);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] ==
        "GYRE_TESTS_ALLTOALLV_PRINT_SUMMARY: mode=matrix nranks=2 matrix_dim=2 "
        "scale=1.000 time_usec=1.00");
  CHECK(lines[1] == "  rank=0 send_bytes=160 recv_bytes=320 alg_bw=0.32 bus_bw=0.16");
  CHECK(lines[2] == "  rank=1 send_bytes=800 recv_bytes=640 alg_bw=0.80 bus_bw=0.40");
  CHECK(Traffic(1).summary(bytes_of(6144, 4), 0)[0] ==
        "GYRE_TESTS_ALLTOALLV_PRINT_SUMMARY: mode=generated nranks=4 total_bytes=6144 "
        "spread=1.000 time_usec=0.00");
}

}  // namespace bench_traffic_test
