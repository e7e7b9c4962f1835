#include "lib/loaded/nvml.h"

#include <fmt/core.h>

#include <dlfcn.h>

namespace gyre::loaded {
namespace {

constexpr const char* nvml_library = "libnvidia-ml.so.1";

}  // namespace

Result<std::unique_ptr<const Nvml>> load_nvml() {
  void* const opened = dlopen(nvml_library, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    const char* const why = dlerror();
    return invalid_usage(fmt::format("{} was not found ({})", nvml_library,
                                     why != nullptr ? why : "no reason given"));
  }
  auto table = std::make_unique<Nvml>();
#define GYRE_NVML_FIND(member, symbol, parameters)                                  \
  table->member = reinterpret_cast<decltype(table->member)>(dlsym(opened, symbol)); \
  if (table->member == nullptr)                                                     \
    return invalid_usage(                                                           \
        fmt::format("{} has no {}: the NVIDIA driver is too old", nvml_library, symbol));
  GYRE_NVML_FUNCTIONS(GYRE_NVML_FIND)
#undef GYRE_NVML_FIND
  if (const NvmlResult begun = table->init(); begun != nvml::success)
    return invalid_usage(fmt::format("nvmlInit_v2 failed with {}", begun));
  return std::unique_ptr<const Nvml>(std::move(table));
}

}  // namespace gyre::loaded
