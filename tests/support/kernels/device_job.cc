#include "tests/support/kernels/device_job.h"

#include <fmt/core.h>

namespace gyre::tests {

// Both ends of one way of a link, and what lies between them.
struct DeviceJob::Ring {
  alignas(128) std::uint64_t tail = 0;
  alignas(128) std::uint64_t head = 0;
  alignas(128) cuda::DeviceGrant sender_grant;
  alignas(128) cuda::DeviceGrant receiver_grant;
  std::uint64_t sender_next = 0, receiver_next = 0;
  std::vector<std::byte> memory;
  std::byte* begin = nullptr;
  std::vector<transport::SlotHeader> notes;
};

DeviceJob::DeviceJob(const DeviceCase& one) : case_(one), data_(one) { wire(); }

DeviceJob::~DeviceJob() = default;

DeviceJob::Ring& DeviceJob::ring(int from, int to, int link_channel, std::uint32_t channel) {
  auto& ring = rings_[{from, to, link_channel, channel}];
  if (ring) return *ring;
  ring = std::make_unique<Ring>();
  ring->begin = aligned(ring->memory, data_.ring_bytes());
  ring->notes.resize(std::size_t{1} << data_.ring_shift());
  return *ring;
}

void DeviceJob::wire() {
  const std::size_t ranks = data_.ranks();
  lanes_.resize(ranks);
  if (case_.relayed)
    relays_ = std::make_unique<RelayMesh>(case_.channels, data_.slot_bytes(), data_.ring_shift());
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const plan::Plan& plan = data_.plan(rank);
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
          out[k].regions = find_regions(self, link.peer);
          if (case_.direct) out[k].lent = &to.sender_grant, out[k].borrowed = &to.receiver_grant;
        }
        if (receives[k]) {
          Ring& from = ring(link.peer, self, link.channel, channel);
          in[k] = {&from.receiver_next, &from.head, &from.tail, from.begin, from.notes.data()};
          in[k].regions = find_regions(self, link.peer);
          if (case_.direct) in[k].lent = &from.receiver_grant, in[k].borrowed = &from.sender_grant;
        }
      }
      lanes_[rank].push_back({lane, channel, out.data(), in.data()});
    }
  }
  statuses_.resize(ranks);
  claims_.assign(ranks, 0);
  gave_up_.assign(ranks, 0);
  sequences_.assign(ranks, 0);
  starts_.assign(ranks, 0);
  progress_.resize(ranks);
  ended_.assign(ranks, 0);
}

// Null within a process.
const cuda::DeviceRegion* DeviceJob::find_regions(int rank, int of) {
  if (are_one_process(rank, of)) return nullptr;
  auto& regions = regions_[{rank, of}];
  regions.resize(cuda::max_regions);
  return regions.data();
}

// All of the side's memory, opened by the ranks of other processes. Some sides lie in none.
cuda::DevicePlace DeviceJob::open_region(std::size_t rank, const RankMemory::Side& side) {
  const std::uint64_t number = cuda::max_regions + 91 * ++regions_made_;
  if (case_.processes == 1 || regions_made_ % 5 == 0) return {};
  for (auto& [who, regions] : regions_)
    if (who.second == static_cast<int>(rank))
      regions[number % cuda::max_regions] = {
          number, reinterpret_cast<std::uint64_t>(side.memory.data()), side.memory.size()};
  return {number, static_cast<std::uint64_t>(side.begin - side.memory.data())};
}

// In place, what is brought and what comes out lie in one memory.
void DeviceJob::place_in_regions(std::size_t rank, RankMemory& memory) {
  memory.output_place = open_region(rank, memory.output);
  memory.input_place = memory.output_place;
  if (!case_.in_place)
    memory.input_place = open_region(rank, memory.input);
  else if (memory.input_place.region != 0)
    memory.input_place.offset +=
        static_cast<std::uint64_t>(memory.input.begin - memory.output.begin);
}

cuda::DeviceLaunch DeviceJob::launch_of(std::size_t rank, const RankMemory& memory) {
  cuda::DeviceLaunch launch;
  data_.fill(launch, rank, calls_);
  launch.lanes = lanes_[rank].data();
  launch.input = memory.input.begin;
  launch.output = memory.output.begin;
  launch.input_place = memory.input_place;
  launch.output_place = memory.output_place;
  launch.scratch = memory_[rank].scratch.data();
  launch.sequence = &sequences_[rank];
  launch.blocks_ended = &ended_[rank];
  launch.starts = &starts_[rank];
  launch.progress = &progress_[rank];
  launch.abort = &abort_;
  launch.claim = &claims_[rank];
  launch.gave_up = &gave_up_[rank];
  launch.status = &statuses_[rank];
  launch.polls_between_looks = 8;
  for (std::uint32_t c = 0; c < case_.channels; ++c) launch.geometries[c] = data_.geometry(rank, c);
  return launch;
}

// Each block walks its lane for the one call and then for the other.
void DeviceJob::chain(std::size_t rank) {
  second_.push_back(data_.make_memory(rank, calls_));
  place_in_regions(rank, second_.back());
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
  threads_ended_.assign(data_.ranks(), 0);
  earlier_ = std::move(memory_);
  memory_.clear();
  launches_.clear();
  second_.clear();
  tasks_.clear();
  for (std::size_t rank = 0; rank < data_.ranks(); ++rank) {
    memory_.push_back(data_.make_memory(rank, calls_));
    place_in_regions(rank, memory_.back());
    statuses_[rank] = {};
    claims_[rank] = gave_up_[rank] = 0;
    launches_.push_back(launch_of(rank, memory_[rank]));
    if (case_.chained) chain(rank);
  }
  groups_.clear();
  if (!case_.multicast) return;
  const MulticastGroup inputs = group_of(&RankMemory::input, data_.input_bytes(0));
  const MulticastGroup outputs = group_of(&RankMemory::output, data_.output_bytes(0));
  for (cuda::DeviceLaunch& launch : launches_) {
    launch.everybodys_input = inputs.address;
    launch.everybodys_output = const_cast<std::byte*>(outputs.address);
  }
}

// An address as well aligned as the members', with nothing behind it.
MulticastGroup DeviceJob::group_of(RankMemory::Side RankMemory::*side, std::uint64_t bytes) {
  auto& addresses = group_addresses_.emplace_back();
  std::byte* const begin =
      aligned(addresses, bytes + case_.shift + RankMemory::guard_bytes) + case_.shift;
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

Grid DeviceJob::listener(int rank, int of) {
  return {rank, 1, 32, [this, of] {
            if (cuda::device::thread_index() != 0) return;
            const cuda::DeviceStatus& status = statuses_[static_cast<std::size_t>(of)];
            while (cuda::device::load_acquire(&status.told) == 0)
              cuda::device::pause(cuda::WaitingFor::nothing, 0);
            const auto word = [](const auto* place) {
              return cuda::device::load_relaxed(reinterpret_cast<const std::uint32_t*>(place));
            };
            heard_.outcome = static_cast<cuda::Outcome>(word(&status.outcome));
            heard_.what = static_cast<cuda::WaitingFor>(word(&status.what));
            heard_.block = word(&status.block);
            heard_.peer = static_cast<std::int32_t>(word(&status.peer));
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
    grids.push_back(relays_->grid(case_.ranks, [this] { return grids_ended_ == data_.ranks(); }));
  return grids;
}

// A launch begins when all threads of the one before have ended, on this rank; peers may lag.
void DeviceJob::launch_all(std::size_t rank, cuda::Kernel kernel) {
  std::uint32_t& ended = threads_ended_[rank];
  const std::uint32_t threads = cuda::device::block_count() * cuda::device::thread_count();
  for (int launch = 1; launch <= case_.launches(); ++launch) {
    kernel(launches_[rank]);
    if (claims_[rank] != 0 || launch == case_.launches()) return;
    cuda::device::add_acquire_release(&ended, 1);
    while (cuda::device::load_relaxed(&ended) < threads * static_cast<std::uint32_t>(launch))
      cuda::device::pause(cuda::WaitingFor::nothing, 0);
    cuda::device::add_acquire_release(&ended, 0);
  }
}

// A call leaves its input as it was, and needs it no more when it has ended well.
void DeviceJob::check_input(std::size_t rank) {
  if (case_.in_place || claims_[rank] != 0) return;
  const RankMemory right = data_.make_memory(rank, calls_);
  for (const auto* memory : {&memory_, &second_}) {
    if (memory->empty()) continue;
    std::byte* const input = (*memory)[rank].input.begin;
    if (std::memcmp(input, right.input.begin, data_.input_bytes(rank)) != 0)
      input_wrong_ = fmt::format("rank {} lost its input", rank);
    host_fills(input, data_.input_bytes(rank), std::byte{0xee});
  }
}

std::string DeviceJob::compare() {
  if (!input_wrong_.empty()) return input_wrong_;
  for (std::size_t rank = 0; rank < data_.ranks(); ++rank)
    if (claims_[rank] != 0)
      return fmt::format("rank {} stopped with outcome {}", rank, int(statuses_[rank].outcome));
  for (const auto* memory : {&memory_, &second_}) {
    if (memory->empty()) continue;
    std::vector<const RankMemory*> got;
    for (const RankMemory& one : *memory) got.push_back(&one);
    if (std::string wrong = data_.wrong(got, calls_); !wrong.empty()) return wrong;
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

std::string told_too_often(cuda::DeviceProtocol lines) {
  DeviceCase one;
  one.protocol = lines;
  one.piece_bytes = lines == cuda::DeviceProtocol::ll ? 128 : 1440;  // rings of 32 lines
  // A ring of n ranks has 2 (n - 1) messages on a link, of a line each: less than a quarter of the
  // lines, or less than two.
  for (const auto& [ranks, told] : {std::pair(3, 1), std::pair(8, 2)}) {
    one.ranks = ranks;
    one.count = static_cast<std::uint64_t>(ranks) * 3;
    DeviceJob job(one);
    const auto wanted = static_cast<std::uint64_t>(ranks * told * one.launches());
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      if (std::string wrong = job.run({.seed = seed}); !wrong.empty()) return wrong;
      if (releases() != wanted)
        return fmt::format("{} ranks: {} releases, not {}", ranks, releases(), wanted);
    }
  }
  return "";
}

}  // namespace gyre::tests
