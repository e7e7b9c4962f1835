#include "lib/base/file_pattern.h"

#include <fmt/core.h>

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gyre {
namespace {

// Without O_NONBLOCK the open of a FIFO waits for its reader.
constexpr int open_flags = O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;

Status refuse(const std::string& path, std::string_view what) {
  return invalid_usage(
      fmt::format("{} {}: name a file of your own, or one that is not there yet", path, what));
}

Status open_failure(const std::string& path, int error) {
  if (error == ELOOP) return refuse(path, "is a symbolic link");
  if (error == EISDIR) return refuse(path, "is a folder");
  if (error == ENXIO) return refuse(path, "is a FIFO or a socket, or a device that is not there");
  return Status::from_errno(fmt::format("opening {}", path), error);
}

// Whether it may be written to: what was there before this process came.
Status check_own(const std::string& path, int file) {
  struct stat about {};
  if (fstat(file, &about) != 0) return Status::from_errno(fmt::format("fstat of {}", path), errno);
  if (S_ISCHR(about.st_mode)) return {};
  if (!S_ISREG(about.st_mode)) return refuse(path, "is neither a file nor a character device");
  if (about.st_uid != geteuid())
    return refuse(path, fmt::format("belongs to user {}, and this process is user {}'s",
                                    about.st_uid, geteuid()));
  if (about.st_nlink != 1)
    return refuse(path, fmt::format("has {} names (hard links)", about.st_nlink));
  return {};
}

}  // namespace

std::string this_host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "host";
  return name;
}

std::string expand_file_pattern(const std::string& pattern, int rank) {
  return expand_file_pattern(pattern, this_host_name(), getpid(), rank);
}

std::string expand_file_pattern(const std::string& pattern, const std::string& host, long pid,
                                int rank) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char letter = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (letter == 'h')
      path += host;
    else if (letter == 'p')
      path += std::to_string(pid);
    else if (letter == 'r' && rank >= 0)
      path += std::to_string(rank);
    else
      path += pattern[i];
    if (letter == 'h' || letter == 'p' || (letter == 'r' && rank >= 0)) ++i;
  }
  return path;
}

Result<FileDescriptor> open_output_file(const std::string& path, OldText old_text) {
  // Others may make and remove the file at the same time.
  constexpr int tries = 3;
  int error = 0;
  for (int i = 0; i < tries; ++i) {
    FileDescriptor made(::open(path.c_str(), open_flags | O_CREAT | O_EXCL, 0600));
    if (made.has_value()) return made;
    if (errno != EEXIST) return open_failure(path, errno);
    FileDescriptor known(::open(path.c_str(), open_flags));
    if (!known.has_value() && (error = errno) == ENOENT) continue;
    if (!known.has_value()) return open_failure(path, error);
    GYRE_TRY(check_own(path, known.get()));
    struct stat about {};
    const bool is_file = fstat(known.get(), &about) == 0 && S_ISREG(about.st_mode);
    if (old_text == OldText::goes && is_file && ftruncate(known.get(), 0) != 0)
      return Status::from_errno(fmt::format("emptying {}", path), errno);
    return known;
  }
  return open_failure(path, error);
}

}  // namespace gyre
