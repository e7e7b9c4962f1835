// In a build without RDMA there are no encoders of its seeds.
#include "tests/fuzz/seeds.h"

namespace gyre::fuzz {

void add_rdma_seeds(Seeds&) {}

}  // namespace gyre::fuzz
