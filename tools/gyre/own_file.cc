#include "tools/gyre/own_file.h"

#include <fmt/core.h>

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gyre::tools {
namespace {

constexpr mode_t private_mode = 0600;

Status refuse(const std::string& path, std::string_view what) {
  return invalid_usage(
      fmt::format("{} {}: it is not written; remove it or give another name", path, what));
}

}  // namespace

Result<FileDescriptor> open_own_file(const std::string& path) {
  constexpr int flags =
      O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  FileDescriptor file(::open(path.c_str(), flags, private_mode));
  struct stat facts {};
  if (!file.has_value() && errno == ELOOP) return refuse(path, "is a symbolic link");
  // Of a FIFO that nobody reads.
  if (!file.has_value() && errno == ENXIO) return refuse(path, "is no regular file");
  if (!file.has_value() || ::fstat(file.get(), &facts) != 0)
    return Status::from_errno(fmt::format("opening {}", path), errno);
  if (S_ISCHR(facts.st_mode)) return file;
  if (!S_ISREG(facts.st_mode)) return refuse(path, "is no regular file");
  if (facts.st_uid != geteuid())
    return refuse(
        path, fmt::format("belongs to another user (uid {}, we are {})", facts.st_uid, geteuid()));
  if (facts.st_nlink != 1) return refuse(path, "has a second name");
  if (::fchmod(file.get(), private_mode) != 0 || ::ftruncate(file.get(), 0) != 0)
    return Status::from_errno(fmt::format("emptying {}", path), errno);
  return file;
}

}  // namespace gyre::tools
