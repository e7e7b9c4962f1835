// The loop over steps, on one rank.
#pragma once

#include "bench/training/train/examples.h"
#include "bench/training/train/options.h"

#include <memory>
#include <vector>

namespace gyre::training {

struct Curve {
  // Of each step: the mean loss of all ranks' examples, and when it ended, since the first began.
  std::vector<double> losses, seconds;
  double exposed_share = 0;  // of the time, waiting for other ranks
  Score score;
};

class Trainer {
 public:
  // All of them outlive the trainer. Collective.
  Trainer(gyreComm_t comm, Model& model, const Options& options);
  Curve run();

 private:
  void check_agreement() const;
  double take_step();
  void sum_losses_up();
  void check_losses();
  void show_progress();
  bool is_good_enough() const;
  void save();
  void test();

  const gyreComm_t comm_;
  Model& model_;
  const Options& options_;
  int rank_ = 0, ranks_ = 1;
  std::unique_ptr<Way> way_;
  std::unique_ptr<Examples> examples_;
  Curve curve_;
  std::size_t summed_up_ = 0;  // of curve_.losses; the rest are of this rank alone
  std::size_t checked_ = 0;    // of them: numbers
  double shown_seconds_ = 0, shown_exposed_ = 0;
};

}  // namespace gyre::training
