// The kernels of bench/gpu on the simulated device: the kernels that gpu_moves times give the same
// results as the ones that it compares them with.
#include "bench/gpu/bare_moves.h"
#include "bench/gpu/straight_ring.h"
#include "bench/gpu/timing.h"
#include "tests/support/catch.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/kernels/device_job.h"

#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <unistd.h>

namespace bench_kernels_test {

using namespace gyre;
using namespace gyre::tests;

namespace {
using FloatSum = cuda::Reducer<cuda::Float32, cuda::Sum>;
}

TEST_CASE("the ring that is written out gives the interpreter's bits, whatever the schedule") {
  const std::uint64_t seed = GENERATE(range(1, 13));
  DeviceCase one;
  one.count = seed % 2 == 0 ? 2048 : 1001;
  one.channels = seed % 3 == 0 ? 2 : 1;
  one.shift = seed % 4 == 1 ? 4 : 0;
  one.direct = seed % 4 >= 2;
  one.in_place = seed % 5 == 0;
  DeviceJob job(one);
  for (int call = 0; call < 2; ++call) {
    job.begin();
    std::vector<Grid> grids;
    for (const cuda::DeviceLaunch& launch : job.launches())
      grids.push_back({static_cast<int>(launch.rank), one.channels, one.threads,
                       [&launch] { bench::straight_ring<FloatSum>(launch); }});
    INFO(one.shown() << ", seed " << seed << ", call " << call);
    MachineOptions how;
    how.seed = seed;
    CHECK(run_grids(grids, how) == "");
    CHECK(job.compare() == "");
  }
}

TEST_CASE("bare moves copy and add every byte once") {
  constexpr std::size_t count = 5003;
  alignas(16) static float a[count], b[count], out[count];
  std::iota(std::begin(a), std::end(a), 1.0F);
  std::iota(std::begin(b), std::end(b), 7.0F);
  std::fill(std::begin(out), std::end(out), -1.0F);
  const bool reduces = GENERATE(false, true);
  bench::BareMove on;
  on.launch.input = reinterpret_cast<const std::byte*>(a);
  on.launch.output = reinterpret_cast<std::byte*>(out);
  on.launch.type = ElementType::float32;
  on.launch.element_bytes = 4;
  on.second = reinterpret_cast<const std::byte*>(b);
  on.bytes = sizeof a;
  on.piece_bytes = 4096;
  const std::string report = run_grids({{0, 3, 64,
                                         [&] {
                                           if (reduces)
                                             bench::bare_moves<FloatSum, true>(on);
                                           else
                                             bench::bare_moves<FloatSum, false>(on);
                                         }}},
                                       {});
  CHECK(report == "");
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) wrong += out[i] != (reduces ? a[i] + b[i] : a[i]);
  CHECK(wrong == 0);
}

// Both contestants are the interpreter there: an image of the fake is the name of a row.
TEST_CASE("rings race on a device, end, and are right") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("gyre_images_{}", getpid());
  std::filesystem::create_directory(folder);
  for (const char* name : {"ring_interpreted.fatbin", "ring_straight.fatbin"}) {
    std::ofstream file(folder / name, std::ios::binary);
    file.write("Float32_Sum", sizeof "Float32_Sum");
  }
  {
    FakeCuda fake({});
    const auto driver = fake.table();
    bench::GpuOptions options;
    options.rounds = 1;
    options.times = 2;
    options.max_bytes = 1 << 20;
    options.images = folder.string();
    const Status status = bench::race_rings(*driver, options);
    INFO(status.message());
    CHECK(status.ok());
    CHECK(fake.launches() == 3 * 2 * 2 * 2 * 2);  // sizes, rings, rounds, times, ranks
    options.images = "/nowhere";
    CHECK(bench::race_rings(*driver, options).message().find("ninja gpu_images") !=
          std::string_view::npos);
    CHECK(fake.failure() == "");
    CHECK(fake.leaks() == "");
  }
  std::filesystem::remove_all(folder);
}

}  // namespace bench_kernels_test
