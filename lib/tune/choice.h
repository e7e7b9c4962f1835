// Choice: which algorithm, protocol and piece size carry out a call. It follows from values that
// are the same on every rank (TuningInputs and the call) and from a shipped table. So all ranks
// choose the same.
#pragma once

#include "lib/base/settings.h"
#include "lib/base/status.h"
#include "lib/base/units.h"
#include "lib/plan/algorithms.h"
#include "lib/plan/protocol.h"
#include "lib/tune/level.h"

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace gyre::tune {

// What all ranks of a communicator know.
struct TuningInputs {
  int ranks = 1;
  std::vector<Level> levels;  // narrowest first; the last has one part, which holds all ranks
  bool device = false;        // the memory of GPUs
  bool whole_lines = false;   // and what goes between any two of them keeps 128-byte stores whole
  bool reproducible = false;
  std::uint64_t slot_bytes = 0;  // a message that is copied to its slot has no more
  std::uint64_t lent_bytes = 0;  // nor one that leaves from lent memory by a wire; 0: as above
  std::uint32_t line_count = 0;

  // Memory reaches between any two ranks.
  bool maps_all() const;
  // It does not, but wires may reach the host's memory between any two (transport::Carrier).
  bool may_carry() const;
  // Whatever goes between two of them goes by this: no two share memory, unless this is memory.
  bool uses_alone(topology::Medium medium) const;
  // Several hosts with as many ranks on each, and more than one.
  bool has_equal_hosts() const;
};

struct Choice {
  const plan::Algorithm* algorithm = nullptr;
  plan::Protocol protocol = plan::Protocol::simple;
};

// What GYRE_ALGO and GYRE_PROTO allow, with NCCL's grammar: sections divided by ';', each an
// optional "collective:", then a comma list, or '^' and the list to leave out.
// "ring,tree;allreduce:^tree". A list of algorithms without a collective leaves alone the calls
// that none of them can carry out.
class Allowed {
 public:
  static Result<Allowed> parse(const Settings& settings);
  bool algorithm(plan::Collective collective, const plan::Algorithm& algorithm) const;
  bool protocol(plan::Collective collective, plan::Protocol protocol) const;
  // Whether what is allowed for this collective is a list of algorithms for any.
  bool is_general(plan::Collective collective) const {
    return (general_ >> static_cast<int>(collective) & 1) != 0;
  }

 private:
  using Mask = std::array<std::uint32_t, plan::collective_count>;
  Status parse_list(std::string_view setting, std::string_view text, bool protocols, Mask& mask);
  Mask algorithms_ = filled();
  Mask protocols_ = filled();
  std::uint32_t general_ = 0;  // a bit for each collective
  static Mask filled() {
    Mask mask;
    mask.fill(~0U);
    return mask;
  }
};

// What a choice is for, as all ranks know it.
struct CallSize {
  // Each rank knows its own counts only: the protocol is then simple, in pieces of a slot.
  static constexpr std::uint64_t private_bytes = ~0ULL;
  plan::Collective collective = plan::Collective::all_reduce;
  std::uint64_t bytes = 0;     // of all blocks together
  std::string_view call = {};  // its name, for people; empty: the collective's
};
// An error (gyreInvalidUsage) where the settings allow nothing.
Result<Choice> choose(const TuningInputs& inputs, const Allowed& allowed, const CallSize& size);

// What one message takes of a chunk. `bytes`: of all blocks together; `chunks`: of the plan.
std::uint64_t piece_bytes(const TuningInputs& inputs, plan::Protocol protocol, std::uint64_t bytes,
                          std::uint32_t chunks);

// The same where receivers copy from the sender's memory: all of a block, as each copy asks the
// kernel.
std::uint64_t copied_piece_bytes(const TuningInputs& inputs, std::uint64_t bytes);

}  // namespace gyre::tune
