// The images of a libgyre_cuda.so.0 that lies beside the library which was built without them.
#pragma once

#include "kernels/cuda/kernel_name.h"
#include "lib/base/status.h"

#include <memory>
#include <string>
#include <vector>

namespace gyre::cuda {

struct LoadedImages {
  std::vector<KernelImage> images;
  std::vector<std::unique_ptr<const ImageOrigin>> origins;
};

// Of the library at that path, which stays loaded; none if no file is there. Refuses one of
// another release.
Result<LoadedImages> load_images(const std::string& path);

}  // namespace gyre::cuda
