// The sampler's permutation: which rank gets which samples. Each epoch has a permutation of the
// data set, which is dealt out in turn.
#pragma once

#include <cstdint>

namespace gyre::gradsync {

// Place `index` of the permutation of 0 .. count - 1 that `seed` and `epoch` choose. A Feistel
// network (Luby, Rackoff: SIAM J. Comput. 17, 1988) over the least even number of bits that holds
// `count`, walked on until it falls among them: nothing is stored.
std::uint64_t shuffled(std::uint64_t index, std::uint64_t count, std::uint64_t seed,
                       std::uint64_t epoch);

}  // namespace gyre::gradsync
