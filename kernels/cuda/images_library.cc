// The one function of libgyre_cuda.so.0. GYRE_RELEASE is this Gyre's version, from Meson.
#include "kernels/cuda/images_library.h"

#include "kernels/cuda/kernel_name.h"

#include <vector>

namespace {

using gyre::cuda::ExportedImage;

std::vector<ExportedImage> exported() {
  std::vector<ExportedImage> all;
  for (const gyre::cuda::KernelImage& image : gyre::cuda::built_in_images()) {
    const gyre::cuda::ImageOrigin& from = *image.origin;
    all.push_back({image.row.data(), image.data, from.release, from.code.data(),
                   static_cast<int>(from.code.size()), from.ptx, from.ptx_release});
  }
  return all;
}

}  // namespace

extern "C" [[gnu::visibility("default")]] gyre::cuda::ExportedImages gyre_cuda_images();
gyre::cuda::ExportedImages gyre_cuda_images() {
  static const std::vector<ExportedImage> all = exported();
  return {GYRE_RELEASE, all.data(), static_cast<int>(all.size())};
}
