// Makes the way of training together that the options ask for.
#pragma once

#include "bench/training/train/way.h"

#include <memory>

namespace gyre::training {

std::unique_ptr<Way> make_way(gyreComm_t comm, const Model& model, const WayOptions& options);

}  // namespace gyre::training
