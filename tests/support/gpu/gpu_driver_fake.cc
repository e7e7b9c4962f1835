// Replaces the machine's driver: gpu_on_fake_test is gpu_test over the fake, so that its cases are
// tried where there is no GPU. One fake serves all cases and is checked for leftovers at the end.
#include "lib/comm/process.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/gpu/gpu_driver.h"

namespace gyre::tests {
namespace {

std::unique_ptr<FakeCuda> machine;

FakeCuda& fake_machine() {
  if (machine == nullptr) {
    machine = std::make_unique<FakeCuda>(FakeCudaOptions{});
    comm::process().use_cuda(machine->library_table(), FakeCuda::images());
  }
  return *machine;
}

}  // namespace

std::unique_ptr<const loaded::CudaDriver> gpu_driver() { return fake_machine().table(); }

std::string gpu_missing() { return (void)fake_machine(), ""; }

std::string end_gpu_driver() {
  if (machine == nullptr) return "";
  comm::process().use_cuda(nullptr, {});
  std::string wrong = machine->failure();
  if (machine->synchronising_calls() > 0)
    wrong += " calls that wait for kernels: " + machine->synchronising_shown();
  if (const std::string leaks = machine->leaks(); !leaks.empty()) wrong += " leaks: " + leaks;
  machine.reset();
  return wrong;
}

bool gpu_is_fake() { return true; }
bool gpu_is_harsh() { return FakeCudaOptions::harsh_by_environment(); }
std::span<const cuda::KernelImage> gpu_images() { return FakeCuda::images(); }

}  // namespace gyre::tests
