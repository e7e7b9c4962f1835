// Plot: see plot.h. Coordinates are SVG's: x to the right, y downward, in pixels of the view box.
#include "bench/runner/plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>

namespace gyre::bench {
namespace {

constexpr double width = 960, height = 400;
constexpr double panel_width = 380, panel_height = 270, panel_top = 64;
constexpr double panel_left[] = {64, 544};

// Okabe and Ito's palette (Color Universal Design, 2008): told apart by colour-blind readers too.
constexpr const char* colors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    if (letter == '<')
      out += "&lt;";
    else if (letter == '>')
      out += "&gt;";
    else if (letter == '&')
      out += "&amp;";
    else
      out += letter;
  }
  return out;
}

std::string size_text(double bytes) {
  int unit = 0;
  while (bytes >= 1024 && unit < 4) bytes /= 1024, ++unit;
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  return fmt::format("{:.4g} {}", bytes, units[unit]);
}

// A value's place between 0 and 1.
struct Axis {
  double low = 0, high = 1;
  bool logarithmic = false;
  std::vector<double> ticks;

  double place(double value) const {
    if (!logarithmic) return (value - low) / (high - low);
    return std::log(value / low) / std::log(high / low);
  }
};

// Powers of `base` around all values; every k-th is a tick, so that there are about `most`.
Axis logarithmic_axis(double least, double largest, double base, int most) {
  int from = static_cast<int>(std::floor(std::log(least) / std::log(base) + 1e-9));
  int to = static_cast<int>(std::ceil(std::log(largest) / std::log(base) - 1e-9));
  if (to <= from) to = from + 1;
  Axis axis{std::pow(base, from), std::pow(base, to), true, {}};
  const int step = std::max(1, (to - from + most - 1) / most);
  for (int power = from; power <= to; power += step) axis.ticks.push_back(std::pow(base, power));
  return axis;
}

// From 0 to a round number above.
Axis linear_axis(double largest) {
  const double rough = std::max(largest, 1e-9) / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = power * 10;
  for (const double factor : {5.0, 2.0, 1.0})
    if (power * factor >= rough) step = power * factor;
  Axis axis{0, step * std::ceil(largest / step + 1e-9), false, {}};
  if (axis.high <= 0) axis.high = step;
  for (double tick = 0; tick <= axis.high + step / 2; tick += step) axis.ticks.push_back(tick);
  return axis;
}

struct Panel {
  double left = 0;
  Axis x, y;
  double at_x(double value) const { return left + x.place(value) * panel_width; }
  double at_y(double value) const {
    return panel_top + panel_height - y.place(value) * panel_height;
  }
};

void draw_frame(std::string& svg, const Panel& panel, const char* heading) {
  const auto out = std::back_inserter(svg);
  fmt::format_to(out, "<text class=\"h\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", panel.left,
                 panel_top - 12, heading);
  for (const double tick : panel.y.ticks)
    fmt::format_to(out,
                   "<line class=\"g\" x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" "
                   "y2=\"{2:.1f}\"/><text x=\"{3:.1f}\" y=\"{4:.1f}\" "
                   "text-anchor=\"end\">{5:g}</text>\n",
                   panel.left, panel.left + panel_width, panel.at_y(tick), panel.left - 6,
                   panel.at_y(tick) + 4, tick);
  for (const double tick : panel.x.ticks)
    fmt::format_to(out,
                   "<line class=\"g\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" "
                   "y2=\"{2:.1f}\"/><text x=\"{0:.1f}\" y=\"{3:.1f}\" "
                   "text-anchor=\"middle\">{4}</text>\n",
                   panel.at_x(tick), panel_top, panel_top + panel_height,
                   panel_top + panel_height + 18, size_text(tick));
}

void draw_line(std::string& svg, const Panel& panel, const PlotLine& line, const char* color,
               double PlotPoint::*value) {
  std::string path, dots;
  for (const PlotPoint& point : line.points) {
    if (point.bytes < panel.x.low || !(point.*value > 0)) continue;
    const double x = panel.at_x(point.bytes), y = panel.at_y(point.*value);
    fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x, y);
    fmt::format_to(std::back_inserter(dots),
                   "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"{}\">"
                   "<title>{}: {}, {:.4g}</title></circle>\n",
                   x, y, color, escaped(line.name), size_text(point.bytes), point.*value);
  }
  if (!path.empty())
    fmt::format_to(std::back_inserter(svg),
                   "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\" "
                   "stroke-linejoin=\"round\"/>\n{}",
                   path, color, dots);
}

void draw_legend(std::string& svg, std::span<const PlotLine> lines) {
  double x = panel_left[0];
  for (std::size_t i = 0; i < lines.size(); ++i) {
    fmt::format_to(std::back_inserter(svg),
                   "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"18\" height=\"3\" fill=\"{}\"/>"
                   "<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                   x, height - 18, colors[i % std::size(colors)], x + 24, height - 12,
                   escaped(lines[i].name));
    x += 44 + 6.5 * static_cast<double>(lines[i].name.size());
  }
}

}  // namespace

std::string plot_svg(const std::string& title, std::span<const PlotLine> lines) {
  std::vector<double> sizes, latencies, bandwidths = {0};
  for (const PlotLine& line : lines)
    for (const PlotPoint& point : line.points) {
      if (!(point.bytes > 0) || !(point.latency_us > 0)) continue;
      sizes.push_back(point.bytes);
      latencies.push_back(point.latency_us);
      bandwidths.push_back(point.bus_bandwidth);
    }
  if (sizes.empty()) sizes = latencies = {1};
  const Axis x =
      logarithmic_axis(*std::ranges::min_element(sizes), *std::ranges::max_element(sizes), 2, 6);
  const Axis latency = logarithmic_axis(*std::ranges::min_element(latencies),
                                        *std::ranges::max_element(latencies), 10, 8);
  const Axis bandwidth = linear_axis(*std::ranges::max_element(bandwidths));
  const Panel panels[] = {{panel_left[0], x, latency}, {panel_left[1], x, bandwidth}};

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" width=\"{0:g}\" "
      "height=\"{1:g}\">\n<style>text{{font:12px system-ui,sans-serif;fill:#333}}"
      ".t{{font-size:16px;font-weight:600}}.h{{font-weight:600}}"
      ".g{{stroke:#ddd;stroke-width:1}}</style>\n"
      "<rect width=\"{0:g}\" height=\"{1:g}\" fill=\"#fff\"/>\n"
      "<text class=\"t\" x=\"{2:g}\" y=\"28\">{3}</text>\n",
      width, height, panel_left[0], escaped(title));
  draw_frame(svg, panels[0], "median time (µs)");
  draw_frame(svg, panels[1], "bus bandwidth (GB/s)");
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const char* color = colors[i % std::size(colors)];
    draw_line(svg, panels[0], lines[i], color, &PlotPoint::latency_us);
    draw_line(svg, panels[1], lines[i], color, &PlotPoint::bus_bandwidth);
  }
  draw_legend(svg, lines);
  return svg + "</svg>\n";
}

std::vector<PlotLine> plot_lines(std::span<const Row> rows) {
  std::vector<PlotLine> lines;
  std::map<std::string, std::size_t> index;
  const auto add = [&](const Row& row, const Placement& placement, const char* where) {
    std::string name = std::string(element_name(row.type));
    if (row.op) name += fmt::format(" {}", op_name(*row.op));
    if (row.root >= 0) name += fmt::format(" root {}", row.root);
    name += where;
    const auto [found, fresh] = index.try_emplace(name, lines.size());
    if (fresh) lines.push_back({name, {}});
    // Both panels show the median iteration; the row's bandwidth is of the mean.
    const double median = placement.statistics.p50;
    const double bandwidth = median > 0 ? placement.bus_bandwidth * placement.time_us / median : 0;
    lines[found->second].points.push_back({static_cast<double>(row.bytes), median, bandwidth});
  };
  for (const Row& row : rows) {
    add(row, row.out_of_place, ", out of place");
    if (row.in_place) add(row, *row.in_place, ", in place");
  }
  return lines;
}

Status write_plot(const std::string& path, const std::string& title, std::span<const Row> rows) {
  const std::vector<PlotLine> lines = plot_lines(rows);
  std::ofstream file(path);
  file << plot_svg(title, lines);
  file.close();
  if (!file) return Status::from_errno("writing " + path, errno);
  return {};
}

}  // namespace gyre::bench
