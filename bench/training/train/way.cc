#include "bench/training/train/way.h"

#include "bench/training/train/replicas.h"
#include "bench/training/train/shards.h"

namespace gyre::training {

std::unique_ptr<Way> make_way(gyreComm_t comm, const Model& model, const WayOptions& options) {
  const bool shares_out = options.parallel == Parallel::zero1 ||
                          options.parallel == Parallel::zero2 ||
                          options.parallel == Parallel::zero3;
  if (shares_out) return std::make_unique<Shards>(comm, model, options);
  return std::make_unique<Replicas>(comm, model, options);
}

}  // namespace gyre::training
