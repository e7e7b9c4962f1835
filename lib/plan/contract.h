// Contract: the promise of each collective: which ranks bring a chunk, which get it, and whose
// contributions are in it.
#pragma once

#include "lib/plan/plan.h"

#include <cstdint>
#include <vector>

namespace gyre::plan {

class Contract {
 public:
  explicit Contract(const Plan& plan);

  bool brings(std::int32_t rank, std::uint32_t chunk) const {
    return is(promise_.brings, rank, chunk);
  }
  bool gets(std::int32_t rank, std::uint32_t chunk) const { return is(promise_.gets, rank, chunk); }
  // The ranks whose contributions make up a chunk of an output, ascending.
  std::vector<std::int32_t> contributors(std::uint32_t chunk) const;
  // Names the data in a chunk of a buffer: equal names, equal data. In an all-to-all each pair of
  // source and target has its own.
  std::uint64_t label(Buffer buffer, std::int32_t rank, std::uint32_t chunk) const;

  bool sums() const { return promise_.within == Who::all; }
  bool pairs() const { return collective_ == Collective::all_to_all; }

 private:
  enum class Who : std::uint8_t { all, owner, root };
  struct Promise {
    Who brings = Who::all;
    Who gets = Who::all;
    Who within = Who::all;
  };

  bool is(Who who, std::int32_t rank, std::uint32_t chunk) const;

  Collective collective_;
  std::int32_t rank_count_;
  std::int32_t root_;
  std::vector<std::int32_t> owners_;
  Promise promise_;
};

}  // namespace gyre::plan
