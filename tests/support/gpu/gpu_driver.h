// The driver that gpu_test runs on: the machine's own (gpu_driver.cc), or in gpu_on_fake_test a
// fake of it (gpu_driver_fake.cc), which tries the same cases where there is no GPU.
#pragma once

#include "kernels/cuda/kernel_name.h"
#include "tests/support/device/on_cuda.h"

#include <span>
#include <string>

namespace gyre::tests {

std::unique_ptr<const loaded::CudaDriver> gpu_driver();
// Why there is none; empty if there is one.
std::string gpu_missing();
// When nothing uses it any more: what was not given back, as far as can be told.
std::string end_gpu_driver();
bool gpu_is_fake();
bool gpu_is_harsh();  // a fake whose calls wait for kernels
// The kernels that it runs.
std::span<const cuda::KernelImage> gpu_images();

class OnGpu : public OnCuda {
 public:
  OnGpu() : OnCuda(gpu_driver()) {}
};

}  // namespace gyre::tests
