// The calls with which the kernels are tried: algorithms and protocols, schedules, and random
// choices for the rest.
#pragma once

#include "tests/support/base/covering.h"
#include "tests/support/kernels/job_data.h"

#include <vector>

namespace gyre::tests {

// The last two: each rank a process of its own, and two processes with ranks by turns.
struct Way {
  cuda::DeviceProtocol protocol;
  bool direct;
  int processes = 1;
};
inline constexpr Way ways[] = {
    {cuda::DeviceProtocol::simple, false},   {cuda::DeviceProtocol::ll, false},
    {cuda::DeviceProtocol::ll128, false},    {cuda::DeviceProtocol::simple, true},
    {cuda::DeviceProtocol::simple, true, 8}, {cuda::DeviceProtocol::simple, true, 2}};

struct Schedule {
  std::string_view algorithm;
  plan::Collective collective;
};
std::vector<Schedule> all_schedules();

inline constexpr int rank_counts[] = {1, 2, 3, 4, 8};
inline constexpr std::uint32_t channel_counts[] = {1, 2, 4};

// Whether the pair of type and operation has a kernel.
bool exists(plan::Collective collective, ElementType type, ReduceOp op);

// The rest of a case, as indices.
struct Draw {
  std::size_t count, shift, in_place, piece, uneven, hosts, signature, chained;
  static constexpr std::size_t sizes[] = {6, 6, 2, 3, 2, 2, 2, 2};
};
DeviceCase drawn(DeviceCase one, const Draw& draw);

// Each pair of values of any two axes at least once.
std::vector<DeviceCase> covering_cases(std::uint64_t seed);

}  // namespace gyre::tests
