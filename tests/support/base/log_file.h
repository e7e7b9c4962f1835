// The log of one test: warnings go to a file during the object's life, and nowhere after it.
// Processes that are forked meanwhile write there too.
#pragma once

#include "lib/base/log.h"
#include "lib/base/owned.h"
#include "tests/support/catch.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace gyre::test {

class LogFile {
 public:
  LogFile() {
    char name[] = "/tmp/gyre-test-log-XXXXXX";
    file_ = FileDescriptor(mkstemp(name));
    path_ = name;
    REQUIRE(configure_log(LogLevel::warn, path_).ok());
  }
  ~LogFile() {
    (void)configure_log(LogLevel::warn, "/dev/null");
    std::remove(path_.c_str());
  }
  const std::string& path() const { return path_; }
  std::vector<std::string> lines() const {
    std::ifstream file(path_);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

 private:
  FileDescriptor file_;
  std::string path_;
};

}  // namespace gyre::test
