// The library's log of ranks that begin while the object lives: of this process, and of processes
// that are forked meanwhile. See LogFile for a test that has the library's parts in itself.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <unistd.h>

namespace gyre::tests {

class RanksLog {
 public:
  // As in GYRE_DEBUG_SUBSYS.
  explicit RanksLog(const char* subsystems)
      : path_(std::filesystem::temp_directory_path() / ("gyre-log-" + std::to_string(getpid()))) {
    ::setenv("GYRE_DEBUG", "INFO", 1);
    ::setenv("GYRE_DEBUG_SUBSYS", subsystems, 1);
    ::setenv("GYRE_DEBUG_FILE", path_.c_str(), 1);
  }
  ~RanksLog() {
    std::filesystem::remove(path_);
    for (const char* name : {"GYRE_DEBUG", "GYRE_DEBUG_SUBSYS", "GYRE_DEBUG_FILE"})
      ::unsetenv(name);
  }
  RanksLog(const RanksLog&) = delete;
  RanksLog& operator=(const RanksLog&) = delete;

  std::string text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  bool says(std::string_view words) const { return text().find(words) != std::string::npos; }

 private:
  const std::string path_;
};

}  // namespace gyre::tests
