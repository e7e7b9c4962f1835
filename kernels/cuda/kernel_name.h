// The names of kernels in the images that nvcc makes, by protocol and by row in the table of
// kernels/cuda/meson.build; and an image itself. Host code.
#pragma once

#include "kernels/cuda/table.h"
#include "lib/base/status.h"

#include <span>
#include <string>
#include <string_view>

namespace gyre::cuda {

// What made images. Versions of CUDA as cuDriverGetVersion counts: 1000 * major + 10 * minor.
struct ImageOrigin {
  int release = 0;            // of what made the code: drivers of its major version load it
  std::span<const int> code;  // the compute capabilities that there is code for: 80, 90
  int ptx = 0;                // the PTX's, which drivers compile for later ones
  int ptx_release = 0;        // and the first CUDA whose drivers can
};

// The kernels of one row, for all architectures that nvcc was told of.
struct KernelImage {
  std::string_view row;                 // "Float32_Sum"
  const void* data = nullptr;           // what cuModuleLoadData takes
  const ImageOrigin* origin = nullptr;  // null: not known
};

// Those of this library. One that was built without nvcc has those of libgyre_cuda.so.0, if that
// lies beside it.
std::span<const KernelImage> built_in_images();
// What is wrong with libgyre_cuda.so.0; OK if nothing is, or if there is none.
Status why_no_images();

// The row of a pair; empty if there is none: bitwise operations on floats.
std::string kernel_row(ElementType type, ReduceOp op);
// "gyre_Float32_Sum_ll"
std::string kernel_name(DeviceProtocol protocol, std::string_view row);

}  // namespace gyre::cuda
