// Shards: a model that the ranks of a group share. Units are gathered when their parameters are
// needed. Their gradients are reduced to each rank's share beside the backward pass. A step updates
// the shares.
#pragma once

#include "lib/gradsync/completions.h"
#include "lib/gradsync/entrance.h"
#include "lib/gradsync/exact_sum.h"
#include "lib/gradsync/live_unit.h"
#include "lib/gradsync/step_consensus.h"

#include <memory>
#include <variant>

namespace gyre::gradsync {

struct ShardOptions {
  int stage = 3;
  int factor = 0;  // 0: all ranks
  gyreGradOptimizer_t optimizer = gyreGradAdamW;
  bool has_momentum = false;
  int prefetch = 1;
  int timeout_ms = GYRE_CONFIG_UNDEF_INT;
  int (*initialize)(void* user, std::size_t tensor, void* values) = nullptr;
  void* user = nullptr;
};

struct ShardStepResult {
  double norm = 0;
  bool overflow = false;
  std::uint64_t step = 0;
  std::uint64_t moved_bytes = 0;
  std::int64_t exposed_ns = 0;
};

class Shards {
 public:
  static Result<std::unique_ptr<Shards>> create(gyreComm_t comm, std::vector<Tensor> tensors,
                                                const ShardOptions& options);
  ~Shards();
  Shards(const Shards&) = delete;
  Shards& operator=(const Shards&) = delete;

  Status gather(std::size_t unit);
  Status release(std::size_t unit);
  Result<void*> parameter(std::size_t tensor);
  Result<void*> gradient(std::size_t tensor);
  Status ready(std::size_t tensor);
  Result<ShardStepResult> step(const gyreGradStep_t& step);
  Result<std::vector<gyreGradPiece_t>> pieces();
  Status imported(std::uint64_t step);

 private:
  // A stream with its communicator, and when its entries were done.
  struct CommStream {
    OwnedCommunicator comm;
    OwnedStream stream;
    Completions completions;
  };

  Shards(std::vector<Tensor> tensors, const ShardOptions& options, std::vector<UnitLayout> layouts);
  Status open(gyreComm_t comm);
  Status open_channels(gyreComm_t comm);
  Status agree_with_peers();
  Status initialize();
  Status initialize_unit(LiveUnit& unit);

  Status usable() const;
  Status known_unit(std::size_t unit) const;

  // Parameters.
  Status begin_gather(LiveUnit& unit);
  Status finish_gather(LiveUnit& unit);
  Status finish_gathers();
  Status prefetch_after(std::size_t unit);
  Status spread_parameters();
  Status gather_unit(std::size_t index);
  Status release_all();

  // Gradients.
  Status open_gradients(LiveUnit& unit);
  Status deliver(std::size_t tensor);
  Status begin_reductions();
  Status begin_reduction(LiveUnit& unit);
  Status finish_reduction(LiveUnit& unit);
  void recycle_gradients(bool waits);

  // A step.
  Result<StepConsensus> hold_consensus(const ConsensusEntry& mine);
  ConsensusEntry deliver_the_rest();
  Status verdict(const StepConsensus& call) const;
  // Waits for all that the pass has begun.
  Status finish_pass();
  // This rank's outcome of that; an error of any rank is one of all.
  Status confirm(Status mine);
  Result<ExactSum> sum_squares();
  Status update(const gyreGradStep_t& step, float factor);
  Status update_unit(LiveUnit& unit, const gyreGradStep_t& step, float factor);
  Status update_by_caller(LiveUnit& unit, const gyreGradStep_t& step, float factor);
  gyreGradPiece_t show(const LiveUnit& unit, const ShardPiece& piece) const;
  void begin_step();
  // Waits for entry `number` of a channel.
  gyreResult_t wait_for(CommStream& channel, std::uint64_t number);
  void count_moved(std::uint64_t bytes, std::uint64_t ranks);
  Status give_up(Status why);
  // The same of what failed outside a consensus: other ranks may not know.
  Status give_up_alone(Status why);
  void abort_channels();

  const std::vector<Tensor> tensors_;
  const ShardOptions options_;
  const std::vector<UnitLayout> layouts_;
  OwnedCommunicator control_;   // all ranks
  OwnedCommunicator replicas_;  // those with the same share; none if there is one group
  CommStream gathers_, reductions_;

  Entrance entrance_;  // to all that follows
  BufferPool parameter_pool_, gradient_pool_;
  std::vector<LiveUnit> units_;
  std::vector<std::uint8_t> is_ready_;     // by tensor
  std::size_t reduced_ = 0;                // units whose reductions have begun, from the last one
  std::vector<std::size_t> gather_order_;  // of a whole step
  std::vector<std::size_t> gathered_;      // in this step
  std::uint64_t gather_trace_ = 0;         // what was gathered in this step, in order
  std::uint64_t steps_done_ = 0;
  std::uint64_t moved_bytes_ = 0;  // since the last step
  std::int64_t exposed_ns_ = 0;    // the same
  Status failure_, broken_;
};

}  // namespace gyre::gradsync
