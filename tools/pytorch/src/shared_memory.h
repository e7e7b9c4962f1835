// Memory of tensors, of the CPU and of CUDA devices, that Gyre's peers on this host reach directly.
// Other memory is copied through slots. Blocks that tensors release are kept for the next tensor of
// the same size. Sharded models ask for the same sizes in each step, and every peer has to map a
// new block.
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
