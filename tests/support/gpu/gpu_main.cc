// The main of gpu_test: Catch2's, with --soak and --short. Without a driver, a device or kernels it
// says what is missing and exits with 77, which Meson reports as skipped.
#include "tests/support/gpu/gpu_main.h"

#include "tests/support/gpu/gpu_driver.h"
#include "tests/support/gpu/spawned_processes.h"
#include "tests/support/session.h"
#include <gyre/gyre.h>

#include <cstdio>
#include <string>

namespace gyre::tests {
namespace {

constexpr int skipped = 77;
GpuOptions options;

// Empty if a communicator of device 0 can be made, or if that fails for a reason that the cases
// ought to show.
std::string missing() {
  if (std::string why = gpu_missing(); !why.empty()) return why;
  gyreComm_t comm = nullptr;
  const int device = 0;
  if (gyreCommInitAll(&comm, 1, &device) == gyreSuccess) {
    (void)gyreCommDestroy(comm);
    return {};
  }
  const std::string error = gyreGetLastError(nullptr);
  return error.find("has no CUDA kernels") == error.npos ? std::string() : error;
}

std::optional<int> skips() {
  const std::string why = missing();
  if (why.empty()) return std::nullopt;
  std::printf("skipped: %s\n", why.c_str());
  return skipped;
}

}  // namespace

const GpuOptions& gpu_options() { return options; }

}  // namespace gyre::tests

int main(int count, char** arguments) {
  using namespace gyre::tests;
  if (const auto code = ran_as_process(count, arguments)) return *code;
  const int failed = run_cases(
      count, arguments,
      {{.name = "--soak", .what = "random operations of the soak", .number = &options.soak},
       {.name = "--shares",
        .what = "the kernels' cases are cut into so many",
        .number = &options.shares},
       {.name = "--share",
        .what = "which share of them is run, from 0 on",
        .number = &options.share},
       {.name = "--short",
        .what = "a few cases of each kind, for slow tools",
        .flag = &options.is_short}},
      skips);
  const std::string left = end_gpu_driver();
  if (!left.empty()) std::printf("at the end: %s\n", left.c_str());
  return left.empty() ? failed : 1;
}
