// Plot: latency and bus bandwidth over size as one SVG file, without any library. Made for a
// README: both axes logarithmic for latency, sizes in powers of two, direct labels on the lines.
#pragma once

#include "bench/runner/sweep.h"
#include "lib/base/status.h"

#include <span>
#include <string>
#include <vector>

namespace gyre::bench {

struct PlotPoint {
  double bytes = 0;
  double latency_us = 0;
  double bus_bandwidth = 0;  // GB/s
};

struct PlotLine {
  std::string name;
  std::vector<PlotPoint> points;  // ascending in bytes
};

// Two panels side by side. Lines beyond the sixth share colours with the first.
std::string plot_svg(const std::string& title, std::span<const PlotLine> lines);

// One line for each type, operation, root and placement of the table.
std::vector<PlotLine> plot_lines(std::span<const Row> rows);

Status write_plot(const std::string& path, const std::string& title, std::span<const Row> rows);

}  // namespace gyre::bench
