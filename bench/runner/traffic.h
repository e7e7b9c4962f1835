// Traffic: how much each rank sends to each in a collective with uneven blocks, as in nccl-tests'
// alltoallv_perf: a matrix from a file, or more to ranks that are further away. Every rank computes
// the whole matrix, so that it knows what it must receive.
#pragma once

#include "lib/base/status.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::bench {

struct Shape;

// One rank's arguments: elements, and where they begin, one after the other in rank order.
struct Counts {
  std::vector<std::size_t> send, send_displacements, recv, recv_displacements;
};

class Traffic {
 public:
  // A row's size is divided among the ranks: evenly at `spread` 0; by distance (to - from, modulo
  // the number of ranks), nothing to oneself, at 1; and in proportion between.
  explicit Traffic(double spread) : spread_(spread) {}
  // Bytes from rank i to rank j in line i, column j, each multiplied by `scale`. Lines of equal
  // length, as many as columns; `name` is for errors.
  static Result<Traffic> parse(std::string_view matrix, double scale, const std::string& name);
  // By the variables ALLTOALLV_MATRIX_FILE, _MATRIX_SCALE and _SPREAD of the tests.
  static Result<Traffic> from_environment();

  // A matrix says its sizes itself: it needs one size in the table, room for the fullest rank, and
  // a line for each rank.
  Status fits(int ranks, std::uint64_t min_bytes, std::uint64_t max_bytes) const;

  bool generated() const { return side_ == 0; }
  std::uint64_t elements(const Shape& shape, int from, int to) const;
  // All that `rank` sends, and all that it receives.
  std::uint64_t sent(const Shape& shape, int rank) const;
  std::uint64_t received(const Shape& shape, int rank) const;
  // Where in `from`'s send buffer its block for `to` begins.
  std::uint64_t send_offset(const Shape& shape, int from, int to) const;
  Counts counts(const Shape& shape, int rank) const;

  // The lines of ALLTOALLV_PRINT_SUMMARY for an operation that took `seconds`.
  std::vector<std::string> summary(const Shape& shape, double seconds) const;

 private:
  std::uint64_t bytes(const Shape& shape, int from, int to) const;

  double spread_ = 1;
  double scale_ = 1;
  std::string name_;
  int side_ = 0;  // of the matrix; 0: generated
  std::vector<std::uint64_t> matrix_;
};

// ALLTOALLV_PRINT_SUMMARY.
Result<bool> summary_wanted();

}  // namespace gyre::bench
