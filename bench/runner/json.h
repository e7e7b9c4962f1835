// JSON: the results file of -J, with the keys and types of nccl-tests 2.19.6 (its version 3). Each
// run writes a new file and never overwrites an existing one.
#pragma once

#include "bench/runner/table.h"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace gyre::bench {

class JsonReport {
 public:
  // Creates `path`, or path.0, path.1, ... if it exists. `path()` says which.
  static Result<std::unique_ptr<JsonReport>> create(const std::string& path,
                                                    const std::vector<std::string>& arguments,
                                                    int library_version);
  const std::string& path() const { return path_; }

  void configuration(const Options& options, const std::vector<Seat>& seats);
  void add(const Options& options, const Row& row);
  void conclude(const RunVerdict& verdict);
  void error(const std::string& text);
  // Writes everything and closes. Without it the file stays empty.
  Status write();

  const nlohmann::ordered_json& document() const { return document_; }

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Closer> file_;
  std::string path_;
  nlohmann::ordered_json document_;
};

// "2025-01-31 12:00:00", local time, now.
std::string time_of_day();

}  // namespace gyre::bench
