#include "lib/loaded/ucx.h"

#include <fmt/core.h>

#include <dlfcn.h>

namespace gyre::loaded {
namespace {

Status check_release(const Ucx& table) {
  unsigned major = 0, minor = 0, release = 0;
  table.version(&major, &minor, &release);
  if (major == ucx::major && minor >= ucx::oldest_minor && minor <= ucx::newest_minor) return {};
  return invalid_usage(fmt::format(
      "UCX {}.{}.{} is installed, and its layout is not known: install one of {}.{} to {}.{}",
      major, minor, release, ucx::major, ucx::oldest_minor, ucx::major, ucx::newest_minor));
}

}  // namespace

Status find_ucx(Ucx& table, const UcxFinder& find) {
#define GYRE_UCX_FIND(result, member, symbol, parameters) \
  table.member = reinterpret_cast<decltype(table.member)>(find(symbol));
  GYRE_UCX_FUNCTIONS(GYRE_UCX_FIND)
#undef GYRE_UCX_FIND
  if (table.version != nullptr) GYRE_TRY(check_release(table));
#define GYRE_UCX_CHECK(result, member, symbol, parameters) \
  if (table.member == nullptr)                             \
    return invalid_usage(fmt::format("UCX has no {}: install it anew, all of one release", symbol));
  GYRE_UCX_FUNCTIONS(GYRE_UCX_CHECK)
#undef GYRE_UCX_CHECK
  return {};
}

Result<std::unique_ptr<const Ucx>> load_ucx(const char* library) {
  // It brings the libraries of the other layers, of its own release, and dlsym looks there too.
  void* const opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    const char* const why = dlerror();
    return invalid_usage(fmt::format("{} was not found ({}): install libucx0, or ucx", library,
                                     why != nullptr ? why : "no reason given"));
  }
  auto table = std::make_unique<Ucx>();
  GYRE_TRY(find_ucx(*table, [&](const char* symbol) { return dlsym(opened, symbol); }));
  return std::unique_ptr<const Ucx>(std::move(table));
}

}  // namespace gyre::loaded
