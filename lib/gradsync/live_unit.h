// LiveUnit: a unit of a sharded model with its memory. This rank keeps a part of it always. Another
// part exists only while the unit is gathered, or while its gradients are not reduced yet.
#pragma once

#include "kernels/cpu/elementwise.h"
#include "lib/gradsync/buffer_pool.h"
#include "lib/gradsync/shard_layout.h"

#include <optional>

namespace gyre::gradsync {

// What is kept for each parameter beside it.
struct StateLayout {
  int stage = 3;
  int states = 2;  // of the optimizer: 0, 1 or 2 arrays
};

class LiveUnit {
 public:
  // This rank's share is number `share`.
  static Result<LiveUnit> make(UnitLayout layout, std::uint64_t share, StateLayout keeps);

  const UnitLayout& layout() const { return layout_; }
  const std::vector<ShardPiece>& pieces() const { return pieces_; }

  // Parameters, all of them: there if is_whole().
  bool is_whole() const { return whole_.has_value(); }
  std::byte* whole() const { return static_cast<std::byte*>(whole_.get()); }
  // This rank's share of them, in their type; and in float32.
  std::byte* share() const;
  float* master() const;
  float* state(int which) const;
  // Whoever filled `whole` in: this rank's share is what lies there.
  void adopt_whole();
  // The float32 values as rounded to the parameters' type.
  void narrow_master();

  // Gradients, all of them: there if has_gradients(). And this rank's share of the mean.
  bool has_gradients() const { return gradients_.has_value(); }
  std::byte* gradients() const { return static_cast<std::byte*>(gradients_.get()); }
  std::byte* gradient_share() const;

  // Where a tensor of it lies.
  std::byte* place(std::byte* base, std::size_t tensor) const;

  // In stage 3 `whole`, in stages 2 and 3 `gradients`, come and go.
  Status take_whole(BufferPool& pool);
  void give_whole_back(BufferPool& pool) { pool.give_back(std::move(whole_)); }
  Status take_gradients(BufferPool& pool);
  void give_gradients_back(BufferPool& pool) { pool.give_back(std::move(gradients_)); }
  void clear_gradients();

  // Of a step.
  std::size_t waiting = 0;                 // gradients that are not ready
  bool is_cleared = false;                 // its gradients' memory is this step's
  std::optional<std::uint64_t> gathering;  // number of a completion that `whole` waits for
  std::optional<std::uint64_t> reducing;   // the same for gradient_share

 private:
  UnitLayout layout_;
  std::vector<ShardPiece> pieces_;
  std::uint64_t share_number_ = 0;
  SharedMemory whole_, share_, gradients_, gradient_share_;
  // Nobody else's, so without a descriptor: float32 copies, none if the parameters are; and states.
  Mapping master_, states_[2];
};

}  // namespace gyre::gradsync
