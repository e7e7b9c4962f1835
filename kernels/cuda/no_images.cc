// A library that was built without nvcc has no kernels for a GPU.
#include "kernels/cuda/kernel_name.h"

namespace gyre::cuda {

std::span<const KernelImage> built_in_images() { return {}; }

}  // namespace gyre::cuda
