// SymbolicMemory: one rank's buffers in a symbolic run, a cell for each piece. It reports reads of
// data that is not there, and accesses that no message orders, which would be right only by luck.
// Words: a moment is a worker's count of its own moves. A clock holds, for each worker, the last
// moment that is known to have happened before now.
#pragma once

#include "lib/base/status.h"
#include "lib/plan/contributions.h"
#include "lib/plan/step.h"

#include <cstdint>
#include <vector>

namespace gyre::plan {

// One piece of one chunk. Small: a proof copies hundreds of millions.
struct SymbolicValue {
  std::uint64_t label = 0;  // which chunk of the data, wherever it lies
  Contribution contribution = 0;
  std::uint8_t piece = 0;
  std::uint8_t bytes = 0;
  bool finished = false;

  friend bool operator==(const SymbolicValue&, const SymbolicValue&) = default;
};
static_assert(sizeof(SymbolicValue) == 16);

using VectorClock = std::vector<std::uint32_t>;

// Who accesses, and what it knows.
struct Accessor {
  std::uint32_t worker = 0;
  const VectorClock& clock;
};

struct CellAddress {
  Buffer buffer = Buffer::none;
  std::uint64_t index = 0;
};

class SymbolicMemory {
 public:
  // Empty. What an earlier run allocated is kept.
  void begin(std::uint64_t user_cells, std::uint64_t scratch_cells, bool in_place);

  // What the caller put into the input.
  void bring(std::uint64_t index, const SymbolicValue& value);
  Result<SymbolicValue> read(CellAddress at, const Accessor& access);
  Status write(CellAddress at, const SymbolicValue& value, const Accessor& access);
  // Whether the output holds a stored value there.
  bool holds(std::uint64_t index, SymbolicValue* value) const;

 private:
  struct Moment {
    std::uint32_t worker = 0;
    std::uint32_t time = 0;  // 0: before everything
  };
  struct Cell {
    SymbolicValue value;
    bool is_input = false;  // holds what the caller brought
    bool is_stored = false;
    Moment written;
    std::vector<Moment> reads;  // since then, the last one of each worker

    void clear();
  };

  Result<Cell*> find(CellAddress at);

  bool in_place_ = false;
  std::vector<Cell> input_;
  std::vector<Cell> output_;  // empty in place: then the output is input_
  std::vector<Cell> scratch_;
};

}  // namespace gyre::plan
