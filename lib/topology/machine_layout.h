// Where the parts of a machine stand in a picture: each a box inside of its parent's.
#pragma once

#include "lib/topology/topology.h"

#include <string>
#include <vector>

namespace gyre::topology {

// In pixels. Parts that are left out have no width.
struct PartBox {
  double x = 0, y = 0, width = 0, height = 0;
  std::string title;
  bool is_drawn() const { return width > 0; }
  double middle_x() const { return x + width / 2; }
  double middle_y() const { return y + height / 2; }
};

// By node. The host's begins at (0, 0).
std::vector<PartBox> lay_out(const Topology& topology);

}  // namespace gyre::topology
