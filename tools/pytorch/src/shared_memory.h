// Memory of tensors, of the CPU and of CUDA devices, that Gyre's peers on this host reach directly,
// where other memory is copied through slots. Blocks that tensors let go of are kept for the next
// ones of their size: sharded models ask for the same sizes in each step, and a new block has to be
// mapped by every peer.
#pragma once

#include <ATen/core/Tensor.h>
#include <cstddef>

namespace gyre_torch {

// `count` elements, not set. Throws where there is no memory.
at::Tensor allocate_shared(std::int64_t count, const at::TensorOptions& options);

// Moves all that the tensor's storage holds to such memory, if it is on the CPU and not there
// already: every tensor that shares the storage moves along. Nobody may be using it meanwhile, nor
// hold an address in it (as an array of NumPy does). Throws where there is no memory.
void move_to_shared(const at::Tensor& tensor);

}  // namespace gyre_torch
