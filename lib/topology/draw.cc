#include "lib/topology/draw.h"

#include "lib/topology/machine_layout.h"
#include "lib/topology/xml.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

namespace gyre::topology {
namespace {

constexpr double margin = 24, line_height = 18, max_bend = 60;
constexpr std::size_t names_in_line = 12;

// By NodeKind.
constexpr std::array<const char*, node_kind_count> fills = {
    "#ffffff", "#fbfaf3", "#f0f5fb", "#fdf3e2", "#eeeeee",
    "#eef6ee", "#d8efd2", "#e7e1f4", "#f5f0fc", "#bfe3b6"};

// A line of the picture has room for one.
std::vector<std::string> sentences(std::string_view text) {
  std::vector<std::string> found;
  while (!text.empty()) {
    const std::size_t end = std::min({text.find("; "), text.find(". "), text.size()});
    found.emplace_back(text.substr(0, std::min(end + 1, text.size())));
    text.remove_prefix(std::min(end + 2, text.size()));
  }
  return found;
}

// Channels that look alike: the same stops, by the same ports.
struct DrawnLine {
  std::vector<std::pair<double, double>> points;
  std::vector<std::size_t> channels;
  std::string colour;
};

class MachinePicture {
 public:
  MachinePicture(const Cluster& cluster, std::span<const FoundChannels> found)
      : cluster_(cluster),
        topology_(cluster.topology(cluster.hosts.front())),
        found_(found),
        boxes_(lay_out(topology_)) {}

  std::string document() {
    for (std::size_t i = 0; i < boxes_.size(); ++i) add_part(i);
    for (const TopologyLink& link : topology_.links) add_link(link);
    for (const FoundChannels& one : found_) add_channels(one);
    const PartBox& host = boxes_.front();
    const double width = std::max(host.width + 2 * margin, 900.0);
    const double height = bottom_ + margin;
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"11\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{2}"
        "<g class=\"labels\" paint-order=\"stroke\" stroke=\"white\" stroke-width=\"2\" "
        "stroke-opacity=\"0.7\">\n{3}</g>\n</svg>\n",
        width, height, text_, labels_);
  }

 private:
  void add_part(std::size_t index) {
    const PartBox& box = boxes_[index];
    if (!box.is_drawn()) return;
    const TopologyNode& node = topology_.nodes[index];
    text_ += fmt::format(
        "<g class=\"{}\"><title>{}</title><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" "
        "height=\"{:.1f}\" rx=\"3\" fill=\"{}\" stroke=\"#999\"/>",
        class_name(node.kind), xml_text(node_text(node)), box.x + margin, box.y + margin, box.width,
        box.height, fills[static_cast<std::size_t>(node.kind)]);
    text_ += "</g>\n";
    labels_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", box.x + margin + 6,
                           box.y + margin + 14, xml_text(box.title));
    bottom_ = std::max(bottom_, box.y + margin + box.height);
  }

  static std::string class_name(NodeKind kind) {
    std::string name(kind_name(kind));
    std::ranges::replace(name, ' ', '_');
    return name;
  }

  void add_link(const TopologyLink& link) {
    // C2C joins a GPU with what it lies in: no line shows that.
    if (link.kind == JointKind::c2c) return;
    const PartBox &from = drawn(link.from), &to = drawn(link.to);
    const double to_x = std::clamp(from.middle_x(), to.x, to.x + to.width);
    text_ += fmt::format(
        "<line class=\"link\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" "
        "stroke=\"#7a7\" stroke-opacity=\"0.35\" stroke-width=\"{:.1f}\"/>\n",
        from.middle_x() + margin, from.y + from.height + margin, to_x + margin, to.y + margin,
        std::clamp(std::sqrt(link.gigabytes_per_s) / 6, 0.5, 4.0));
  }

  // The box of a node, or of what it lies in.
  const PartBox& drawn(int node) const {
    while (!boxes_[static_cast<std::size_t>(node)].is_drawn()) node = topology_.node(node).parent;
    return boxes_[static_cast<std::size_t>(node)];
  }

  void add_channels(const FoundChannels& found) {
    const std::vector<DrawnLine> lines = lines_of(found);
    for (std::size_t i = 0; i < lines.size(); ++i) add_line(found, lines[i], i, lines.size());
    bottom_ += line_height;
    for (const std::string& reason : sentences(reason_text(found))) add_text(reason, "#000");
    std::string names;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      names +=
          fmt::format("<tspan fill=\"{}\">{}</tspan>  ", lines[i].colour, name_of(found, lines[i]));
      if (i % names_in_line == names_in_line - 1 || i + 1 == lines.size())
        add_line_of_text(std::exchange(names, {}), "#000");
    }
  }

  void add_text(std::string_view line, const char* colour) {
    add_line_of_text(xml_text(line), colour);
  }

  void add_line_of_text(const std::string& markup, const char* colour) {
    bottom_ += line_height;
    text_ += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\" xml:space=\"preserve\">{}</text>\n", margin,
        bottom_, colour, markup);
  }

  std::string name_of(const FoundChannels& found, const DrawnLine& line) const {
    const std::string_view name = pattern_name(found.pattern);
    return line.channels.size() == 1 ? fmt::format("{} {}", name, line.channels.front())
                                     : fmt::format("{}s {}", name, fmt::join(line.channels, ", "));
  }

  std::vector<DrawnLine> lines_of(const FoundChannels& found) const {
    std::vector<DrawnLine> lines;
    for (std::size_t i = 0; i < found.channels.size(); ++i) {
      auto points = points_of(found, found.channels[i]);
      const auto known = std::ranges::find(lines, points, &DrawnLine::points);
      if (known != lines.end()) {
        known->channels.push_back(i);
        continue;
      }
      // Hues a golden angle apart, so that neighbours differ.
      const auto hue = static_cast<int>(static_cast<double>(lines.size()) * 137.508) % 360;
      lines.push_back({std::move(points), {i}, fmt::format("hsl({},75%,40%)", hue)});
    }
    return lines;
  }

  // Through the boxes of the first host's ranks, from and to its ports.
  std::vector<std::pair<double, double>> points_of(const FoundChannels& found,
                                                   const FoundChannel& channel) const {
    std::map<int, int> nodes;  // by rank
    for (const ClusterMember& member : cluster_.hosts.front().members)
      nodes[member.rank] = member.node;
    std::vector<std::pair<double, double>> points;
    const auto add = [&](int node) {
      const PartBox& box = drawn(node);
      const std::pair point(box.middle_x(), box.middle_y());
      if (points.empty() || points.back() != point) points.push_back(point);
    };
    for (const HostCrossing& one : channel.crossings) {
      if (one.to_host == 0) add(one.to_port);
      if (found.pattern == ChannelPattern::tree && one.from_host == 0) add(one.from_port);
    }
    for (const int rank : channel.order)
      if (const auto place = nodes.find(rank); place != nodes.end()) add(place->second);
    if (found.pattern == ChannelPattern::tree) return points;
    for (const HostCrossing& one : channel.crossings)
      if (one.from_host == 0) add(one.from_port);
    if (channel.crossings.empty() && points.size() > 1) points.push_back(points.front());
    return points;
  }

  // Arcs to the left of their direction, so that there and back are two; lines beside each other.
  void add_line(const FoundChannels& found, const DrawnLine& line, std::size_t index,
                std::size_t count) {
    const double aside = 3 * (static_cast<double>(index) - static_cast<double>(count - 1) / 2);
    const double shift = margin + std::clamp(aside, -16.0, 16.0);
    std::string path;
    for (std::size_t i = 0; i < line.points.size(); ++i) {
      const auto& [x, y] = line.points[i];
      if (i == 0) {
        path = fmt::format("M{:.1f} {:.1f}", x + shift, y + shift / 2 + margin / 2);
        continue;
      }
      const auto& [from_x, from_y] = line.points[i - 1];
      const double length = std::max(1.0, std::hypot(x - from_x, y - from_y));
      const double bend = std::min(0.22, max_bend / length);
      const double bend_x = (x + from_x) / 2 + (y - from_y) * bend;
      const double bend_y = (y + from_y) / 2 - (x - from_x) * bend;
      path += fmt::format("Q{:.1f} {:.1f} {:.1f} {:.1f}", bend_x + shift,
                          bend_y + shift / 2 + margin / 2, x + shift, y + shift / 2 + margin / 2);
    }
    const bool is_tree = found.pattern == ChannelPattern::tree;
    text_ += fmt::format(
        "<path class=\"{}\" d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-opacity=\"0.8\" "
        "stroke-width=\"1.8\"{}><title>{}: {:.4g} GB/s each</title></path>\n",
        pattern_name(found.pattern), path, line.colour, is_tree ? " stroke-dasharray=\"6 3\"" : "",
        name_of(found, line), found.channel_gigabytes_per_s);
  }

  const Cluster& cluster_;
  const Topology& topology_;
  const std::span<const FoundChannels> found_;
  const std::vector<PartBox> boxes_;
  double bottom_ = 0;
  std::string text_, labels_;  // labels stand above all lines
};

}  // namespace

Result<std::string> draw(const Cluster& cluster, std::span<const FoundChannels> found) {
  GYRE_TRY(check(cluster));
  const std::size_t count = cluster.topology(cluster.hosts.front()).nodes.size();
  if (count > max_drawn_nodes)
    return invalid_argument(
        fmt::format("a picture of {} parts; the most are {}", count, max_drawn_nodes));
  return MachinePicture(cluster, found).document();
}

}  // namespace gyre::topology
