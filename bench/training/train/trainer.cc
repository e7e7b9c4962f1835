#include "bench/training/train/trainer.h"

#include "bench/training/failure.h"
#include "bench/training/train/checkpoint.h"
#include "bench/training/train/make_way.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

namespace gyre::training {
namespace {

// FNV-1a.
std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : text) hash = (hash ^ static_cast<std::uint8_t>(letter)) * 0x100000001b3;
  return hash;
}

}  // namespace

Trainer::Trainer(gyreComm_t comm, Model& model, const Options& options)
    : comm_(comm), model_(model), options_(options) {
  expect(gyreCommUserRank(comm, &rank_), comm);
  expect(gyreCommCount(comm, &ranks_), comm);
  check_agreement();
  if (const std::uint64_t wanted = options.batch * static_cast<std::uint64_t>(ranks_);
      model.examples() < wanted)
    fail("a step takes " + std::to_string(wanted) + " examples, and there are " +
         std::to_string(model.examples()) + ": choose a smaller --batch, or give more --data");
  if (rank_ == 0 && !options.checkpoint.empty()) expect_writable(options.checkpoint);
  way_ = make_way(comm, model, options.way());
  TrainingProgress progress;
  if (!options.resume.empty())
    progress = load_checkpoint(options.resume, comm,
                               CheckpointHead::of(model, options.optimizer, {}), *way_);
  examples_ = std::make_unique<Examples>(model.examples(), rank_, ranks_, options.seed,
                                         options.batch, progress);
}

// Ranks with other options would wait for each other, or learn something else.
void Trainer::check_agreement() const {
  const std::string told[] = {options_.agreed() + model_.description(), model_.data_text()};
  for (const auto& [text, what] : {std::pair(&told[0], "options"), {&told[1], "data"}}) {
    const std::uint64_t mine = hash_of(*text);
    std::vector<std::uint64_t> all(static_cast<std::size_t>(ranks_));
    expect(gyreAllGather(&mine, all.data(), 1, gyreUint64, comm_, nullptr), comm_);
    for (std::size_t rank = 1; rank < all.size(); ++rank)
      if (all[rank] != all[0])
        fail("rank " + std::to_string(rank) + " was given other " + what + " than rank 0");
  }
}

Curve Trainer::run() {
  const auto began = std::chrono::steady_clock::now();
  const auto now = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  bool is_done = examples_->progress().steps >= options_.steps;
  while (!is_done) {
    curve_.losses.push_back(take_step());
    curve_.seconds.push_back(now());
    const std::uint64_t steps = examples_->progress().steps;
    is_done = steps >= options_.steps;
    if (steps % options_.every == 0 || is_done) {
      if (way_->is_in_step()) sum_losses_up();
      check_losses();
      show_progress();
      is_done = is_done || is_good_enough();
    }
    if (options_.checkpoint_every > 0 && steps % options_.checkpoint_every == 0 && !is_done) save();
  }
  if (!curve_.seconds.empty())
    curve_.exposed_share = way_->exposed_seconds() / curve_.seconds.back();
  way_->settle();
  if (!way_->is_in_step()) sum_losses_up();
  test();
  if (!options_.checkpoint.empty()) save();
  return std::move(curve_);
}

double Trainer::take_step() {
  const double loss = model_.learn(examples_->next(), *way_);
  way_->step();
  return loss;
}

// This rank's losses since the last time become the means of all ranks'.
void Trainer::sum_losses_up() {
  double* const first = curve_.losses.data() + summed_up_;
  expect(gyreAllReduce(first, first, curve_.losses.size() - summed_up_, gyreDouble, gyreAvg, comm_,
                       nullptr),
         comm_);
  summed_up_ = curve_.losses.size();
}

void Trainer::check_losses() {
  const std::uint64_t steps_before = examples_->progress().steps - curve_.losses.size();
  for (; checked_ < curve_.losses.size(); ++checked_)
    if (!std::isfinite(curve_.losses[checked_]))
      fail("the loss is " + std::to_string(curve_.losses[checked_]) + " at step " +
           std::to_string(steps_before + checked_ + 1) + ": try a lower --rate");
}

void Trainer::show_progress() {
  const double seconds = curve_.seconds.back() - shown_seconds_;
  const double exposed = way_->exposed_seconds() - shown_exposed_;
  const std::uint64_t steps = examples_->progress().steps;
  const std::uint64_t before = steps - curve_.losses.size();
  const std::uint64_t last = std::max(before, (steps - 1) / options_.every * options_.every);
  const int counted = way_->is_in_step() ? ranks_ : 1;
  const auto examples = static_cast<double>((steps - last) * options_.batch) * counted;
  shown_seconds_ += seconds;
  shown_exposed_ += exposed;
  if (rank_ != 0) return;
  std::printf("step %6llu  loss %8.4f  %9.1f examples/s  exposed %5.1f %%\n",
              static_cast<unsigned long long>(steps), curve_.losses.back(), examples / seconds,
              100 * exposed / seconds);
  std::fflush(stdout);
}

bool Trainer::is_good_enough() const {
  constexpr std::ptrdiff_t most = 10;
  const auto count = std::min(most, static_cast<std::ptrdiff_t>(curve_.losses.size()));
  const double sum = std::accumulate(curve_.losses.end() - count, curve_.losses.end(), 0.0);
  return options_.has_until_loss && sum / static_cast<double>(count) < options_.until_loss;
}

void Trainer::save() {
  save_checkpoint(options_.checkpoint, comm_,
                  CheckpointHead::of(model_, options_.optimizer, examples_->progress()), *way_);
}

void Trainer::test() {
  const Score score = model_.test(rank_, ranks_, *way_);
  std::uint64_t both[] = {score.right, score.asked};
  expect(gyreAllReduce(both, both, 2, gyreUint64, gyreSum, comm_, nullptr), comm_);
  curve_.score = {both[0], both[1]};
}

}  // namespace gyre::training
