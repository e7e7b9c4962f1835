// Binding: where the chunks of a plan lie in the buffers of a request.
#pragma once

#include "lib/call/request.h"
#include "lib/plan/cursor.h"
#include "lib/plan/plan.h"

#include <vector>

namespace gyre::comm {

// A stripe of every block, for a channel: the same on all ranks, who know its length from the
// block's alone.
struct Stripe {
  std::uint32_t index = 0;
  std::uint32_t count = 1;

  plan::Extent of(std::uint64_t bytes) const;
};

// Layouts refer to tables that belong to it: it stays where it is while a Launch runs.
class Binding {
 public:
  // `max_piece_bytes`: what a message may have.
  void bind(const Request& request, const plan::Plan& plan, std::uint64_t max_piece_bytes,
            Stripe stripe = {});

  const plan::Geometry& geometry() const { return geometry_; }
  std::uint64_t input_bytes() const { return input_bytes_; }
  std::uint64_t output_bytes() const { return output_bytes_; }

 private:
  void bind_whole(const Request& request);
  void bind_blocks(const Request& request, const plan::Plan& plan);
  void bind_tables(const Request& request, const plan::Plan& plan);
  plan::Extent striped(const plan::Extent& block) const;
  // Chunk c is the block of its owner.
  plan::Layout by_owner(const plan::Plan& plan, std::uint64_t block_bytes);

  Stripe stripe_;
  plan::Geometry geometry_;
  std::uint64_t input_bytes_ = 0, output_bytes_ = 0;
  std::vector<plan::Extent> owned_, input_table_, output_table_;
};

}  // namespace gyre::comm
