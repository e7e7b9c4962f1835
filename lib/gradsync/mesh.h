// A mesh: ranks in a grid with named axes, and the communicators of its lines.
#pragma once

#include "lib/gradsync/gyre_objects.h"
#include <gyre/gradsync.h>

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace gyre::gradsync {

struct MeshAxis {
  std::string name;
  int size = 1;
};

class Mesh {
 public:
  static constexpr std::size_t max_axes = 16;
  // Of 1 to max_axes axes.
  static Result<std::unique_ptr<Mesh>> create(gyreComm_t comm, std::vector<MeshAxis> axes);

  // Of the ranks that differ from this one along these axes alone.
  Result<gyreComm_t> line(std::span<const char* const> names);
  Result<std::size_t> axis(const char* name) const;
  int place(std::size_t axis) const { return places_[axis]; }
  int size(std::size_t axis) const { return axes_[axis].size; }
  Result<int> rank_at(const int places[]) const;

 private:
  explicit Mesh(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {}
  Status open(gyreComm_t comm);
  Status agree_with_peers() const;
  Status agree_on_names() const;
  Result<gyreComm_t> split_along(std::uint64_t axes);

  const std::vector<MeshAxis> axes_;
  std::vector<int> places_;  // this rank's, by axis
  OwnedCommunicator all_;

  std::mutex mutex_;
  std::map<std::uint64_t, OwnedCommunicator> lines_;  // by the set of axes, a bit for each
};

}  // namespace gyre::gradsync
