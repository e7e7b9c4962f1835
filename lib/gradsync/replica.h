// Replica: one rank's copy of a model. Its gradients go into buckets as they become ready. Full
// buckets are reduced beside the backward pass, and the end of a step waits for them.
#pragma once

#include "lib/gradsync/completions.h"
#include "lib/gradsync/entrance.h"
#include "lib/gradsync/live_bucket.h"
#include "lib/gradsync/pace.h"
#include "lib/gradsync/step_consensus.h"

#include <memory>
#include <optional>

namespace gyre::gradsync {

struct ReplicaOptions {
  BucketLimits limits;
  gyreRedOp_t op = gyreAvg;
  std::optional<ElementType> wire;
  bool observes_order = true;
  bool finds_unused = false;
  bool divides_by_active = false;
  int server = GYRE_GRAD_NO_SERVER;
  int timeout_ms = GYRE_CONFIG_UNDEF_INT;
};

struct ReplicaStats {
  std::uint64_t steps = 0, buckets = 0, layout = 0, wire_bytes = 0;
  std::int64_t compute_ns = 0, communication_ns = 0, exposed_ns = 0;
  Pace::Slowest slowest;
};

class Replica {
 public:
  static Result<std::unique_ptr<Replica>> create(gyreComm_t comm, std::vector<Tensor> tensors,
                                                 const ReplicaOptions& options);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  Result<void*> view(std::size_t tensor);
  Status ready(std::size_t tensor, gyreStream_t stream);
  Status unused(std::size_t tensor);
  Status wait();
  Result<bool> was_used(std::size_t tensor);
  Status set_sync(bool sync);
  Status join();
  Status broadcast_arrays(std::span<const Tensor> arrays, int root);
  Status compare_parameters();
  Status return_parameters();
  Status average_parameters();
  Status set_hook(const gyreGradHook_t* hook);
  Result<ReplicaStats> stats();

 private:
  // What became of a tensor's gradient in this step.
  enum class GradientState : std::uint8_t { none, ready, unused };
  struct BucketProgress {
    LiveBucket bucket;
    std::size_t waiting = 0;    // tensors that are not delivered
    std::int64_t begun_ns = 0;  // its reduction
    std::uint64_t ending = 0;   // its number among completions
  };
  struct TensorPlace {
    std::size_t bucket, slice;
  };

  Replica(std::vector<Tensor> tensors, const ReplicaOptions& options)
      : tensors_(std::move(tensors)), options_(options) {}
  Status open(gyreComm_t comm);
  Status agree_with_peers();

  Status usable() const;
  Status idle() const;
  const LiveBucket& bucket_of(std::size_t tensor) const;
  const Slice& slice_of(std::size_t tensor) const;
  gyreGradBucket_t show(std::size_t index, std::vector<std::size_t>& tensors) const;

  // Of a step.
  Status deliver(std::size_t tensor, GradientState delivery);
  void begin_full_buckets();
  Status begin_bucket(std::size_t index);
  Status begin_reduction(const LiveBucket& bucket);
  std::int64_t end_compute();
  void take_pace(const StepConsensus& call);
  ConsensusEntry deliver_the_rest();
  Status settle(const StepConsensus& call);
  // This rank's outcome of its buckets; if hooks reduced them, an error of any rank is one of all.
  Status confirm(const StepConsensus& call, Status mine) const;
  Status gather_used();
  Status finish_buckets(float factor);
  Status finish_bucket(std::size_t index, float factor);
  void begin_step();
  Status verdict(const StepConsensus& call) const;
  Status give_up(Status why);
  std::string waiting_for() const;
  Status end_join(const StepConsensus& call);

  // Of the layout.
  Status lay_out_by(std::span<const std::size_t> order);
  Status lay_out_as_observed();

  const std::vector<Tensor> tensors_;
  const ReplicaOptions options_;
  OwnedCommunicator data_, control_;  // buckets; what ranks tell each other
  OwnedStream stream_;                // of `data_`

  Entrance entrance_;  // to all that follows
  std::vector<BucketProgress> buckets_;
  std::vector<TensorPlace> places_;  // by tensor
  std::vector<GradientState> deliveries_;
  std::vector<std::uint8_t> used_;     // by any rank, in the last step
  std::vector<std::size_t> observed_;  // the order of the first step
  std::size_t next_ = 0;               // bucket to begin
  Completions completions_;
  Status failure_;  // of this step, on this rank
  Status broken_;   // for good
  bool syncs_ = true;
  bool is_laid_out_ = false;  // for good
  gyreGradHook_t hook_{};
  std::uint64_t steps_done_ = 0;  // that this rank had data for
  ReplicaStats stats_;
  Pace pace_{1};
  std::int64_t step_ended_ns_ = 0;
};

}  // namespace gyre::gradsync
