#include "tests/support/device_job.h"

#include "lib/base/units.h"
#include "tests/support/elements.h"
#include "tests/support/launch_job.h"

#include <fmt/format.h>

#include <bit>

namespace gyre::tests {

using cuda::DeviceProtocol;
using plan::Collective;
using plan::Layout;

namespace {

constexpr std::size_t guard_bytes = 64;
constexpr std::string_view protocol_names[] = {"simple", "ll", "ll128"};

std::size_t at(int index) { return static_cast<std::size_t>(index); }

std::byte* aligned(std::vector<std::byte>& memory, std::size_t bytes) {
  memory.assign(bytes + 128, std::byte{0});
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  return memory.data() + (round_up(address, 128) - address);
}

// Which links a lane ever sends on, and receives from.
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

}  // namespace

// Both ends of one way of a link, and what lies between them.
struct DeviceJob::Ring {
  alignas(128) std::uint64_t tail = 0;
  alignas(128) std::uint64_t head = 0;
  alignas(128) cuda::DeviceGrant sender_grant;
  alignas(128) cuda::DeviceGrant receiver_grant;
  std::uint64_t sender_next = 0, receiver_next = 0;
  std::vector<std::byte> memory;
  std::byte* begin = nullptr;
  std::vector<transport::SlotNote> notes;
};

std::string DeviceCase::shown() const {
  return fmt::format(
      "{} {}{} of {} ranks on {} hosts (root {}), {} channels, {}{}, {} {}, {} elements, shift {}"
      "{}{}, {} threads, pieces of {}{}{}",
      algorithm, uneven ? "uneven " : "", plan::collective_name(collective), ranks, hosts, root,
      channels, protocol_names[int(protocol)], direct ? " direct" : "", element_name(type),
      op_name(op), count, shift, in_place ? ", in place" : "", multicast ? ", multicast" : "",
      threads, piece_bytes, zero_signature ? ", no signature" : "", chained ? ", chained" : "");
}

DeviceJob::DeviceJob(const DeviceCase& one)
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
                                    ? plan.least_depth()
                                    : divide_up(lines * plan.least_depth() * 4, 3);
    ring_shift_ = static_cast<std::uint32_t>(std::bit_width(least - 1));
  }
  lay_out();
  wire();
}

DeviceJob::~DeviceJob() = default;

plan::PlanRequest DeviceJob::request() const {
  plan::PlanRequest request;
  request.collective = case_.collective;
  request.rank_count = case_.ranks;
  request.root = case_.root;
  request.hosts = case_.hosts;
  return request;
}

void DeviceJob::lay_out() {
  using enum UnevenBlocks::Side;
  for (std::size_t rank = 0; rank < plans_.size(); ++rank) {
    auto& channels = geometries_.emplace_back();
    for (std::uint32_t channel = 0; channel < case_.channels; ++channel) {
      plan::Geometry& it = channels.emplace_back(geometry(rank, channel));
      if (!case_.uneven) continue;
      it.input = blocks_.layout(input, plans_[rank], channel, case_.channels);
      it.output = blocks_.layout(output, plans_[rank], channel, case_.channels);
    }
    if (!case_.uneven) continue;
    input_bytes_[rank] = blocks_.bytes(input, rank);
    output_bytes_[rank] = blocks_.bytes(output, rank);
  }
}

plan::Geometry DeviceJob::geometry(std::size_t rank, std::uint32_t channel) const {
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

DeviceJob::Ring& DeviceJob::ring(int from, int to, int link_channel, std::uint32_t channel) {
  auto& ring = rings_[{from, to, link_channel, channel}];
  if (ring) return *ring;
  ring = std::make_unique<Ring>();
  const std::uint64_t unit = case_.protocol == DeviceProtocol::simple ? slot_bytes_
                             : case_.protocol == DeviceProtocol::ll   ? 32
                                                                      : 128;
  ring->begin = aligned(ring->memory, unit << ring_shift_);
  ring->notes.resize(std::size_t{1} << ring_shift_);
  return *ring;
}

void DeviceJob::wire() {
  lanes_.resize(plans_.size());
  if (case_.relayed)
    relays_ = std::make_unique<RelayMesh>(case_.channels, slot_bytes_, ring_shift_);
  for (std::size_t rank = 0; rank < plans_.size(); ++rank) {
    const plan::Plan& plan = plans_[rank];
    for (std::uint32_t i = 0; i < case_.channels * plan.lane_count(); ++i) {
      const std::uint32_t channel = i / plan.lane_count();
      const plan::Lane lane = plan.lane(i % plan.lane_count());
      std::vector<bool> sends, receives;
      find_uses(lane, plan.chunk_count(), sends, receives);
      auto& out = ends_.emplace_back(lane.link_count);
      auto& in = ends_.emplace_back(lane.link_count);
      for (std::uint32_t k = 0; k < lane.link_count; ++k) {
        const plan::Link link = lane.links[k];
        const int self = static_cast<int>(rank);
        if (case_.relayed && link.peer != self) {
          if (sends[k]) out[k] = relays_->send_end(self, link, channel);
          if (receives[k]) in[k] = relays_->receive_end(self, link, channel);
          continue;
        }
        if (sends[k]) {
          Ring& to = ring(self, link.peer, link.channel, channel);
          out[k] = {&to.sender_next, &to.tail, &to.head, to.begin, to.notes.data()};
          if (case_.direct) out[k].lent = &to.sender_grant, out[k].borrowed = &to.receiver_grant;
        }
        if (receives[k]) {
          Ring& from = ring(link.peer, self, link.channel, channel);
          in[k] = {&from.receiver_next, &from.head, &from.tail, from.begin, from.notes.data()};
          if (case_.direct) in[k].lent = &from.receiver_grant, in[k].borrowed = &from.sender_grant;
        }
      }
      lanes_[rank].push_back({lane, channel, out.data(), in.data()});
    }
  }
  statuses_.resize(plans_.size());
  sequences_.assign(plans_.size(), 0);
  starts_.assign(plans_.size(), 0);
  progress_.resize(plans_.size());
  ended_.assign(plans_.size(), 0);
}

DeviceJob::RankMemory DeviceJob::make_memory(std::size_t rank) const {
  RankMemory memory;
  const auto make = [&](Side& side, std::uint64_t bytes) {
    side.begin = aligned(side.memory, bytes + case_.shift + 2 * guard_bytes);
    std::memset(side.memory.data(), 0x5a, side.memory.size());
    side.begin += guard_bytes + case_.shift;
  };
  const std::uint64_t in = input_bytes_[rank], out = output_bytes_[rank];
  make(memory.output, case_.in_place ? std::max(in, out) : out);
  memory.input.begin = memory.output.begin;
  const std::uint64_t own = case_.uneven ? blocks_.own_offset(rank) : rank * block_bytes_;
  if (case_.in_place && in < out) memory.input.begin += own;
  if (case_.in_place && out < in) memory.output.begin += own;
  if (!case_.in_place) make(memory.input, in);
  for (std::uint64_t i = 0; i < in / element_; ++i) {
    const std::uint64_t hash = hashed(calls_, rank, i);
    std::byte* place = memory.input.begin + i * element_;
    if (hash % 8 == 0)
      std::memcpy(place, &hash, element_);
    else
      make_element(case_.type, place, hash);
  }
  memory.scratch.assign(case_.channels * (plans_[rank].scratch_chunks() * case_.piece_bytes + 16),
                        std::byte{0x77});
  return memory;
}

cuda::DeviceLaunch DeviceJob::launch_of(std::size_t rank, const RankMemory& memory) {
  cuda::DeviceLaunch launch;
  launch.lanes = lanes_[rank].data();
  launch.input = memory.input.begin;
  launch.output = memory.output.begin;
  launch.scratch = memory_[rank].scratch.data();
  launch.scratch_stride = memory_[rank].scratch.size() / case_.channels;
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
  launch.signature = case_.zero_signature ? 0 : hashed(calls_, 99, 1);
  launch.sequence = &sequences_[rank];
  launch.blocks_ended = &ended_[rank];
  launch.starts = &starts_[rank];
  launch.progress = &progress_[rank];
  launch.abort = &abort_;
  launch.status = &statuses_[rank];
  launch.polls_between_looks = 8;
  for (std::uint32_t c = 0; c < case_.channels; ++c) launch.geometries[c] = geometries_[rank][c];
  return launch;
}

// Each block walks its lane for the one call and then for the other.
void DeviceJob::chain(std::size_t rank) {
  second_.push_back(make_memory(rank));
  const cuda::DeviceLaunch& first = launches_[rank];
  cuda::DeviceLaunch second = launch_of(rank, second_[rank]);
  second.ordinal = 1;
  auto& later = tasks_.emplace_back();
  auto& all = tasks_.emplace_back();
  for (const cuda::DeviceLane& lane : lanes_[rank])
    later.push_back({&lane, second, second.geometries[lane.channel], nullptr});
  for (std::size_t i = 0; i < lanes_[rank].size(); ++i) {
    const cuda::DeviceLane& lane = lanes_[rank][i];
    all.push_back({&lane, first, first.geometries[lane.channel], &later[i]});
  }
  launches_[rank].tasks = all.data();
  launches_[rank].calls = 2;
}

void DeviceJob::begin() {
  ++calls_;
  input_wrong_.clear();
  threads_ended_.assign(plans_.size(), 0);
  earlier_ = std::move(memory_);
  memory_.clear();
  launches_.clear();
  second_.clear();
  tasks_.clear();
  for (std::size_t rank = 0; rank < plans_.size(); ++rank) {
    memory_.push_back(make_memory(rank));
    statuses_[rank] = {};
    launches_.push_back(launch_of(rank, memory_[rank]));
    if (case_.chained) chain(rank);
  }
  groups_.clear();
  if (!case_.multicast) return;
  const MulticastGroup inputs = group_of(&RankMemory::input, input_bytes_[0]);
  const MulticastGroup outputs = group_of(&RankMemory::output, output_bytes_[0]);
  for (cuda::DeviceLaunch& launch : launches_) {
    launch.everybodys_input = inputs.address;
    launch.everybodys_output = const_cast<std::byte*>(outputs.address);
  }
}

// An address as well aligned as the members', with nothing behind it.
MulticastGroup DeviceJob::group_of(Side RankMemory::*side, std::uint64_t bytes) {
  auto& addresses = group_addresses_.emplace_back();
  std::byte* const begin = aligned(addresses, bytes + case_.shift + guard_bytes) + case_.shift;
  MulticastGroup group{begin, bytes, {}};
  for (RankMemory& memory : memory_) group.members.push_back((memory.*side).begin);
  return groups_.emplace_back(std::move(group));
}

Grid DeviceJob::aborter(int rank, int turns) {
  return {rank, 1, 32, [this, turns] {
            if (cuda::device::thread_index() != 0) return;
            for (int i = 0; i < turns; ++i) let_others_run();
            cuda::device::store_relaxed(&abort_, std::uint32_t{1});
          }};
}

std::vector<Grid> DeviceJob::grids() {
  const cuda::Kernel kernel = cuda::find_kernel(case_.protocol, case_.type, case_.op);
  std::vector<Grid> grids;
  for (std::size_t rank = 0; rank < launches_.size(); ++rank)
    grids.push_back({static_cast<int>(rank), static_cast<std::uint32_t>(lanes_[rank].size()),
                     case_.threads, [this, rank, kernel] { launch_all(rank, kernel); },
                     [this, rank] {
                       check_input(rank);
                       ++grids_ended_;
                     }});
  grids_ended_ = 0;
  if (relays_ != nullptr)
    grids.push_back(relays_->grid(case_.ranks, [this] { return grids_ended_ == plans_.size(); }));
  return grids;
}

// A launch begins when all threads of the one before have ended, on this rank; peers may lag.
void DeviceJob::launch_all(std::size_t rank, cuda::Kernel kernel) {
  std::uint32_t& ended = threads_ended_[rank];
  const std::uint32_t threads = cuda::device::block_count() * cuda::device::thread_count();
  for (int launch = 1; launch <= case_.launches(); ++launch) {
    kernel(launches_[rank]);
    if (statuses_[rank].claimed != 0 || launch == case_.launches()) return;
    cuda::device::add_acquire_release(&ended, 1);
    while (cuda::device::load_relaxed(&ended) < threads * static_cast<std::uint32_t>(launch))
      cuda::device::pause(cuda::WaitingFor::nothing, 0);
    cuda::device::add_acquire_release(&ended, 0);
  }
}

// A call leaves its input as it was, and needs it no more when it has ended well.
void DeviceJob::check_input(std::size_t rank) {
  if (case_.in_place || statuses_[rank].claimed != 0) return;
  const RankMemory right = make_memory(rank);
  for (const auto* memory : {&memory_, &second_}) {
    if (memory->empty()) continue;
    std::byte* const input = (*memory)[rank].input.begin;
    if (std::memcmp(input, right.input.begin, input_bytes_[rank]) != 0)
      input_wrong_ = fmt::format("rank {} lost its input", rank);
    host_fills(input, input_bytes_[rank], std::byte{0xee});
  }
}

void DeviceJob::run_on_host(std::vector<RankMemory>& memory) {
  const transport::FifoShape shape{.slot_count = 8, .line_count = 32, .slot_bytes = slot_bytes_};
  std::mt19937_64 random(calls_);
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

std::string DeviceJob::compare() {
  if (!input_wrong_.empty()) return input_wrong_;
  std::vector<RankMemory> wanted;
  for (std::size_t rank = 0; rank < plans_.size(); ++rank) wanted.push_back(make_memory(rank));
  run_on_host(wanted);
  for (std::size_t rank = 0; rank < plans_.size(); ++rank) {
    if (statuses_[rank].claimed != 0)
      return fmt::format("rank {} stopped with outcome {}", rank, int(statuses_[rank].outcome));
    const auto differs = [&](const Side& got, const Side& right) -> std::int64_t {
      const std::byte* a = got.begin - guard_bytes;
      const std::byte* b = right.begin - guard_bytes;
      const auto bytes =
          static_cast<std::size_t>(std::min(got.memory.data() + got.memory.size() - a,
                                            right.memory.data() + right.memory.size() - b));
      for (std::size_t i = 0; i < bytes; ++i)
        if (a[i] != b[i])
          return static_cast<std::int64_t>(i) - static_cast<std::int64_t>(guard_bytes);
      return INT64_MAX;
    };
    for (const auto* memory : {&memory_, &second_}) {
      if (memory->empty()) continue;
      const std::int64_t place = differs((*memory)[rank].output, wanted[rank].output);
      if (place != INT64_MAX) return fmt::format("rank {}: byte {} of the output", rank, place);
    }
  }
  return "";
}

std::string DeviceJob::run(const MachineOptions& options) {
  begin();
  MachineOptions with_groups = options;
  with_groups.groups = groups_;
  const std::string report = run_grids(grids(), with_groups);
  if (relays_ != nullptr && !relays_->failure().empty()) return relays_->failure();
  return report.empty() ? compare() : report;
}

}  // namespace gyre::tests
