// SymbolicRun: all ranks of one collective at once, walked with the production cursor on symbolic
// values. It is the interpreter's rules without bytes, threads or time.
//
// One schedule of the workers stands for all schedules. Each FIFO has one sender and one receiver,
// and a possible move stays possible after any other move. So the order of the workers changes
// neither what arrives nor whether everything ends. A deeper FIFO only allows more moves. Only the
// order of accesses to a cell could depend on the schedule. Memory shows that messages order each
// pair of accesses. Credits are not counted among these messages, so the proof holds at any depth.
#pragma once

#include "lib/base/status.h"
#include "lib/plan/contract.h"
#include "lib/plan/contributions.h"
#include "lib/plan/cursor.h"
#include "lib/plan/plan.h"
#include "lib/plan/symbolic_memory.h"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace gyre::plan {

enum class DeliveryPolicy : std::uint8_t {
  staged,  // each message crosses a slot
  direct,  // each as plan::delivery says
  mixed,   // each link one way or the other, by the seed
  // Directly, by wires that take their time: they may still read where a message lay, and write
  // where it belongs, until it is received. What could be pulled is pushed where the receiver does
  // nothing on that link but store what comes.
  carried,
};

struct SymbolicMachine {
  std::uint32_t depth = 0;  // of each FIFO; 0: no limit
  bool in_place = false;
  bool even = true;  // chunks of one size and a short last one, or of any length anywhere
  DeliveryPolicy delivering = DeliveryPolicy::staged;
  std::uint64_t seed = 1;
};

class SymbolicRun {
 public:
  // The plans of all ranks, by rank; they outlive the symbolic run.
  explicit SymbolicRun(std::span<const Plan> plans);

  // Success if each promised chunk is there, complete and the same wherever it is.
  Status run(const SymbolicMachine& machine);

  // Of all runs so far. A run whose sums are made in another order than before fails.
  std::uint32_t roundings() const;
  bool in_rank_order() const;
  // Of the last run.
  std::uint64_t switch_sums() const { return switch_sums_; }
  std::uint64_t switch_stores() const { return switch_stores_; }

 private:
  struct SymbolicMessage {
    std::vector<SymbolicValue> values;
    VectorClock clock;  // of its sender
    Delivery delivery = Delivery::staged;
    std::int32_t source = 0;
    std::vector<CellAddress> cells;   // pull: where it lies; push: where it was written
    std::vector<CellAddress> origin;  // carried: where it lay, in the memory of its source
  };
  struct Fifo {
    std::int32_t from = 0;
    std::int32_t to = 0;
    std::int32_t channel = 0;
    std::int64_t sender = -1;  // workers, once they are known
    std::int64_t receiver = -1;
    bool is_stored = true;                // the receiver stores all of it as it comes
    std::vector<std::uint32_t> messages;  // among messages_, the oldest first
  };
  struct Worker {
    std::int32_t rank = 0;
    std::uint32_t number = 0;  // among the lanes of its rank
    std::uint32_t index = 0;   // among all workers
    Lane lane;
    std::vector<std::uint32_t> in;  // FIFOs by link
    std::vector<std::uint32_t> out;
    Cursor cursor;
    Move move;  // the one that the cursor stands on, unless it is done
    VectorClock clock;

    void stand() {
      if (!cursor.done()) move = cursor.move();
    }
  };
  // A move while it is performed. What a move allocates, the next one uses.
  struct Act {
    Worker* worker = nullptr;
    const Move* move = nullptr;
    std::vector<Piece> pieces;
    std::vector<std::uint32_t> received;                      // among messages_
    std::vector<SymbolicValue> own;                           // the own operand
    std::vector<const std::vector<SymbolicValue>*> operands;  // in rank order
    std::vector<Contribution> parts;                          // of one value
    std::vector<SymbolicValue> values;
    bool was_pushed = false;   // what was received is in the output already
    std::uint32_t pulled = 0;  // messages

    void begin(Worker& by);
  };

  void lay_out(const SymbolicMachine& machine);
  std::uint64_t size_of(std::uint64_t label) const;
  void bring_inputs();
  Status run_all();
  bool ready(const Worker& worker) const;
  Status perform(Worker& worker);
  Status claim_ends(const Act& act);
  Status receive(Act& act);
  Status read_where_it_lies(const Act& act, const SymbolicMessage& message,
                            const std::vector<CellAddress>& cells);
  Status check_landing(const Act& act, const SymbolicMessage& message);
  Status read_own(Act& act);
  Status reduce(Act& act);
  Status store(const Act& act);
  Status send(const Act& act);
  Status push(const Act& act, std::int32_t peer, SymbolicMessage& message);
  void add_own_cells(const Act& act, Delivery by, std::vector<CellAddress>& cells) const;
  std::uint32_t new_message();
  Delivery delivery_on(const Move& move, std::uint32_t fifo) const;
  // No wire leads from a rank to itself.
  bool is_carried(std::int32_t from, std::int32_t to) const {
    return machine_.delivering == DeliveryPolicy::carried && from != to;
  }
  SymbolicMemory& memory(std::int32_t rank) { return memories_[static_cast<std::size_t>(rank)]; }
  Status check_results();
  Status check_result(std::int32_t rank, std::uint32_t chunk);
  static std::string describe(const Worker& worker);
  Status deadlock(const std::vector<std::uint32_t>& blocked) const;

  std::span<const Plan> plans_;
  Contract contract_;
  Contributions contributions_;
  std::map<std::uint64_t, Contribution> results_;  // by label
  std::vector<Worker> workers_;
  std::vector<Fifo> fifos_;

  // Of the present run.
  SymbolicMachine machine_;
  Act act_;
  std::vector<SymbolicMessage> messages_;  // in FIFOs, and spare ones
  std::vector<std::uint32_t> spare_;
  std::vector<std::vector<Extent>> tables_;
  std::vector<Geometry> geometries_;  // by rank
  std::vector<SymbolicMemory> memories_;
  std::uint64_t switch_sums_ = 0, switch_stores_ = 0;
};

}  // namespace gyre::plan
