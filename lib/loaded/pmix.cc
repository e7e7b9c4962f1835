#include "lib/loaded/pmix.h"

#include <fmt/core.h>

#include <dlfcn.h>

namespace gyre::loaded {

Result<std::unique_ptr<const Pmix>> load_pmix(const char* library) {
  // A process that uses MPI as well has it loaded already, and shares it with us.
  void* const opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    const char* const why = dlerror();
    return invalid_usage(fmt::format("{} was not found ({}): install libpmix2, or pmix", library,
                                     why != nullptr ? why : "no reason given"));
  }
  auto table = std::make_unique<Pmix>();
#define GYRE_PMIX_FIND(result, member, symbol, parameters)                          \
  table->member = reinterpret_cast<decltype(table->member)>(dlsym(opened, symbol)); \
  if (table->member == nullptr)                                                     \
    return invalid_usage(fmt::format("{} has no {}: it is too old", library, symbol));
  GYRE_PMIX_FUNCTIONS(GYRE_PMIX_FIND)
#undef GYRE_PMIX_FIND
  return std::unique_ptr<const Pmix>(std::move(table));
}

}  // namespace gyre::loaded
