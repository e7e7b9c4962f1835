// A covering array: few rows in which every pair of values of any two axes occurs at least once.
// Greedy and seeded, so the same rows each time; the whole product is for the long suites.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace gyre::tests {

using Row = std::vector<std::size_t>;  // one index per axis

inline std::vector<Row> whole_product(const std::vector<std::size_t>& axes) {
  std::vector<Row> rows = {{}};
  for (const std::size_t size : axes) {
    std::vector<Row> longer;
    for (const Row& row : rows)
      for (std::size_t value = 0; value < size; ++value) {
        longer.push_back(row);
        longer.back().push_back(value);
      }
    rows = std::move(longer);
  }
  return rows;
}

class Pairs {
 public:
  explicit Pairs(const std::vector<std::size_t>& axes) : axes_(axes) {
    for (std::size_t a = 0; a < axes.size(); ++a)
      for (std::size_t b = a + 1; b < axes.size(); ++b) {
        open_.emplace_back(axes[a] * axes[b], true);
        left_ += axes[a] * axes[b];
      }
  }
  std::size_t left() const { return left_; }
  std::size_t gain(const Row& row) const {
    std::size_t sum = 0;
    visit(row, [&](std::size_t table, std::size_t cell) { sum += open_[table][cell]; });
    return sum;
  }
  void take(const Row& row) {
    visit(row, [&](std::size_t table, std::size_t cell) {
      left_ -= open_[table][cell];
      open_[table][cell] = false;
    });
  }
  // A row that covers at least one open pair, the rest at random.
  Row seed_row(std::mt19937_64& random) const {
    Row row;
    for (const std::size_t size : axes_) row.push_back(random() % size);
    std::size_t table = 0;
    for (std::size_t a = 0; a < axes_.size(); ++a)
      for (std::size_t b = a + 1; b < axes_.size(); ++b, ++table)
        for (std::size_t cell = 0; cell < open_[table].size(); ++cell)
          if (open_[table][cell]) {
            row[a] = cell / axes_[b];
            row[b] = cell % axes_[b];
            return row;
          }
    return row;
  }

 private:
  template <typename Visit>
  void visit(const Row& row, Visit&& act) const {
    std::size_t table = 0;
    for (std::size_t a = 0; a < axes_.size(); ++a)
      for (std::size_t b = a + 1; b < axes_.size(); ++b, ++table)
        act(table, row[a] * axes_[b] + row[b]);
  }
  std::vector<std::size_t> axes_;
  std::vector<std::vector<bool>> open_;  // by pair of axes
  std::size_t left_ = 0;
};

inline std::vector<Row> covering_array(const std::vector<std::size_t>& axes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Pairs pairs(axes);
  std::vector<Row> rows;
  while (pairs.left() > 0) {
    Row best = pairs.seed_row(random);
    for (int attempt = 0; attempt < 30; ++attempt) {
      Row row = pairs.seed_row(random);
      if (pairs.gain(row) > pairs.gain(best)) best = std::move(row);
    }
    pairs.take(best);
    rows.push_back(std::move(best));
  }
  return rows;
}

}  // namespace gyre::tests
