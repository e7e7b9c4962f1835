// Pace: how long each rank computes for a step, from the times that the ranks exchange. It finds
// the slowest rank (the straggler).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gyre::gradsync {

class Pace {
 public:
  struct Slowest {
    int rank = -1;              // -1: nothing is known yet, or there is one rank
    double seconds = 0;         // its mean over all steps
    double others_seconds = 0;  // the mean of the other ranks' means
  };

  explicit Pace(std::size_t ranks) : ranks_(ranks) {}

  void add(std::size_t rank, std::int64_t compute_ns) {
    ranks_[rank].total_ns += compute_ns;
    ++ranks_[rank].steps;
  }

  Slowest slowest() const {
    Slowest found;
    double all = 0;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].steps == 0 || ranks_.size() == 1) return {};
      const double mean = static_cast<double>(ranks_[rank].total_ns) * 1e-9 /
                          static_cast<double>(ranks_[rank].steps);
      all += mean;
      if (mean > found.seconds) found = {.rank = static_cast<int>(rank), .seconds = mean};
    }
    found.others_seconds = (all - found.seconds) / static_cast<double>(ranks_.size() - 1);
    return found;
  }

 private:
  struct RankPace {
    std::int64_t total_ns = 0;
    std::uint64_t steps = 0;
  };
  std::vector<RankPace> ranks_;
};

}  // namespace gyre::gradsync
