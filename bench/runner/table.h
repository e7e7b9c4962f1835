// Table: the text that a perf program prints, column for column as nccl-tests 2.19.6 does, so that
// scripts for one read the other. Only the first line says "gyre". Pure functions from values to
// text; nothing here prints.
#pragma once

#include "bench/runner/options.h"
#include "bench/runner/ranks.h"
#include "bench/runner/sweep.h"

#include <span>
#include <string>
#include <string_view>

namespace gyre::bench {

// 100 -> "0.1.0", as GYRE_VERSION counts.
std::string version_text(int code);

// "# gyre version ..." to "# Using devices".
std::string opening(const Options& options, std::string_view collective, int header_version,
                    int library_version);
std::string seat_line(const Seat& seat);
// What is to be known of GPUs that several ranks have; empty without any.
std::string sharing_lines(std::span<const Seat> seats);
// The lines above the columns.
std::string column_header(const Options& options);

// A whole line of the table. `time_of_day` is for -S.
std::string row_line(const Options& options, const Row& row, std::string_view time_of_day);

struct RunVerdict {
  std::uint64_t failed_checks = 0;
  double average_bus_bandwidth = 0;
  double min_bandwidth = -1;  // MIN_BW; -1: none asked

  bool fast_enough() const { return average_bus_bandwidth >= min_bandwidth * 0.9; }
  bool good() const { return failed_checks == 0 && fast_enough(); }
};
std::string closing(const RunVerdict& verdict, std::string_view collective);

struct MemoryUse {
  std::uint64_t initialization = 0, buffers = 0, collective = 0;
};
std::string memory_line(const MemoryUse& use, bool on_devices);

// A number in `width` columns, with as many decimals as fit, two at most.
std::string number_text(double value, int width);

}  // namespace gyre::bench
