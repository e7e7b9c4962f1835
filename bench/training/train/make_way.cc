#include "bench/training/train/make_way.h"

#include "bench/training/train/replicas.h"
#include "bench/training/train/shards.h"
#include "bench/training/train/stale.h"

namespace gyre::training {

std::unique_ptr<Way> make_way(gyreComm_t comm, const Model& model, const WayOptions& options) {
  switch (options.parallel) {
    case Parallelism::zero1:
    case Parallelism::zero2:
    case Parallelism::zero3:
    case Parallelism::hybrid:
      return std::make_unique<ShardedTraining>(comm, model, options);
    case Parallelism::stale:
      return std::make_unique<Stale>(comm, model, options);
    case Parallelism::ddp:
    case Parallelism::server:
    case Parallelism::local:
      break;
  }
  return std::make_unique<Replicas>(comm, model, options);
}

}  // namespace gyre::training
