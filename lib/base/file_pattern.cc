#include "lib/base/file_pattern.h"

#include <fcntl.h>
#include <unistd.h>

namespace gyre {

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

FileDescriptor open_for_appending(const std::string& path) {
  return FileDescriptor(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
}

}  // namespace gyre
