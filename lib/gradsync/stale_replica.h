// StaleReplica: a replica under bounded staleness. A thread of its own reduces its gradients, in
// rounds. A round does not wait for a rank that is computing. That rank applies the results of the
// missed rounds when it comes back.
#pragma once

#include "lib/gradsync/entrance.h"
#include "lib/gradsync/model_gradients.h"
#include "lib/gradsync/pace.h"
#include "lib/gradsync/stale_turn.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

namespace gyre::gradsync {

struct StaleOptions {
  std::uint64_t bound = 1;
  std::optional<std::int64_t> patience_ns;  // none: a quarter of the rank's last step
  int timeout_ms = GYRE_CONFIG_UNDEF_INT;
};

struct StaleStats {
  std::uint64_t rounds = 0, own_rounds = 0, max_staleness = 0;
  std::int64_t compute_ns = 0, exposed_ns = 0;
  Pace::Slowest slowest;
};

class StaleReplica {
 public:
  // Called for each round, with its mean in the tensors' gradients.
  using Apply = std::function<Status(const gyreGradRound_t&)>;

  static Result<std::unique_ptr<StaleReplica>> create(gyreComm_t comm, std::vector<Tensor> tensors,
                                                      const StaleOptions& options);
  ~StaleReplica();
  StaleReplica(const StaleReplica&) = delete;
  StaleReplica& operator=(const StaleReplica&) = delete;

  Status step(const Apply& apply);
  Status end(const Apply& apply);
  Result<StaleStats> stats();

 private:
  struct Outcome {
    std::unique_ptr<ModelGradients> gradients;
    gyreGradRound_t round;
  };

  StaleReplica(std::vector<Tensor> tensors, const StaleOptions& options);
  Status open(gyreComm_t comm);

  // Of the caller's thread.
  Status apply_until(const Apply& apply, const std::function<bool()>& is_over);
  Status apply_one(const Apply& apply, Outcome outcome);

  // Of the thread that reduces.
  void run();
  Status turn_by_turn();
  StaleEntry entry();
  void sleep_for_a_turn(bool somebody_waits);
  Status run_round(std::span<const StaleEntry> table);
  std::unique_ptr<ModelGradients> begin_round(gyreGradRound_t& round);
  Status why(std::span<const StaleEntry> table) const;

  const std::vector<Tensor> tensors_;
  const StaleOptions options_;
  OwnedCommunicator data_, control_;  // used by the thread alone, once it runs
  std::size_t rank_ = 0;
  std::int64_t timeout_ns_ = 0;
  Entrance entrance_;  // of callers

  std::mutex mutex_;  // of all that follows
  std::condition_variable changed_;
  std::vector<std::unique_ptr<ModelGradients>> free_;
  std::unique_ptr<ModelGradients> staged_;  // this rank's, while it is ready
  std::deque<Outcome> outcomes_;            // not applied yet
  StaleState state_ = StaleState::computing;
  std::uint64_t base_ = 0, applied_ = 0;
  std::int64_t step_ended_ns_ = 0, compute_ns_ = 0, ready_ns_ = 0;
  bool is_over_ = false;  // the thread has ended
  Status broken_;
  StaleStats stats_;
  Pace pace_{1};

  std::thread thread_;
};

}  // namespace gyre::gradsync
