// Blocks of a v-collective: of any length, some of them empty, with gaps between. A side that holds
// only the own block has it at its beginning. Channels take a stripe of each block.
#pragma once

#include "lib/base/units.h"
#include "lib/plan/cursor.h"
#include "lib/plan/plan.h"
#include "tests/support/comm/elements.h"

#include <algorithm>
#include <deque>
#include <vector>

namespace gyre::tests {

class UnevenBlocks {
 public:
  enum class Side { input, output };

  UnevenBlocks(plan::Collective collective, int ranks, std::uint64_t max_elements,
               std::uint64_t element_bytes)
      : collective_(collective),
        ranks_(static_cast<std::size_t>(ranks)),
        most_(max_elements),
        element_(element_bytes) {}

  static bool can_be(plan::Collective collective) {
    return collective == plan::Collective::all_gather ||
           collective == plan::Collective::reduce_scatter ||
           collective == plan::Collective::all_to_all;
  }

  std::uint64_t bytes(Side side, std::size_t rank) const {
    const std::vector<plan::Extent> all = blocks(side, rank);
    return has_own_alone(side) ? all[rank].bytes : all.back().offset + all.back().bytes;
  }

  // Where the own block lies in the side that has all of them.
  std::uint64_t own_offset(std::size_t rank) const {
    const Side whole = has_own_alone(Side::input) ? Side::output : Side::input;
    return blocks(whole, rank)[rank].offset;
  }

  // Its table lives as long as this.
  plan::Layout layout(Side side, const plan::Plan& plan, std::uint32_t channel,
                      std::uint32_t channels) {
    const std::vector<plan::Extent> all = blocks(side, static_cast<std::size_t>(plan.rank()));
    std::vector<plan::Extent>& table = tables_.emplace_back();
    for (std::uint32_t chunk = 0; chunk < plan.chunk_count(); ++chunk) {
      const plan::Extent& block = all[static_cast<std::size_t>(plan.owner(chunk))];
      const std::uint64_t stripe = divide_up(block.bytes / element_, channels) * element_;
      const std::uint64_t begin = std::min(block.bytes, channel * stripe);
      table.push_back({block.offset + begin, std::min(stripe, block.bytes - begin)});
    }
    return plan::Layout::listed(table.data());
  }

 private:
  bool has_own_alone(Side side) const {
    return collective_ ==
           (side == Side::input ? plan::Collective::all_gather : plan::Collective::reduce_scatter);
  }

  std::uint64_t elements(std::size_t from, std::size_t to) const {
    if (collective_ == plan::Collective::all_gather) to = 0;
    if (collective_ == plan::Collective::reduce_scatter) from = 0;
    const std::uint64_t hash = hashed(7, from, to);
    return hash % 4 == 0 ? 0 : (hash >> 8) % (most_ + 1);
  }

  // By the rank that brings or gets the block.
  std::vector<plan::Extent> blocks(Side side, std::size_t rank) const {
    std::vector<plan::Extent> all;
    std::uint64_t offset = 0;
    for (std::size_t peer = 0; peer < ranks_; ++peer) {
      const bool gets = collective_ == plan::Collective::reduce_scatter ||
                        (collective_ == plan::Collective::all_to_all && side == Side::input);
      const std::uint64_t bytes = (gets ? elements(rank, peer) : elements(peer, rank)) * element_;
      all.push_back({has_own_alone(side) ? 0 : offset, bytes});
      offset += bytes + element_;
    }
    return all;
  }

  plan::Collective collective_;
  std::size_t ranks_;
  std::uint64_t most_, element_;
  std::deque<std::vector<plan::Extent>> tables_;
};

}  // namespace gyre::tests
