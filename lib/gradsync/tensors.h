// The tensors of a model: the caller's list, checked, and the check that all ranks gave the same.
#pragma once

#include "lib/base/element.h"
#include "lib/gradsync/gyre_objects.h"
#include <gyre/gradsync.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::gradsync {

struct Tensor {
  std::string name;
  std::uint64_t count = 0;  // elements
  ElementType type = ElementType::float32;
  void* parameter = nullptr;
  void* gradient = nullptr;
  std::size_t unit = 0;  // of a sharded model

  std::uint64_t bytes() const { return count * element_bytes(type); }
};

Result<std::vector<Tensor>> read_tensors(const gyreGradTensor_t tensors[], std::size_t count);
Result<std::vector<Tensor>> read_tensors(const gyreGradShardTensor_t tensors[], std::size_t count);
// A caller's number of a tensor.
Status check_index(std::span<const Tensor> tensors, std::size_t index);
// "tensor 3 'fc.weight'"
std::string call_by_name(std::span<const Tensor> tensors, std::size_t index);

// A number that has to be the same on all ranks, and how a person calls it.
struct ComparedNumber {
  std::string_view name;
  std::int64_t value;
};
// Collective. gyreMismatch on every rank, with the first difference from rank 0, if there is one.
Status agree(gyreComm_t comm, std::span<const ComparedNumber> settings);
Status agree(gyreComm_t comm, std::span<const ComparedNumber> settings,
             std::span<const Tensor> tensors);

// Rank `root`'s parameters to all. Collective.
Status broadcast(gyreComm_t comm, std::span<const Tensor> tensors, int root);
// Parameters of float types become their mean over all ranks. Collective.
Status average(gyreComm_t comm, std::span<const Tensor> tensors);
// gyreMismatch on every rank, with the first parameter whose bits differ from rank 0's. Collective.
Status compare(gyreComm_t comm, std::span<const Tensor> tensors);

}  // namespace gyre::gradsync
