// ThreadRanks' small exchanges: one all-reduce each, of host memory. See ranks.h.
#include "bench/runner/ranks.h"

#include <algorithm>
#include <cstring>

namespace gyre::bench {
namespace {

template <typename Value>
std::vector<std::byte> bytes_of(std::span<const Value> values) {
  std::vector<std::byte> bytes(values.size_bytes());
  std::memcpy(bytes.data(), values.data(), values.size_bytes());
  return bytes;
}

}  // namespace

// `inputs` of each member; the result is everybody's, so one copy is kept.
Status ThreadRanks::all_reduce(std::span<const std::vector<std::byte>> inputs,
                               std::vector<std::byte>& result, std::size_t count,
                               gyreDataType_t type, gyreRedOp_t op) {
  const std::vector<gyreComm_t>& comms = beside_.empty() ? comms_ : beside_;
  std::vector<std::vector<std::byte>> outputs(inputs.begin(), inputs.end());
  GYRE_TRY(checked(gyreGroupStart(), "gyreGroupStart"));
  Status status;
  for (std::size_t i = 0; i < outputs.size() && status.ok(); ++i)
    status = checked(
        gyreAllReduce(inputs[i].data(), outputs[i].data(), count, type, op, comms[i], nullptr),
        "gyreAllReduce");
  Status end = checked(gyreGroupEnd(), "gyreGroupEnd");
  if (!status.ok()) return status;
  GYRE_TRY(std::move(end));
  result = std::move(outputs[0]);
  return {};
}

Status ThreadRanks::combine(std::span<double> values, Combine how) {
  std::vector<std::vector<std::byte>> inputs(comms_.size(),
                                             bytes_of(std::span<const double>(values)));
  const bool added = how == Combine::sum || how == Combine::rank0;
  // A thread's ranks count once in a sum, whatever their number; rank 0 alone is a sum with zeros
  // elsewhere.
  for (std::size_t i = 0; i < inputs.size() && added; ++i)
    if (i > 0 || (how == Combine::rank0 && first_rank_ > 0))
      std::ranges::fill(inputs[i], std::byte{0});
  const gyreRedOp_t op = how == Combine::least ? gyreMin : how == Combine::most ? gyreMax : gyreSum;
  std::vector<std::byte> result;
  GYRE_TRY(all_reduce(inputs, result, values.size(), gyreFloat64, op));
  std::memcpy(values.data(), result.data(), values.size_bytes());
  // All threads have as many ranks, so the mean over ranks is the mean over threads.
  if (how == Combine::mean)
    for (double& value : values) value /= ranks_;
  return {};
}

Result<double> ThreadRanks::combine(double value, Combine how) {
  GYRE_TRY(combine(std::span<double>(&value, 1), how));
  return value;
}

Status ThreadRanks::barrier() { return combine(0.0, Combine::sum).status(); }

Result<bool> ThreadRanks::equal_everywhere(std::span<const std::uint64_t> of_members) {
  std::vector<std::vector<std::byte>> inputs;
  for (const std::uint64_t& member : of_members)
    inputs.push_back(bytes_of(std::span<const std::uint64_t>(&member, 1)));
  std::vector<std::byte> least, most;
  GYRE_TRY(all_reduce(inputs, least, 1, gyreUint64, gyreMin));
  GYRE_TRY(all_reduce(inputs, most, 1, gyreUint64, gyreMax));
  return least == most;
}

void ThreadRanks::abort() {
  for (gyreComm_t comm : comms_) (void)gyreCommAbort(comm);
  for (gyreComm_t comm : beside_) (void)gyreCommAbort(comm);
}

}  // namespace gyre::bench
