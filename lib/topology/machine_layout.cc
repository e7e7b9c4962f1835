#include "lib/topology/machine_layout.h"

#include "lib/topology/describe.h"

#include <fmt/format.h>

#include <algorithm>

namespace gyre::topology {
namespace {

constexpr double gap = 8, title_height = 16, letter_width = 6.1, min_core_width = 56;
constexpr int max_single_cores = 16;  // in one place; more are a line of text

// How wide a row of parts may get in a part of that kind.
double row_width(NodeKind kind) {
  if (kind == NodeKind::host) return 1560;
  if (kind == NodeKind::package) return 1100;
  return kind == NodeKind::numa_node ? 800 : 300;
}

bool is_left_out(const TopologyNode& node) {
  return node.kind == NodeKind::port && node.port &&
         (node.port->is_virtual || node.port->is_loopback);
}

class MachineLayout {
 public:
  explicit MachineLayout(const Topology& topology)
      : topology_(topology), children_(topology.children()), boxes_(topology.nodes.size()) {}

  std::vector<PartBox> find() {
    measure(0);
    // A parent stands before its children.
    for (std::size_t i = 1; i < boxes_.size(); ++i) {
      const auto parent = static_cast<std::size_t>(topology_.nodes[i].parent);
      boxes_[i].x += boxes_[parent].x;
      boxes_[i].y += boxes_[parent].y;
    }
    return std::move(boxes_);
  }

 private:
  // A part's size, and the places of its children in it.
  void measure(int index) {
    const TopologyNode& node = topology_.node(index);
    PartBox& box = boxes_[static_cast<std::size_t>(index)];
    const std::vector<int> shown = shown_children(index);
    box.title = title(index, shown);
    double x = gap, y = title_height + 4, right = 0, row_height = 0;
    for (const int child : shown) {
      measure(child);
      PartBox& inner = boxes_[static_cast<std::size_t>(child)];
      if (x > gap && x + inner.width > row_width(node.kind)) {
        x = gap;
        y += row_height + gap;
        row_height = 0;
      }
      inner.x = x;
      inner.y = y;
      x += inner.width + gap;
      right = std::max(right, x);
      row_height = std::max(row_height, inner.height);
    }
    const double text_width = letter_width * static_cast<double>(box.title.size()) + 2 * gap;
    box.width = std::max({right, text_width, node.kind == NodeKind::core ? min_core_width : 0});
    box.height = shown.empty() ? title_height + 6 : y + row_height + gap;
    add_nv_switches(index);
  }

  // Below all else, as wide as that: links to them go straight down.
  void add_nv_switches(int index) {
    PartBox& box = boxes_[static_cast<std::size_t>(index)];
    for (const int child : children_[static_cast<std::size_t>(index)]) {
      if (topology_.node(child).kind != NodeKind::nv_switch) continue;
      PartBox& inner = boxes_[static_cast<std::size_t>(child)];
      inner.title = node_text(topology_.node(child));
      inner.x = gap;
      inner.y = box.height + gap;
      inner.width = box.width - 2 * gap;
      inner.height = title_height + 6;
      box.height = inner.y + inner.height + gap;
    }
  }

  std::vector<int> shown_children(int index) const {
    std::vector<int> shown;
    for (const int child : children_[static_cast<std::size_t>(index)]) {
      const TopologyNode& node = topology_.node(child);
      // A NIC of which no port is shown is not shown.
      const auto& inside = children_[static_cast<std::size_t>(child)];
      const bool is_bare =
          node.kind == NodeKind::nic && !inside.empty() &&
          std::ranges::all_of(inside, [&](int port) { return is_left_out(topology_.node(port)); });
      const bool is_apart = node.kind == NodeKind::nv_switch;  // see add_nv_switches
      if (!is_left_out(node) && !is_bare && !is_apart) shown.push_back(child);
    }
    const auto is_core = [&](int child) { return topology_.node(child).kind == NodeKind::core; };
    if (std::ranges::count_if(shown, is_core) > max_single_cores) std::erase_if(shown, is_core);
    return shown;
  }

  std::string title(int index, const std::vector<int>& shown) const {
    const TopologyNode& node = topology_.node(index);
    std::string text =
        node.kind == NodeKind::core || node.kind == NodeKind::gpu || node.kind == NodeKind::port
            ? short_name(node)
            : node_text(node);
    ProcessorSet cores;
    for (const int child : children_[static_cast<std::size_t>(index)])
      if (topology_.node(child).kind == NodeKind::core)
        cores.insert_all(topology_.node(child).processors);
    const bool are_shown = std::ranges::any_of(
        shown, [&](int child) { return topology_.node(child).kind == NodeKind::core; });
    if (!cores.empty() && !are_shown) text += fmt::format(", processors {}", cores.list());
    if (node.kind == NodeKind::port && node.port && !node.port->is_up) text += " (down)";
    return text;
  }

  const Topology& topology_;
  const std::vector<std::vector<int>> children_;
  std::vector<PartBox> boxes_;
};

}  // namespace

std::vector<PartBox> lay_out(const Topology& topology) { return MachineLayout(topology).find(); }

}  // namespace gyre::topology
