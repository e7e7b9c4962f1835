#include "lib/gradsync/shard_layout.h"

#include "kernels/cpu/elementwise.h"
#include "lib/base/units.h"

#include <fmt/core.h>

#include <algorithm>

namespace gyre::gradsync {

// Of a unit; with them, bytes of all shares are far from what a number holds.
constexpr std::uint64_t max_elements = std::uint64_t{1} << 56;

static_assert(shard_alignment % kernels::square_block == 0);

std::vector<ShardPiece> UnitLayout::pieces_of(std::uint64_t share) const {
  const std::uint64_t begin = share * share_count, end = begin + share_count;
  std::vector<ShardPiece> pieces;
  for (const TensorSlot& slot : slots) {
    const std::uint64_t from = std::max(begin, slot.first);
    const std::uint64_t to = std::min(end, slot.first + slot.count);
    if (from < to) pieces.push_back({slot.tensor, from - slot.first, to - from, from - begin});
  }
  return pieces;
}

Result<std::vector<UnitLayout>> lay_out_units(std::span<const Tensor> tensors,
                                              std::uint64_t factor) {
  const auto lower = [](const Tensor& a, const Tensor& b) { return a.unit < b.unit; };
  const std::size_t units = std::max_element(tensors.begin(), tensors.end(), lower)->unit + 1;
  if (units == 0 || units > tensors.size())
    return invalid_argument(
        fmt::format("{} tensors cannot make units up to {}", tensors.size(), units - 1));
  std::vector<UnitLayout> layouts(units);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    UnitLayout& layout = layouts[tensors[i].unit];
    if (layout.slots.empty()) layout.type = tensors[i].type;
    if (layout.type != tensors[i].type)
      return invalid_argument(
          fmt::format("{} is {}, and others of unit {} are {}: all tensors of a unit have one type",
                      call_by_name(tensors, i), element_name(tensors[i].type), tensors[i].unit,
                      element_name(layout.type)));
    layout.slots.push_back({i, layout.share_count, tensors[i].count});
    if (tensors[i].count > max_elements || layout.share_count > max_elements)
      return invalid_argument(fmt::format("unit {} has more than 2^56 elements", tensors[i].unit));
    layout.share_count += round_up(tensors[i].count, shard_alignment);
  }
  for (std::size_t unit = 0; unit < units; ++unit) {
    UnitLayout& layout = layouts[unit];
    if (layout.slots.empty()) return invalid_argument(fmt::format("unit {} has no tensor", unit));
    layout.share_count = round_up(divide_up(layout.share_count, factor), shard_alignment);
    layout.shares = factor;
  }
  return layouts;
}

}  // namespace gyre::gradsync
