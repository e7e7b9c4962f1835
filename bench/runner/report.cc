// Report: see report.h.
#include "bench/runner/report.h"

#include "bench/runner/plot.h"
#include "lib/base/clock.h"

#include <fmt/core.h>

#include <cstdio>
#include <unistd.h>

namespace gyre::bench {
namespace {

// A run shorter than this shows no progress; then at most so often.
constexpr std::int64_t patience_ns = 2 * ns_per_s;
constexpr std::int64_t interval_ns = ns_per_s / 5;

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

Status Report::open(const std::vector<std::string>& arguments, int library_version) {
  if (options_.json_file.empty()) return {};
  GYRE_ASSIGN(json_, JsonReport::create(options_.json_file, arguments, library_version));
  comment("Writing JSON output to " + json_->path());
  return {};
}

void Report::begin(const std::vector<Seat>& seats, int library_version) {
  began_ns_ = SystemClock::read();
  on_devices_ = !seats.empty() && seats[0].device.ordinal >= 0;
  std::string text = opening(options_, collective_.program, GYRE_VERSION_CODE, library_version);
  for (const Seat& seat : seats) text += seat_line(seat);
  text += sharing_lines(seats);
  print(text);
  if (json_) json_->configuration(options_, seats);
}

void Report::comment(const std::string& text) { print(text.empty() ? "#\n" : "# " + text + "\n"); }

void Report::columns() { print(column_header(options_)); }

void Report::clear_progress() {
  if (progress_shown_) std::fputs("\r\033[K", stderr);
  progress_shown_ = false;
}

void Report::row(const Row& row) {
  clear_progress();
  print(row_line(options_, row, options_.timestamps ? time_of_day() : ""));
  if (json_) json_->add(options_, row);
  if (!options_.plot_file.empty()) rows_.push_back(row);
}

void Report::position(const SweepPosition& position) {
  const std::int64_t now = SystemClock::read();
  if (isatty(STDERR_FILENO) == 0 || now - began_ns_ < patience_ns) return;
  if (now - shown_ns_ < interval_ns) return;
  shown_ns_ = now;
  const std::string text =
      options_.cycles == 0
          ? fmt::format("row {}, {} bytes", position.row, position.bytes)
          : fmt::format("row {} of {}, {} bytes", position.row, position.rows, position.bytes);
  clear_progress();
  std::fprintf(stderr, "\r%s", text.c_str());
  std::fflush(stderr);
  progress_shown_ = true;
}

void Report::wrong(const std::string& text) {
  clear_progress();
  std::fprintf(stderr, "wrong: %s\n", text.c_str());
}

void Report::finish(const RunVerdict& verdict, const MemoryUse& memory) {
  clear_progress();
  std::string text = closing(verdict, collective_.program);
  if (options_.memory) text += memory_line(memory, on_devices_);
  print(text + "#\n\n");
  if (json_) json_->conclude(verdict);
}

void Report::fail(const Status& status) {
  clear_progress();
  if (json_) json_->error(std::string(status.message()));
}

Status Report::close(int ranks) {
  if (json_) GYRE_TRY(json_->write());
  if (options_.plot_file.empty()) return {};
  return write_plot(options_.plot_file, fmt::format("{}, {} ranks", collective_.program, ranks),
                    rows_);
}

}  // namespace gyre::bench
