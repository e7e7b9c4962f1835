#include "bench/gpu/timing.h"

#include "lib/base/clock.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>

namespace gyre::bench {
namespace {

Result<double> microseconds(const Contestant& one, int times) {
  const std::int64_t begin = SystemClock::read();
  GYRE_TRY(one.start(times));
  GYRE_TRY(one.wait());
  return static_cast<double>(SystemClock::read() - begin) * 1e-3 / times;
}

}  // namespace

Status race(const std::vector<Contestant>& contestants, std::uint64_t bytes, int times,
            int rounds) {
  std::vector<std::vector<double>> found(contestants.size());
  for (int round = -1; round < rounds; ++round)  // the first one warms up
    for (std::size_t i = 0; i < contestants.size(); ++i) {
      GYRE_ASSIGN(const double us, microseconds(contestants[i], times));
      if (round >= 0) found[i].push_back(us);
    }
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    std::vector<double> sorted = found[i];
    std::ranges::sort(sorted);
    fmt::print(
        "{{\"measure\": \"{}\", \"bytes\": {}, \"times\": {}, \"median_us\": {:.4f}, "
        "\"us\": [{:.4f}]}}\n",
        contestants[i].name, bytes, times, sorted[sorted.size() / 2], fmt::join(found[i], ", "));
  }
  std::fflush(stdout);
  return {};
}

Result<std::vector<char>> read_image(const GpuOptions& options, const std::string& name) {
  const std::string path = options.images + "/" + name + ".fatbin";
  std::ifstream file(path, std::ios::binary);
  std::vector<char> image{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file || image.empty())
    return invalid_usage(
        fmt::format("{} cannot be read: `ninja gpu_images` makes it with nvcc; --images says where "
                    "it is",
                    path));
  return image;
}

}  // namespace gyre::bench
