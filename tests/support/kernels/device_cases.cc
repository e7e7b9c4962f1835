#include "tests/support/kernels/device_cases.h"

namespace gyre::tests {

using plan::Collective;

namespace {

bool may_be_in_place(Collective collective) {
  return collective != Collective::all_to_all && collective != Collective::gather &&
         collective != Collective::scatter;
}

const std::uint64_t counts[] = {0, 1, 7, 129, 1001, 2048};
const std::uint64_t shifts[] = {0, 1, 2, 4, 8, 24};
const std::uint64_t pieces[] = {128, 368, 1440};
constexpr std::uint32_t few_threads = 64, many_threads = 96;

static_assert(std::size(counts) == Draw::sizes[0] && std::size(shifts) == Draw::sizes[1] &&
              std::size(pieces) == Draw::sizes[3]);

bool is_bitwise(ReduceOp op) {
  return op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
}
DeviceCase case_of(const Row& row, const std::vector<Schedule>& schedules) {
  DeviceCase one;
  one.algorithm = schedules[row[0]].algorithm;
  one.collective = schedules[row[0]].collective;
  one.ranks = rank_counts[row[1]];
  one.protocol = ways[row[2]].protocol;
  one.direct = ways[row[2]].direct;
  one.processes = ways[row[2]].processes;
  one.channels = channel_counts[row[3]];
  one.type = static_cast<ElementType>(row[4]);
  one.op = static_cast<ReduceOp>(row[5]);
  if (!exists(one.collective, one.type, one.op)) one.op = ReduceOp::sum;
  return drawn(one, {row[6], row[7], row[8], row[9], row[10], row[11], row[12], row[13]});
}

}  // namespace

std::vector<Schedule> all_schedules() {
  std::vector<Schedule> all;
  for (const plan::Algorithm& algorithm : plan::algorithms())
    for (Collective collective : algorithm.collectives) all.push_back({algorithm.name, collective});
  return all;
}

bool exists(Collective collective, ElementType type, ReduceOp op) {
  if (!plan::sums(collective)) return op == ReduceOp::sum;
  return !is_bitwise(op) || !is_float(type);
}

DeviceCase drawn(DeviceCase one, const Draw& draw) {
  one.root = one.ranks / 2;
  one.count = counts[draw.count];
  if (one.ranks == 8 && one.count > 1000) one.count /= 4;
  one.shift = shifts[draw.shift];
  one.in_place = draw.in_place == 1 && may_be_in_place(one.collective);
  one.threads = draw.in_place == 1 ? many_threads : few_threads;
  one.piece_bytes = pieces[draw.piece];
  one.uneven = draw.uneven == 1 && UnevenBlocks::can_be(one.collective) &&
               !plan::find_algorithm(one.algorithm)->equal_counts;
  if (draw.hosts == 1 && one.ranks % 2 == 0) one.hosts = 2;
  one.zero_signature = draw.signature == 1;
  one.chained = draw.chained == 1;
  return one;
}

std::vector<DeviceCase> covering_cases(std::uint64_t seed) {
  const std::vector<Schedule> schedules = all_schedules();
  std::vector<std::size_t> axes = {schedules.size(),   std::size(rank_counts),
                                   std::size(ways),    std::size(channel_counts),
                                   element_type_count, reduce_op_count};
  axes.insert(axes.end(), std::begin(Draw::sizes), std::end(Draw::sizes));
  std::vector<DeviceCase> cases;
  for (const Row& row : covering_array(axes, seed)) cases.push_back(case_of(row, schedules));
  return cases;
}

}  // namespace gyre::tests
