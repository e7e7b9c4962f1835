#include "tests/support/kernels/job_data.h"

#include "lib/base/units.h"
#include "tests/support/comm/elements.h"
#include "tests/support/exec/launch_job.h"

#include <fmt/core.h>

#include <bit>

namespace gyre::tests {

using cuda::DeviceProtocol;
using plan::Collective;
using plan::Layout;

namespace {

constexpr std::string_view protocol_names[] = {"simple", "ll", "ll128"};

std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace

std::byte* aligned(std::vector<std::byte>& memory, std::size_t bytes) {
  memory.assign(bytes + 128, std::byte{0});
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  return memory.data() + (round_up(address, 128) - address);
}

void find_uses(const plan::Lane& lane, std::uint32_t chunks, std::vector<bool>& sends,
               std::vector<bool>& receives) {
  sends.assign(lane.link_count, false);
  receives.assign(lane.link_count, false);
  const plan::Geometry unit{Layout::even(1, chunks), Layout::even(1, chunks), 1, chunks};
  for (plan::Cursor cursor(lane, unit, 1); !cursor.done(); cursor.advance()) {
    const plan::Move move = cursor.move();
    for (std::uint32_t i = 0; i < move.send.count; ++i) sends[move.send[i]] = true;
    for (std::uint32_t i = 0; i < move.recv.count; ++i) receives[move.recv[i]] = true;
  }
}

std::string DeviceCase::shown() const {
  return fmt::format(
      "{} {}{} of {} ranks on {} hosts (root {}), {} channels, {}{}, {} {}, {} elements, shift {}"
      "{}{}, {} threads, pieces of {}{}{}, {} processes",
      algorithm, uneven ? "uneven " : "", plan::collective_name(collective), ranks, hosts, root,
      channels, protocol_names[int(protocol)], direct ? " direct" : "", element_name(type),
      op_name(op), count, shift, in_place ? ", in place" : "", multicast ? ", multicast" : "",
      threads, piece_bytes, zero_signature ? ", no signature" : "", chained ? ", chained" : "",
      processes);
}

JobData::JobData(const DeviceCase& one)
    : case_(one),
      element_(element_bytes(one.type)),
      blocks_(one.collective, one.ranks, one.count, element_) {
  auto plans = plan::build_plans(*plan::find_algorithm(one.algorithm), request());
  REQUIRE(plans.ok());
  plans_ = std::move(*plans);
  block_bytes_ = one.count * element_;
  stripe_bytes_ = divide_up(one.count, one.channels) * element_;
  for (const plan::Plan& plan : plans_) {
    const std::uint64_t all = block_bytes_ * at(one.ranks);
    const bool whole = one.collective == Collective::all_reduce ||
                       one.collective == Collective::broadcast ||
                       one.collective == Collective::reduce;
    const bool own_in =
        one.collective == Collective::all_gather || one.collective == Collective::gather;
    const bool own_out =
        one.collective == Collective::reduce_scatter || one.collective == Collective::scatter;
    input_bytes_.push_back(whole || own_in ? block_bytes_ : all);
    output_bytes_.push_back(whole || own_out ? block_bytes_ : all);
    message_bytes_ = plan.message_chunks() * one.piece_bytes;
    slot_bytes_ = round_up(message_bytes_, 128);
    const std::uint64_t payload = one.protocol == DeviceProtocol::ll ? 16 : 120;
    const std::uint64_t lines = plan.message_chunks() * divide_up(one.piece_bytes, payload);
    const std::uint64_t least = one.protocol == DeviceProtocol::simple
                                    ? plan.min_depth()
                                    : divide_up(lines * plan.min_depth() * 4, 3);
    ring_shift_ = static_cast<std::uint32_t>(std::bit_width(least - 1));
  }
  lay_out();
}

plan::PlanRequest JobData::request() const {
  plan::PlanRequest request;
  request.collective = case_.collective;
  request.rank_count = case_.ranks;
  request.root = case_.root;
  request.hosts = case_.hosts;
  return request;
}

void JobData::lay_out() {
  using enum UnevenBlocks::Side;
  for (std::size_t rank = 0; rank < plans_.size(); ++rank) {
    auto& channels = geometries_.emplace_back();
    for (std::uint32_t channel = 0; channel < case_.channels; ++channel) {
      plan::Geometry& it = channels.emplace_back(even_geometry(rank, channel));
      if (!case_.uneven) continue;
      it.input = blocks_.layout(input, plans_[rank], channel, case_.channels);
      it.output = blocks_.layout(output, plans_[rank], channel, case_.channels);
    }
    if (!case_.uneven) continue;
    input_bytes_[rank] = blocks_.bytes(input, rank);
    output_bytes_[rank] = blocks_.bytes(output, rank);
  }
}

plan::Geometry JobData::even_geometry(std::size_t rank, std::uint32_t channel) const {
  const std::uint32_t chunks = plans_[rank].chunk_count();
  const std::uint64_t begin = std::min(block_bytes_, channel * stripe_bytes_);
  const std::uint64_t length = std::min(stripe_bytes_, block_bytes_ - begin);
  plan::Geometry result;
  result.piece_bytes = case_.piece_bytes;
  result.chunk_count = chunks;
  const std::uint64_t chunk =
      std::max<std::uint64_t>(element_, divide_up(length / element_, chunks) * element_);
  result.input = result.output = {nullptr, chunk, length, chunk, begin, 0};
  if (case_.collective == Collective::all_reduce || case_.collective == Collective::broadcast ||
      case_.collective == Collective::reduce)
    return result;
  const Layout own{nullptr, length, length * chunks, 0, begin, 0};
  const Layout spread{nullptr, length, length * chunks, block_bytes_, begin, 0};
  result.input = result.output = spread;
  if (input_bytes_[rank] == block_bytes_) result.input = own;
  if (output_bytes_[rank] == block_bytes_) result.output = own;
  return result;
}

std::uint64_t JobData::ring_bytes() const {
  const std::uint64_t unit = case_.protocol == DeviceProtocol::simple ? slot_bytes_
                             : case_.protocol == DeviceProtocol::ll   ? 32
                                                                      : 128;
  return unit << ring_shift_;
}

std::uint64_t JobData::scratch_bytes(std::size_t rank) const {
  return plans_[rank].scratch_chunks() * case_.piece_bytes + 16;
}

RankMemory JobData::make_memory(std::size_t rank, std::uint64_t call) const {
  RankMemory memory;
  const auto make = [&](RankMemory::Side& side, std::uint64_t bytes) {
    constexpr std::uint64_t guard = RankMemory::guard_bytes;
    side.whole_bytes = bytes + case_.shift + 2 * guard;
    side.origin = aligned(side.memory, side.whole_bytes);
    std::memset(side.memory.data(), 0x5a, side.memory.size());
    side.begin = side.origin + guard + case_.shift;
  };
  const std::uint64_t in = input_bytes_[rank], out = output_bytes_[rank];
  make(memory.output, case_.in_place ? std::max(in, out) : out);
  memory.input.begin = memory.output.begin;
  const std::uint64_t own = case_.uneven ? blocks_.own_offset(rank) : rank * block_bytes_;
  if (case_.in_place && in < out) memory.input.begin += own;
  if (case_.in_place && out < in) memory.output.begin += own;
  if (!case_.in_place) make(memory.input, in);
  for (std::uint64_t i = 0; i < in / element_; ++i) {
    const std::uint64_t hash = hashed(call, rank, i);
    std::byte* place = memory.input.begin + i * element_;
    if (hash % 8 == 0)
      std::memcpy(place, &hash, element_);
    else
      make_element(case_.type, place, hash);
  }
  memory.scratch.assign(case_.channels * scratch_bytes(rank), std::byte{0x77});
  return memory;
}

void JobData::fill(cuda::LaneCall& launch, std::size_t rank, std::uint64_t call) const {
  launch.scratch_stride = scratch_bytes(rank);
  launch.input_bytes = input_bytes_[rank];
  launch.output_bytes = output_bytes_[rank];
  launch.type = case_.type;
  launch.op = case_.op;
  launch.element_bytes = static_cast<std::uint32_t>(element_);
  launch.scales = case_.op == ReduceOp::pre_mul_sum;
  put(case_.type, reinterpret_cast<std::byte*>(&launch.scalar), 1.25, 3);
  if (case_.op == ReduceOp::avg) launch.divisor = static_cast<std::uint32_t>(case_.ranks);
  launch.ring_shift = ring_shift_;
  launch.slot_bytes = slot_bytes_;
  launch.lends = case_.direct && plans_[rank].direct() &&
                 (plans_[rank].direct_in_place() || !case_.in_place) &&
                 !(case_.uneven && case_.collective == Collective::all_to_all);
  launch.pairs = case_.collective == Collective::all_to_all;
  launch.rank = static_cast<std::uint32_t>(rank);
  launch.signature = case_.zero_signature ? 0 : hashed(call, 99, 1);
}

void JobData::run_on_host(std::vector<RankMemory>& memory, std::uint64_t number) const {
  const transport::FifoShape shape{.slot_count = 8, .line_count = 32, .slot_bytes = slot_bytes_};
  std::mt19937_64 random(number);
  std::uint64_t scalar = 0;
  put(case_.type, reinterpret_cast<std::byte*>(&scalar), 1.25, 3);
  for (std::uint32_t channel = 0; channel < case_.channels; ++channel) {
    Job job(case_.algorithm, request(), shape, true);
    std::vector<exec::Call> calls;
    for (std::size_t rank = 0; rank < memory.size(); ++rank) {
      exec::Call& call = calls.emplace_back();
      call.geometry = geometries_[rank][channel];
      call.input = memory[rank].input.begin;
      call.output = memory[rank].output.begin;
      call.scratch = memory[rank].scratch.data();
      call.type = case_.type;
      call.op = case_.op;
      call.pre_scalar = case_.op == ReduceOp::pre_mul_sum ? &scalar : nullptr;
      call.divisor = case_.op == ReduceOp::avg ? static_cast<std::uint32_t>(case_.ranks) : 1;
      call.in_place = case_.in_place;
    }
    job.run(calls, random);
  }
}

std::string JobData::wrong(const std::vector<const RankMemory*>& got, std::uint64_t call) const {
  std::vector<RankMemory> wanted;
  for (std::size_t rank = 0; rank < ranks(); ++rank) wanted.push_back(make_memory(rank, call));
  run_on_host(wanted, call);
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    const RankMemory::Side &is = got[rank]->output, &right = wanted[rank].output;
    for (std::uint64_t i = 0; i < right.whole_bytes; ++i)
      if (is.origin[i] != right.origin[i])
        return fmt::format("rank {}: byte {} of the output", rank,
                           static_cast<std::int64_t>(i) - (right.begin - right.origin));
  }
  return "";
}

}  // namespace gyre::tests
