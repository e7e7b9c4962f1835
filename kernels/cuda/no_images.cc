// The empty list of kernels, for a library that was built without nvcc.
#include "kernels/cuda/kernel_name.h"

namespace gyre::cuda {

std::span<const KernelImage> built_in_images() { return {}; }

Status why_no_images() { return {}; }

}  // namespace gyre::cuda
