#include "kernels/cuda/images_beside.h"

#include "kernels/cuda/images_library.h"
#include "lib/base/log.h"

#include <fmt/core.h>

#include <dlfcn.h>
#include <string_view>
#include <unistd.h>

namespace gyre::cuda {
namespace {

std::string folder_of_this_library() {
  Dl_info found{};
  if (dladdr(reinterpret_cast<const void*>(&folder_of_this_library), &found) == 0) return ".";
  const std::string_view path(found.dli_fname);
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? "." : std::string(path.substr(0, slash));
}

// For good: threads may ask for it while the process ends.
const Result<LoadedImages>& beside() {
  static const Result<LoadedImages>& found = *[] {
    auto* const loaded =
        new Result<LoadedImages>(load_images(folder_of_this_library() + "/" + images_library));
    if (!loaded->ok()) log_warn("{}", loaded->status().message());
    return loaded;
  }();
  return found;
}

}  // namespace

Result<LoadedImages> load_images(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0) return LoadedImages{};
  void* const opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr)
    return invalid_usage(
        fmt::format("the library of CUDA kernels cannot be loaded: {}", dlerror()));
  const auto ask = reinterpret_cast<ExportImages>(dlsym(opened, export_images_symbol));
  if (ask == nullptr)
    return invalid_usage(fmt::format("{} has no {}: it is no library of CUDA kernels of Gyre", path,
                                     export_images_symbol));
  const ExportedImages said = ask();
  if (std::string_view(said.version) != GYRE_RELEASE)
    return invalid_usage(
        fmt::format("{} has the CUDA kernels of Gyre {}, and this is Gyre {}: install both of one "
                    "release",
                    path, said.version, GYRE_RELEASE));
  LoadedImages loaded;
  for (const ExportedImage* image = said.images; image != said.images + said.count; ++image) {
    loaded.origins.push_back(std::make_unique<const ImageOrigin>(
        ImageOrigin{image->release,
                    {image->code, static_cast<std::size_t>(image->code_count)},
                    image->ptx,
                    image->ptx_release}));
    loaded.images.push_back({image->row, image->data, loaded.origins.back().get()});
  }
  return loaded;
}

std::span<const KernelImage> built_in_images() {
  if (!beside().ok()) return {};
  return beside()->images;
}

Status why_no_images() { return beside().status(); }

}  // namespace gyre::cuda
