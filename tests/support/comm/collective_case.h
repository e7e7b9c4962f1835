// One call of a collective on n ranks of this process, its buffers, and their expected contents.
// These come from a description of each collective that shares no code with the library.
#pragma once

#include "lib/base/element.h"
#include <gyre/gyre.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gyre::tests {

enum class Function {
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  all_to_all,
  gather,
  scatter,
  all_to_all_v,
  all_gather_v,
  reduce_scatter_v,
  all_reduce,
};

struct CollectiveCase {
  Function function = Function::all_gather;
  int ranks = 1;
  ElementType type = ElementType::float32;
  ReduceOp op = ReduceOp::sum;
  bool in_place = false;
  std::size_t count = 0;
  std::size_t shift = 0;  // elements by which buffers are misaligned
  int root = 0;

  // An op that the type has, a placement that the collective allows.
  bool is_legal() const;
  bool sums() const;
  std::string shown() const;
  const char* name() const;
};

class CaseBuffers {
 public:
  explicit CaseBuffers(const CollectiveCase& one);
  // As they were before the first call.
  void renew();
  gyreResult_t call(int rank, gyreComm_t comm, gyreStream_t stream = nullptr);
  // For calls on memory elsewhere: a block of host memory that is copied there before them and back
  // after them, and where it lies there.
  std::size_t blocks() const { return 2 * memory_.size(); }
  std::span<std::byte> block(std::size_t index);
  void place(std::size_t index, std::byte* elsewhere) {
    std::atomic_ref(places_[index]).store(elsewhere, std::memory_order_relaxed);
  }
  // After all ranks have called: what is wrong with that rank's memory; empty if nothing is.
  std::string wrong(int rank) const;

 private:
  // So many elements of the output are those of a rank's input, or all ranks' reduced.
  struct Expected {
    static constexpr int all = -1;
    std::size_t output_first, count;
    int source;
    std::size_t input_first;
  };
  struct Side {
    std::vector<std::size_t> counts, displacements;
    std::size_t end() const;
  };
  std::size_t at(int rank) const { return static_cast<std::size_t>(rank); }
  std::size_t uneven(int from, int to) const;
  Side side(int rank, bool output) const;
  std::size_t input_count(int rank) const;
  std::size_t output_count(int rank) const;
  std::vector<Expected> expected(int rank) const;
  // The first element that is not what is expected, or expected.count.
  std::size_t first_wrong(const Expected& expected, const std::byte* got) const;
  std::byte* placed(std::byte* pointer);
  gyreResult_t call_even(int rank, gyreRedOp_t op, gyreComm_t comm, gyreStream_t stream);
  gyreResult_t call_uneven(int rank, gyreRedOp_t op, gyreComm_t comm, gyreStream_t stream);

  const CollectiveCase case_;
  const std::size_t size_;  // of an element
  std::vector<std::vector<std::byte>> memory_, other_memory_, originals_;
  std::vector<std::byte*> inputs_, outputs_;
  std::vector<std::byte*> places_;  // by block; null: where it is
};

}  // namespace gyre::tests
