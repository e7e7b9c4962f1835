// Shared by the parts of gpu_moves: a device with its images, rounds of interleaved measurements,
// and their output as lines of JSON. All times are wall clock until the streams are done.
#pragma once

#include "lib/base/status.h"
#include "lib/cuda/cuda_device.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gyre::bench {

struct GpuOptions {
  int device = 0;
  int rounds = 7;
  int times = 200;  // of a small call in a round; of a large one a tenth
  std::uint64_t max_bytes = 1ULL << 30;
  std::string images;  // the folder of the *.fatbin files
};

// Something to time: `start` queues it `times` over, `wait` returns when all is done.
struct Contestant {
  std::string name;
  std::function<Status(int times)> start;
  std::function<Status()> wait;
};

// Each contestant once in each round, so that what disturbs the machine disturbs all of them alike.
// Prints a line for each: {"measure", "bytes", "times", "median_us", "us": [each round's]}.
Status race(const std::vector<Contestant>& contestants, std::uint64_t bytes, int times, int rounds);

Result<std::vector<char>> read_image(const GpuOptions& options, const std::string& name);

// The ring all-reduce of two ranks on one device, interpreted and written out.
Status race_rings(const loaded::CudaDriver& driver, const GpuOptions& options);

}  // namespace gyre::bench
