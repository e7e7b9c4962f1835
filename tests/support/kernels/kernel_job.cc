#include "tests/support/kernels/kernel_job.h"

#include <fmt/core.h>

#include <cstring>

namespace gyre::tests {

namespace cu = loaded::cu;

namespace {

// A kernel that stands still ends by itself, under tools that make it a hundred times as slow too.
constexpr std::uint64_t patience_ns = 60'000'000'000;

std::byte* begin_of(const std::vector<DeviceBytes>& one) {
  return reinterpret_cast<std::byte*>(one[0].address());
}

// What of a side lies on the device: all but the guard behind it.
std::uint64_t placed_bytes(const RankMemory::Side& side) {
  return side.whole_bytes - RankMemory::guard_bytes;
}

}  // namespace

KernelJob::KernelJob(const OnCuda& on, const exec::CudaDevice& device, KernelMemory& memory,
                     const DeviceCase& one)
    : on_(on), device_(device), memory_(memory), case_(one), data_(one) {
  memory_.shrink(0);
  abort_ = memory_.take<std::uint32_t>();
  for (std::size_t rank = 0; rank < data_.ranks(); ++rank) {
    wire(rank);
    auto& channels = geometries_.emplace_back();
    for (std::uint32_t channel = 0; channel < case_.channels; ++channel)
      channels.push_back(geometry(rank, channel));
    REQUIRE(on_.driver->stream_create(&streams_.emplace_back(), cu::stream_non_blocking) ==
            cu::success);
  }
  links_end_ = memory_.used();
  memory_.upload(0);
}

KernelJob::~KernelJob() {
  for (loaded::CuStream stream : streams_) (void)on_.driver->stream_destroy(stream);
}

std::uint32_t KernelJob::blocks() const {
  std::uint32_t all = 0;
  for (std::size_t rank = 0; rank < data_.ranks(); ++rank) all += data_.blocks(rank);
  return all;
}

const KernelJob::Ring& KernelJob::ring(int from, int to, int link_channel, std::uint32_t channel) {
  const auto [found, is_new] = rings_.try_emplace({from, to, link_channel, channel});
  Ring& ring = found->second;
  if (!is_new) return ring;
  for (auto* word : {&ring.sender_next, &ring.receiver_next, &ring.tail, &ring.head})
    *word = memory_.take<std::uint64_t>();
  ring.sender_grant = memory_.take<cuda::DeviceGrant>();
  ring.receiver_grant = memory_.take<cuda::DeviceGrant>();
  const std::vector<std::byte> zeroes(data_.ring_bytes());
  (void)place(ring.memory, zeroes.data(), zeroes.size());
  ring.notes = memory_.take<transport::SlotHeader>(std::size_t{1} << data_.ring_shift());
  return ring;
}

// Null within a process.
const cuda::DeviceRegion* KernelJob::find_regions(int rank, int of) {
  if (are_one_process(rank, of)) return nullptr;
  const auto [found, is_new] = regions_.try_emplace({rank, of});
  if (is_new) found->second = memory_.take<cuda::DeviceRegion>(cuda::max_regions);
  return found->second.there;
}

cuda::DevicePlace KernelJob::open_region(std::size_t rank, const std::byte* begin,
                                         std::uint64_t bytes) {
  const cuda::DeviceRegion region{cuda::max_regions + 91 * ++regions_made_,
                                  reinterpret_cast<std::uint64_t>(begin), bytes};
  if (case_.processes == 1 || regions_made_ % 5 == 0) return {};
  for (const auto& [who, table] : regions_)
    if (who.second == static_cast<int>(rank))
      on_.write(reinterpret_cast<loaded::CuDevicePointer>(table.there +
                                                          region.number % cuda::max_regions),
                &region, sizeof region);
  return {region.number, 0};
}

cuda::DeviceLane KernelJob::lane(std::size_t rank, std::uint32_t block) {
  const plan::Plan& plan = data_.plan(rank);
  const std::uint32_t channel = block / plan.lane_count();
  plan::Lane lane = plan.lane(block % plan.lane_count());
  std::vector<bool> sends, receives;
  find_uses(lane, plan.chunk_count(), sends, receives);
  const auto out = memory_.take<cuda::DeviceEnd>(lane.link_count);
  const auto in = memory_.take<cuda::DeviceEnd>(lane.link_count);
  const int self = static_cast<int>(rank);
  for (std::uint32_t k = 0; k < lane.link_count; ++k) {
    const plan::Link link = lane.links[k];
    out.here[k] = in.here[k] = {};
    if (sends[k]) {
      const Ring& to = ring(self, link.peer, link.channel, channel);
      cuda::DeviceEnd& end = out.here[k];
      end = {to.sender_next.there, to.tail.there, to.head.there, begin_of(to.memory),
             to.notes.there};
      end.regions = find_regions(self, link.peer);
      if (case_.direct) end.lent = to.sender_grant.there, end.borrowed = to.receiver_grant.there;
    }
    if (receives[k]) {
      const Ring& by = ring(link.peer, self, link.channel, channel);
      cuda::DeviceEnd& end = in.here[k];
      end = {by.receiver_next.there, by.head.there, by.tail.there, begin_of(by.memory),
             by.notes.there};
      end.regions = find_regions(self, link.peer);
      if (case_.direct) end.lent = by.receiver_grant.there, end.borrowed = by.sender_grant.there;
    }
  }
  lane.links = memory_.copy(lane.links, lane.link_count).there;
  lane.steps = memory_.copy(lane.steps, lane.step_count).there;
  return {lane, channel, out.there, in.there};
}

void KernelJob::wire(std::size_t rank) {
  const std::uint32_t blocks = data_.blocks(rank);
  const auto& lanes = lanes_.emplace_back(memory_.take<cuda::DeviceLane>(blocks));
  for (std::uint32_t block = 0; block < blocks; ++block) lanes.here[block] = lane(rank, block);
}

plan::Geometry KernelJob::geometry(std::size_t rank, std::uint32_t channel) {
  plan::Geometry made = data_.geometry(rank, channel);
  for (plan::Layout* layout : {&made.input, &made.output})
    if (layout->table != nullptr)
      layout->table = memory_.copy(layout->table, made.chunk_count).there;
  return made;
}

std::byte* KernelJob::place(std::vector<DeviceBytes>& into, const std::byte* from,
                            std::uint64_t bytes) {
  into.emplace_back(on_, std::max<std::uint64_t>(bytes, 1));
  on_.write(into.back().address(), from, bytes);
  return begin_of(into);
}

KernelJob::RankCall KernelJob::rank_call(std::size_t rank, std::uint32_t ordinal) {
  RankCall made{data_.make_memory(rank, calls_), {}, {}, {}, {}};
  const RankMemory::Side &in = made.host.input, &out = made.host.output;
  cuda::LaneCall& call = made.call;
  data_.fill(call, rank, calls_);
  std::byte* const output = place(made.output, out.origin, placed_bytes(out));
  call.output = output + (out.begin - out.origin);
  call.output_place = open_region(rank, output, placed_bytes(out));
  const std::byte* input = output;
  const std::byte* origin = out.origin;
  call.input_place = call.output_place;
  if (!case_.in_place) {
    input = place(made.input, in.origin, placed_bytes(in));
    origin = in.origin;
    call.input_place = open_region(rank, input, placed_bytes(in));
  }
  call.input = input + (in.begin - origin);
  if (call.output_place.region != 0)
    call.output_place.offset = static_cast<std::uint64_t>(call.output - output);
  if (call.input_place.region != 0)
    call.input_place.offset = static_cast<std::uint64_t>(call.input - input);
  call.scratch = place(made.scratch, made.host.scratch.data(), made.host.scratch.size());
  call.ordinal = ordinal;
  call.abort = abort_.there;
  call.claim = claims_[rank].there;
  call.gave_up = gave_up_[rank].there;
  call.status = statuses_[rank].there;
  call.progress = memory_.take<cuda::DeviceProgress>().there;
  call.patience_ns = patience_ns;
  return made;
}

// A task for each block of the rank, for the first call; the others are behind it.
std::vector<cuda::DeviceTask> KernelJob::tasks(std::size_t rank) {
  const std::uint32_t blocks = data_.blocks(rank);
  std::vector<cuda::DeviceTask> first;
  const cuda::DeviceTask* then = nullptr;
  for (std::size_t k = going_.size(); k-- > 0;) {
    std::vector<cuda::DeviceTask> all;
    for (std::uint32_t block = 0; block < blocks; ++block)
      all.push_back({lanes_[rank].there + block, going_[k][rank].call,
                     geometries_[rank][lanes_[rank].here[block].channel],
                     then == nullptr ? nullptr : then + block});
    if (k == 0)
      first = std::move(all);
    else
      then = memory_.copy(all.data(), all.size()).there;
  }
  return first;
}

cuda::DeviceLaunch KernelJob::of_tasks(const std::vector<cuda::DeviceTask>& tasks) {
  cuda::DeviceLaunch launch;
  static_cast<cuda::LaneCall&>(launch) = tasks[0].call;
  launch.tasks = memory_.copy(tasks.data(), tasks.size()).there;
  return launch;
}

std::vector<cuda::DeviceLaunch> KernelJob::launches(KernelForm form) {
  std::vector<cuda::DeviceLaunch> made;
  if (form == KernelForm::one_grid) {
    std::vector<cuda::DeviceTask> all;
    for (std::size_t rank = 0; rank < data_.ranks(); ++rank)
      for (const cuda::DeviceTask& task : tasks(rank)) all.push_back(task);
    made.push_back(of_tasks(all));
  } else {
    for (std::size_t rank = 0; rank < data_.ranks(); ++rank) {
      if (going_.size() > 1) {
        made.push_back(of_tasks(tasks(rank)));
        continue;
      }
      cuda::DeviceLaunch& launch = made.emplace_back();
      static_cast<cuda::LaneCall&>(launch) = going_[0][rank].call;
      launch.lanes = lanes_[rank].there;
      std::ranges::copy(geometries_[rank], launch.geometries);
    }
  }
  for (cuda::DeviceLaunch& launch : made) {
    launch.calls = static_cast<std::uint32_t>(going_.size());
    const auto sequence = memory_.take<std::uint64_t>();
    *sequence.here = sequence_;
    launch.sequence = sequence.there;
    launch.blocks_ended = memory_.take<std::uint32_t>().there;
    launch.starts = memory_.take<std::uint32_t>().there;
  }
  return made;
}

std::string KernelJob::launch_all(const std::vector<cuda::DeviceLaunch>& launches,
                                  const std::vector<std::uint32_t>& blocks, std::uint32_t threads) {
  const loaded::CuFunction kernel = device_.kernel(case_.protocol, case_.type, case_.op);
  for (int time = 0; time < case_.launches(); ++time)
    for (std::size_t i = 0; i < launches.size(); ++i) {
      cuda::DeviceLaunch launch = launches[i];
      void* parameters[] = {&launch};
      if (on_.driver->launch(kernel, blocks[i], 1, 1, threads, 1, 1, 0, streams_[i], parameters,
                             nullptr) != cu::success)
        return fmt::format("a launch of {} blocks of {} threads was refused", blocks[i], threads);
    }
  for (loaded::CuStream stream : streams_)
    if (on_.driver->stream_synchronize(stream) != cu::success) return "a kernel failed";
  return "";
}

std::string KernelJob::outcome() {
  memory_.download(links_end_);
  for (std::size_t rank = 0; rank < data_.ranks(); ++rank) {
    const cuda::DeviceStatus& status = *statuses_[rank].here;
    if (status.told != 0)
      return fmt::format("rank {} stopped with outcome {}, waiting for {} of rank {} in block {}",
                         rank, int(status.outcome), int(status.what), status.peer, status.block);
  }
  for (std::vector<RankCall>& call : going_) {
    std::vector<const RankMemory*> got;
    for (std::size_t rank = 0; rank < data_.ranks(); ++rank) {
      RankCall& one = call[rank];
      const RankMemory::Side &in = one.host.input, &out = one.host.output;
      on_.read(out.origin, one.output[0].address(), placed_bytes(out));
      got.push_back(&one.host);
      if (case_.in_place) continue;
      std::vector<std::byte> input(placed_bytes(in));
      on_.read(input.data(), one.input[0].address(), input.size());
      if (std::memcmp(input.data(), in.origin, input.size()) != 0)
        return fmt::format("rank {} lost its input", rank);
    }
    if (std::string wrong = data_.wrong(got, calls_); !wrong.empty()) return wrong;
  }
  return "";
}

std::string KernelJob::run(KernelForm form, std::uint32_t threads) {
  ++calls_;
  memory_.shrink(links_end_);
  statuses_.clear();
  going_.clear();
  claims_.clear();
  gave_up_.clear();
  for (std::size_t rank = 0; rank < data_.ranks(); ++rank) {
    statuses_.push_back(memory_.take<cuda::DeviceStatus>());
    claims_.push_back(memory_.take<std::uint32_t>());
    gave_up_.push_back(memory_.take<std::uint32_t>());
  }
  for (std::uint32_t ordinal = 0; ordinal < (case_.chained ? 2U : 1U); ++ordinal) {
    auto& call = going_.emplace_back();
    for (std::size_t rank = 0; rank < data_.ranks(); ++rank)
      call.push_back(rank_call(rank, ordinal));
  }
  const std::vector<cuda::DeviceLaunch> made = launches(form);
  std::vector<std::uint32_t> blocks;
  for (std::size_t i = 0; i < made.size(); ++i)
    blocks.push_back(form == KernelForm::one_grid ? this->blocks() : data_.blocks(i));
  memory_.upload(links_end_);
  sequence_ += going_.size() * static_cast<std::uint64_t>(case_.launches());
  const std::string failed = launch_all(made, blocks, threads);
  return failed.empty() ? outcome() : failed;
}

}  // namespace gyre::tests
