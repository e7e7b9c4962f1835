#include "lib/rendezvous/run_secret.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace gyre::rendezvous {
namespace {

// What `gyre run` writes: magic, the secret, the job's token.
constexpr std::string_view run_magic = "GYRERUN1";
constexpr std::size_t run_bytes = 8 + 32 + 16;

}  // namespace

Result<trust::Secret> read_run_secret(int descriptor) {
  constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  const auto refuse = [&](std::string_view what) {
    return invalid_usage(
        fmt::format("GYRE_RENDEZVOUS_FD={} {}. `gyre run` sets it; do not set it by "
                    "hand, and let its descriptor through to the ranks",
                    descriptor, what));
  };
  struct stat facts {};
  if (::fstat(descriptor, &facts) != 0) return refuse("is not an open descriptor");
  const int has = ::fcntl(descriptor, F_GET_SEALS);
  if (has < 0 || (has & seals) != seals) return refuse("is not the sealed memory of `gyre run`");
  if (facts.st_uid != geteuid())
    return refuse(fmt::format("belongs to another user (uid {})", facts.st_uid));
  trust::Wiped<run_bytes + 1> content;
  // Not read(2): all ranks share the descriptor's position.
  const ssize_t got = ::pread(descriptor, content.data(), content.size(), 0);
  if (got != static_cast<ssize_t>(run_bytes) ||
      std::memcmp(content.data(), run_magic.data(), run_magic.size()) != 0)
    return refuse("does not hold what this version's `gyre run` writes");
  // It was let through to this program, not to the programs that this one starts.
  (void)::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  trust::Secret secret{};
  std::copy_n(content.begin() + run_magic.size(), secret.size(), secret.begin());
  return secret;
}

}  // namespace gyre::rendezvous
