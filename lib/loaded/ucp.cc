#include "lib/loaded/ucp.h"

#include "lib/base/log.h"

#include <fmt/core.h>

#include <array>
#include <csignal>
#include <dlfcn.h>

namespace gyre::loaded {
namespace {

// How the process takes signals, as it was: UCX's constructors set handlers, and a stack for them.
class KeptSignals {
 public:
  KeptSignals() {
    for (int number = 1; number < NSIG; ++number) is_known_[index(number)] = read(number);
    has_stack_ = sigaltstack(nullptr, &stack_) == 0;
  }
  ~KeptSignals() {
    for (int number = 1; number < NSIG; ++number) {
      struct sigaction now {};
      if (!is_known_[index(number)] || sigaction(number, nullptr, &now) != 0) continue;
      if (!is_same(now, actions_[index(number)])) sigaction(number, &actions_[index(number)], {});
    }
    stack_t now{};
    if (has_stack_ && sigaltstack(nullptr, &now) == 0 && now.ss_sp != stack_.ss_sp)
      sigaltstack(&stack_, nullptr);
  }
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;

 private:
  static std::size_t index(int number) { return static_cast<std::size_t>(number); }
  static bool is_same(const struct sigaction& one, const struct sigaction& other) {
    return one.sa_flags == other.sa_flags &&
           ((one.sa_flags & SA_SIGINFO) != 0 ? one.sa_sigaction == other.sa_sigaction
                                             : one.sa_handler == other.sa_handler);
  }
  bool read(int number) { return sigaction(number, nullptr, &actions_[index(number)]) == 0; }

  std::array<struct sigaction, NSIG> actions_{};
  std::array<bool, NSIG> is_known_{};
  stack_t stack_{};
  bool has_stack_ = false;
};

// Errors and warnings of UCX are warnings here: what they mean for a call is said by its Status.
int take_log_line(const char* /*file*/, unsigned /*line*/, const char* /*function*/, int level,
                  const void* /*component*/, const char* format, std::va_list arguments) {
  std::array<char, 512> text{};
  std::vsnprintf(text.data(), text.size(), format, arguments);
  if (level <= ucp::log_warning)
    log_warn("UCX: {}", text.data());
  else
    log_info(Subsystem::net, "UCX: {}", text.data());
  return ucp::log_stop;
}

Status check_release(const Ucp& table) {
  unsigned major = 0, minor = 0, release = 0;
  table.version(&major, &minor, &release);
  if (major == ucp::major && minor >= ucp::oldest_minor) return {};
  return invalid_usage(fmt::format("UCX {}.{}.{} is installed: install {}.{} or a newer {}", major,
                                   minor, release, ucp::major, ucp::oldest_minor, ucp::major));
}

}  // namespace

Status find_ucp(Ucp& table, const UcxFinder& find) {
#define GYRE_UCP_FIND(result, member, symbol, parameters) \
  table.member = reinterpret_cast<decltype(table.member)>(find(symbol));
  GYRE_UCP_FUNCTIONS(GYRE_UCP_FIND)
#undef GYRE_UCP_FIND
  if (table.version != nullptr) GYRE_TRY(check_release(table));
#define GYRE_UCP_CHECK(result, member, symbol, parameters) \
  if (table.member == nullptr)                             \
    return invalid_usage(fmt::format("UCX has no {}: install it anew, all of one release", symbol));
  GYRE_UCP_FUNCTIONS(GYRE_UCP_CHECK)
#undef GYRE_UCP_CHECK
  return {};
}

Result<std::unique_ptr<const Ucp>> load_ucp(const char* library) {
  const bool is_of_program = dlopen(library, RTLD_NOW | RTLD_NOLOAD) != nullptr;
  const KeptSignals signals;
  // It brings the libraries of the other layers, and dlsym looks there too.
  void* const opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    const char* const why = dlerror();
    return invalid_usage(fmt::format("{} was not found ({}): install libucx0, or ucx", library,
                                     why != nullptr ? why : "no reason given"));
  }
  auto table = std::make_unique<Ucp>();
  GYRE_TRY(find_ucp(*table, [&](const char* symbol) { return dlsym(opened, symbol); }));
  if (!is_of_program) table->push_log_handler(take_log_line);
  return std::unique_ptr<const Ucp>(std::move(table));
}

std::string release_of(const Ucp& table) {
  unsigned major = 0, minor = 0, release = 0;
  table.version(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

Status ucp_failure(const Ucp& table, std::string_view call, UcxStatus status) {
  const bool is_own = status == ucp::no_memory || status == ucp::no_resource ||
                      status == ucp::no_device || status == ucp::exceeds_limit;
  std::string text = fmt::format("{}: {}", call, table.status_text(status));
  if (status == ucp::unreachable)
    text += " (UCX_TLS and UCX_NET_DEVICES have to leave both ends a transport in common)";
  return Status(is_own ? Code::SystemError : Code::RemoteError, std::move(text));
}

}  // namespace gyre::loaded
