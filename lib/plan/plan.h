// Plan: what one rank does in one collective, as lanes of steps. A value that never changes. It
// counts chunks, never bytes, and holds no pointers into anything else. Words: the owner of a chunk
// is the rank that brings it (all-gather, gather) or gets it (reduce-scatter, scatter); the depth
// of a FIFO is how many messages it holds unread.
#pragma once

#include "lib/plan/step.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace gyre::plan {

enum class Collective : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  all_to_all,
  gather,
  scatter,
};
inline constexpr int collective_count = 8;

std::string_view collective_name(Collective collective);  // "all_reduce"

// Whether contributions are summed, and whether a result is spread.
constexpr bool sums(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::reduce;
}
constexpr bool shares(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::all_gather ||
         collective == Collective::broadcast;
}

struct LaneSteps {
  std::vector<Link> links;  // ascending
  std::vector<Step> steps;
};

// What a Plan is made of; builders fill it in.
struct PlanParts {
  Collective collective = Collective::all_reduce;
  std::string_view algorithm;  // a literal
  std::int32_t rank_count = 1;
  std::int32_t rank = 0;
  std::int32_t root = 0;
  std::uint32_t chunk_count = 1;
  std::uint32_t scratch_chunks = 0;  // of one piece each, used again in every round
  std::uint32_t message_chunks = 1;  // most in one message of any rank: a slot holds their pieces
  std::uint32_t min_depth = 1;       // with less, the plan may deadlock
  bool equal_chunks = false;         // it is right only if all chunks have the same size
  // Whether each delivery that plan::delivery allows keeps the result right: with separate
  // buffers, and with input and output in the same place. verify proves both.
  bool direct = true;
  bool direct_in_place = false;
  std::vector<std::int32_t> owners;  // by chunk; empty if chunk c belongs to rank c
  std::vector<LaneSteps> lanes;
  std::uint32_t max_lanes = 0;  // of any rank's plan; 0: all have as many as this one
};

class Plan {
 public:
  explicit Plan(PlanParts parts) : parts_(std::move(parts)) {}

  const PlanParts& parts() const { return parts_; }
  Collective collective() const { return parts_.collective; }
  std::string_view algorithm() const { return parts_.algorithm; }
  std::int32_t rank_count() const { return parts_.rank_count; }
  std::int32_t rank() const { return parts_.rank; }
  std::int32_t root() const { return parts_.root; }
  std::uint32_t chunk_count() const { return parts_.chunk_count; }
  std::uint32_t scratch_chunks() const { return parts_.scratch_chunks; }
  std::uint32_t message_chunks() const { return parts_.message_chunks; }
  std::uint32_t min_depth() const { return parts_.min_depth; }
  bool equal_chunks() const { return parts_.equal_chunks; }
  bool direct() const { return parts_.direct; }
  bool direct_in_place() const { return parts_.direct_in_place; }

  std::int32_t owner(std::uint32_t chunk) const {
    return parts_.owners.empty() ? static_cast<std::int32_t>(chunk) : parts_.owners[chunk];
  }

  std::uint32_t lane_count() const { return static_cast<std::uint32_t>(parts_.lanes.size()); }
  // Of any rank, so that ranks may decide on it alone.
  std::uint32_t max_lanes() const { return parts_.max_lanes > 0 ? parts_.max_lanes : lane_count(); }
  // Valid as long as the Plan.
  Lane lane(std::uint32_t index) const;

 private:
  PlanParts parts_;
};

// Which of a lane's links its steps send on, or receive on.
std::vector<bool> used_links(const Lane& lane, bool sends);
// How much of what comes on each link is stored in the output as it is.
enum class Stored : std::uint8_t { none, some, all };
std::vector<Stored> stored_links(const Lane& lane);

}  // namespace gyre::plan
