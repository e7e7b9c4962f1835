#include "bench/training/train/make_way.h"

#include "bench/training/train/replicas.h"
#include "bench/training/train/shards.h"
#include "bench/training/train/stale.h"

namespace gyre::training {

std::unique_ptr<Way> make_way(gyreComm_t comm, const Model& model, const WayOptions& options) {
  switch (options.parallel) {
    case Parallel::zero1:
    case Parallel::zero2:
    case Parallel::zero3:
    case Parallel::hybrid:
      return std::make_unique<Shards>(comm, model, options);
    case Parallel::stale:
      return std::make_unique<Stale>(comm, model, options);
    case Parallel::ddp:
    case Parallel::server:
    case Parallel::local:
      break;
  }
  return std::make_unique<Replicas>(comm, model, options);
}

}  // namespace gyre::training
