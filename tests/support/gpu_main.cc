// The main of gpu_test: Catch2's, and --soak and --short. Without a driver, a device or kernels it
// says what is missing and exits with 77, which Meson takes for skipped.
#include "tests/support/gpu_main.h"

#include "lib/loaded/cuda.h"
#include <gyre/gyre.h>

#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

#include <cstdio>
#include <string>

namespace gyre::tests {
namespace {

constexpr int skipped = 77;
GpuOptions options;

// Empty if a communicator of device 0 can be made, or if that fails for a reason that the cases
// ought to show.
std::string missing() {
  const auto driver = loaded::load_cuda(loaded::CudaPresence::wanted);
  if (!driver.ok()) return std::string(driver.status().message());
  gyreComm_t comm = nullptr;
  const int device = 0;
  if (gyreCommInitAll(&comm, 1, &device) == gyreSuccess) {
    (void)gyreCommDestroy(comm);
    return {};
  }
  const std::string error = gyreGetLastError(nullptr);
  return error.find("has no CUDA kernels") == error.npos ? std::string() : error;
}

}  // namespace

const GpuOptions& gpu_options() { return options; }

}  // namespace gyre::tests

int main(int count, char** arguments) {
  using namespace gyre::tests;
  Catch::Session session;
  using Catch::clara::Opt;
  session.cli(session.cli() |
              Opt(options.soak, "operations")["--soak"]("random operations of the soak") |
              Opt(options.is_short)["--short"]("a few cases of each kind, for slow tools"));
  const int code = session.applyCommandLine(count, arguments);
  if (code != 0 || session.configData().showHelp || session.configData().listTests)
    return code != 0 ? code : session.run();
  if (const std::string why = missing(); !why.empty()) {
    std::printf("skipped: %s\n", why.c_str());
    return skipped;
  }
  return session.run();
}
