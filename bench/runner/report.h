// Report: the output of the one process that prints: the table on stdout, progress on stderr when a
// terminal shows a long run, the JSON file and the plot.
#pragma once

#include "bench/runner/json.h"
#include "bench/runner/sweep.h"
#include "bench/runner/table.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gyre::bench {

class Report {
 public:
  Report(const CollectiveBenchmark& collective, const Options& options)
      : collective_(collective), options_(options) {}

  // Creates the JSON file; says on stdout which.
  Status open(const std::vector<std::string>& arguments, int library_version);
  void begin(const std::vector<Seat>& seats, int library_version);
  // A comment line, after "# ".
  void comment(const std::string& text);
  void columns();
  void row(const Row& row);
  void position(const SweepPosition& position);
  void wrong(const std::string& text);
  void finish(const RunVerdict& verdict, const MemoryUse& memory);
  void fail(const Status& status);
  // Writes the files.
  Status close(int ranks);

 private:
  void clear_progress();

  const CollectiveBenchmark& collective_;
  const Options& options_;
  std::unique_ptr<JsonReport> json_;
  std::vector<Row> rows_;  // kept for the plot only
  std::int64_t began_ns_ = 0, shown_ns_ = 0;
  bool progress_shown_ = false;
  bool on_devices_ = false;
};

}  // namespace gyre::bench
