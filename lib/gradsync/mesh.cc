#include "lib/gradsync/mesh.h"

#include "lib/gradsync/tensors.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace gyre::gradsync {
namespace {

constexpr std::size_t name_bytes = 32;  // with the zero at its end

// The axis of size -1 gets what the others leave.
Status complete(std::vector<MeshAxis>& axes, int ranks) {
  MeshAxis* open = nullptr;
  int product = 1;
  for (MeshAxis& axis : axes) {
    if (axis.size == -1 && open == nullptr) {
      open = &axis;
      continue;
    }
    if (axis.size < 1 || axis.size > ranks || product > ranks / axis.size)
      return invalid_argument(
          fmt::format("axis '{}' of size {} does not fit {} ranks", axis.name, axis.size, ranks));
    product *= axis.size;
  }
  if (open != nullptr && ranks % product == 0) open->size = ranks / product;
  if (open == nullptr ? product == ranks : ranks % product == 0) return {};
  return invalid_argument(fmt::format(
      "the sizes of the axes multiply to {}, which does not fit {} ranks", product, ranks));
}

Status check_names(std::span<const MeshAxis> axes) {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].name.empty() || axes[i].name.size() >= name_bytes)
      return invalid_argument(fmt::format("axis {}: '{}' is no name of 1 to {} characters", i,
                                          axes[i].name, name_bytes - 1));
    for (std::size_t j = 0; j < i; ++j)
      if (axes[j].name == axes[i].name)
        return invalid_argument(
            fmt::format("axes {} and {} are both called '{}'", j, i, axes[i].name));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Mesh>> Mesh::create(gyreComm_t comm, std::vector<MeshAxis> axes) {
  GYRE_TRY(check_names(axes));
  GYRE_TRY(complete(axes, size_of(comm)));
  std::unique_ptr<Mesh> made(new Mesh(std::move(axes)));
  GYRE_TRY(made->open(comm));
  return made;
}

Status Mesh::open(gyreComm_t comm) {
  GYRE_ASSIGN(all_, split_off(comm, 0, "mesh", GYRE_CONFIG_UNDEF_INT));
  GYRE_TRY(agree_with_peers().while_doing("comparing the ranks' axes"));
  int rest = rank_of(comm);
  places_.resize(axes_.size());
  for (std::size_t axis = axes_.size(); axis-- > 0; rest /= axes_[axis].size)
    places_[axis] = rest % axes_[axis].size;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis)
    GYRE_TRY(split_along(std::uint64_t{1} << axis).status());
  return {};
}

Status Mesh::agree_with_peers() const {
  const ComparedNumber number[] = {{"the number of axes", static_cast<std::int64_t>(axes_.size())}};
  GYRE_TRY(agree(all_.get(), number));
  std::vector<std::string> names;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis)
    names.push_back(fmt::format("the size of axis {}", axis));
  std::vector<ComparedNumber> sizes;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis)
    sizes.push_back({names[axis], axes_[axis].size});
  GYRE_TRY(agree(all_.get(), sizes));
  return agree_on_names();
}

Status Mesh::agree_on_names() const {
  using Name = std::array<char, name_bytes>;
  std::vector<Name> mine(axes_.size(), Name{});
  for (std::size_t axis = 0; axis < axes_.size(); ++axis)
    axes_[axis].name.copy(mine[axis].data(), name_bytes - 1);
  std::vector<Name> all;
  GYRE_TRY(all_gather<Name>(all_.get(), mine, all));
  for (std::size_t i = mine.size(); i < all.size(); ++i) {
    if (all[i] == all[i % mine.size()]) continue;
    const int rank = static_cast<int>(i / mine.size());
    all[i].back() = all[i % mine.size()].back() = 0;
    return Status(Code::Mismatch,
                  fmt::format("axis {} is '{}' on rank 0 and '{}' on rank {}", i % mine.size(),
                              all[i % mine.size()].data(), all[i].data(), rank))
        .blame({rank});
  }
  return {};
}

Result<gyreComm_t> Mesh::split_along(std::uint64_t axes) {
  // A line is told by its ranks' places along the other axes.
  int color = 0;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis)
    if ((axes >> axis & 1) == 0) color = color * axes_[axis].size + places_[axis];
  GYRE_ASSIGN(OwnedCommunicator line,
              split_off(all_.get(), color, "mesh-line", GYRE_CONFIG_UNDEF_INT));
  const gyreComm_t comm = line.get();
  lines_[axes] = std::move(line);
  return comm;
}

Result<gyreComm_t> Mesh::line(std::span<const char* const> names) {
  std::uint64_t axes = 0;
  for (const char* name : names) {
    GYRE_ASSIGN(const std::size_t one, axis(name));
    axes |= std::uint64_t{1} << one;
  }
  const std::lock_guard lock(mutex_);
  const auto found = lines_.find(axes);
  if (found != lines_.end()) return found->second.get();
  return split_along(axes);
}

Result<std::size_t> Mesh::axis(const char* name) const {
  if (name == nullptr) return invalid_argument("the axis's name is NULL");
  std::string known;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    if (axes_[axis].name == name) return axis;
    known += (axis == 0 ? "" : ", ") + axes_[axis].name;
  }
  return invalid_argument(fmt::format("there is no axis '{}'; there are {}", name, known));
}

Result<int> Mesh::rank_at(const int places[]) const {
  int rank = 0;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    if (places[axis] < 0 || places[axis] >= axes_[axis].size)
      return invalid_argument(fmt::format("place {} along '{}' is not from 0 to {}", places[axis],
                                          axes_[axis].name, axes_[axis].size - 1));
    rank = rank * axes_[axis].size + places[axis];
  }
  return rank;
}

}  // namespace gyre::gradsync
