// The C functions of samplers.
#include "lib/base/units.h"
#include "lib/gradsync/gradsync_api.h"
#include "lib/gradsync/sampler.h"

namespace gyre::gradsync {
namespace {

Status check(const gyreSampler_t* sampler) {
  if (sampler == nullptr) return invalid_argument("sampler is NULL");
  if (sampler->samples == 0 || sampler->samples > std::uint64_t{1} << 62)
    return invalid_argument(
        fmt::format("sampler->samples = {} is not from 1 to 2^62", sampler->samples));
  if (sampler->ranks < 1 || sampler->rank < 0 || sampler->rank >= sampler->ranks)
    return invalid_argument(fmt::format("sampler->rank = {} is not one of its {} ranks",
                                        sampler->rank, sampler->ranks));
  if ((sampler->shuffle | sampler->pad) >> 1 != 0)
    return invalid_argument("sampler->shuffle and pad are 0 or 1");
  return {};
}

std::uint64_t count_of(const gyreSampler_t& sampler) {
  const auto ranks = static_cast<std::uint64_t>(sampler.ranks);
  return sampler.pad == 1 ? divide_up(sampler.samples, ranks) : sampler.samples / ranks;
}

std::uint64_t sample_of(const gyreSampler_t& sampler, std::uint64_t epoch, std::uint64_t index) {
  const std::uint64_t dealt =
      index * static_cast<std::uint64_t>(sampler.ranks) + static_cast<std::uint64_t>(sampler.rank);
  const std::uint64_t place = dealt % sampler.samples;
  return sampler.shuffle == 1 ? shuffled(place, sampler.samples, sampler.seed, epoch) : place;
}

}  // namespace
}  // namespace gyre::gradsync

using namespace gyre;
using namespace gyre::gradsync;

gyreResult_t gyreSamplerCount(const gyreSampler_t* sampler, uint64_t* count) {
  return guarded([&]() -> Status {
    GYRE_TRY(check(sampler));
    if (count == nullptr) return invalid_argument("count is NULL");
    *count = count_of(*sampler);
    return {};
  });
}

gyreResult_t gyreSamplerGet(const gyreSampler_t* sampler, uint64_t epoch, uint64_t index,
                            uint64_t* sample) {
  return guarded([&]() -> Status {
    GYRE_TRY(check(sampler));
    if (sample == nullptr) return invalid_argument("sample is NULL");
    if (index >= count_of(*sampler))
      return invalid_argument(fmt::format("index {} is not below the {} samples that a rank has",
                                          index, count_of(*sampler)));
    *sample = sample_of(*sampler, epoch, index);
    return {};
  });
}
