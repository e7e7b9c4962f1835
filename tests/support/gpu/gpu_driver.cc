// The machine's own driver, for gpu_test.
#include "tests/support/gpu/gpu_driver.h"

#include <cstdio>
#include <cstdlib>

namespace gyre::tests {

std::unique_ptr<const loaded::CudaDriver> gpu_driver() {
  auto driver = loaded::load_cuda(loaded::CudaPresence::wanted);
  if (driver.ok()) return std::move(driver).value();
  std::fprintf(stderr, "%s\n", std::string(driver.status().message()).c_str());
  std::abort();  // gpu_main.cc has seen that there is one
}

std::string gpu_missing() {
  const auto driver = loaded::load_cuda(loaded::CudaPresence::wanted);
  return driver.ok() ? "" : std::string(driver.status().message());
}

std::string end_gpu_driver() { return ""; }
bool gpu_is_fake() { return false; }
bool gpu_is_harsh() { return false; }
std::span<const cuda::KernelImage> gpu_images() { return cuda::built_in_images(); }

}  // namespace gyre::tests
