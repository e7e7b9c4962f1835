// Two images that are none, for a libgyre_cuda.so.0 of the tests.
#include "kernels/cuda/kernel_name.h"

namespace gyre::cuda {
namespace {

constexpr int code[] = {80, 90};
constexpr ImageOrigin origin{13000, code, 90, 12030};
constexpr char sum[] = "sum", product[] = "product";
const KernelImage all[] = {{"Float32_Sum", sum, &origin}, {"Float32_Product", product, &origin}};

}  // namespace

std::span<const KernelImage> built_in_images() { return all; }
Status why_no_images() { return {}; }

}  // namespace gyre::cuda
