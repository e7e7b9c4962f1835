// The messages that ranks join with: settings to compare, masks of processors to count together,
// and GPUs. Ranks find the same route between two GPUs from both ends. Input: one message for each
// rank of a host, as blocks.
#include "lib/base/wait.h"
#include "lib/comm/join_info.h"
#include "lib/comm/rank_levels.h"
#include "lib/device/device_share.h"
#include "tests/fuzz/input.h"

#include <algorithm>
#include <bit>
#include <set>

namespace joining_fuzz {

using namespace gyre;

namespace {

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// The processors of one mask, by the simplest reading: whole words of 16 digits, up to the first
// that is none.
void add_processors(std::string_view mask, std::set<std::size_t>& processors) {
  for (std::size_t word = 0; word + 16 <= mask.size(); word += 16) {
    const std::string_view digits = mask.substr(word, 16);
    if (std::ranges::any_of(digits, [](char c) { return digit(c) < 0; })) return;
    for (std::size_t i = 0; i < 16; ++i)
      for (std::size_t bit = 0; bit < 4; ++bit)
        if (digit(digits[15 - i]) >> bit & 1) processors.insert(word * 4 + i * 4 + bit);
  }
}

void check_ways(const std::vector<p2p::Gpu>& gpus) {
  for (const p2p::Gpu& here : gpus)
    for (const p2p::Gpu& there : gpus) {
      const p2p::PairRoute out = find_route(here, there), back = find_route(there, here);
      GYRE_DEMAND(out.way == back.way && out.path == back.path && out.lanes == back.lanes);
      GYRE_DEMAND(out.way != p2p::GpuRoute::relay || !out.reason.empty());
      GYRE_DEMAND(out.way == p2p::GpuRoute::relay ||
                  (out.way == p2p::GpuRoute::pointer) == (here.process == there.process));
    }
}

// What all ranks may use fits what each said of its GPU.
void check_share(const std::vector<comm::GpuInfo>& notes) {
  if (notes.empty()) return;
  const std::vector<std::uint32_t> processes(notes.size(), 0);
  const auto share = comm::share_devices(notes, processes, {4096, notes.size() % 2 == 0});
  if (!share.ok()) return;
  GYRE_DEMAND(share->channels > 0 && share->blocks >= share->channels);
  for (const comm::GpuInfo& note : notes) {
    std::uint64_t held = share->blocks;
    for (const comm::DeviceHolding& one : note.held) held += one.blocks;
    std::set<std::string> names;
    for (const comm::DeviceHolding& one : note.held) names.insert(one.communicator);
    GYRE_DEMAND(names.size() < note.held.size() || held <= note.blocks);
    GYRE_DEMAND(share->channels <= note.channels);
  }
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  std::vector<control::MessageBytes> messages;
  while (!input.empty() && messages.size() < 8) messages.push_back(input.take_vector());
  std::vector<std::string_view> masks;
  std::set<std::size_t> processors;
  std::vector<p2p::Gpu> gpus;
  std::vector<comm::GpuInfo> notes;
  for (const control::MessageBytes& message : messages) {
    const comm::JoinInfo note = comm::read_join_info(message);
    GYRE_DEMAND(note.processors.find('|') == note.processors.npos);
    GYRE_DEMAND(note.device.find('|') == note.device.npos);
    GYRE_DEMAND(note.locality.find('|') == note.locality.npos);
    GYRE_DEMAND(note.announcement.find('|') == note.announcement.npos);
    GYRE_DEMAND(note.machine.find('|') == note.machine.npos);
    GYRE_DEMAND(note.wires.find('|') == note.wires.npos);
    for (const char* transport : {"rdma", "tcp", ""})
      GYRE_DEMAND(comm::wire_megabytes_per_s(note.wires, transport) >= 0);
    const bool is_whole = std::ranges::count(message, '|') >= 6;
    GYRE_DEMAND(!is_whole || comm::encode(note) == message);
    if (const auto device = comm::read_gpu_info(note.device)) {
      GYRE_DEMAND(comm::encode(*device) == note.device);
      // Two processes of one host.
      p2p::Gpu& gpu = gpus.emplace_back();
      gpu.process.fill(static_cast<std::uint8_t>(messages.size() + gpus.size() % 2));
      gpu.uuid = device->uuid;
      gpu.toward = device->toward;
      notes.push_back(*device);
    }
    masks.push_back(note.processors);
    add_processors(note.processors, processors);
  }
  check_ways(gpus);
  check_share(notes);
  (void)p2p::keep_lines_whole(gpus);
  const int count = count_processors(masks);
  GYRE_DEMAND(count == static_cast<int>(processors.size()));
  const WaitPolicy policy = wait_policy(static_cast<int>(messages.size()), count, -1);
  GYRE_DEMAND((policy.spins == 0) == (static_cast<int>(messages.size()) > count));
  return 0;
}

GYRE_FUZZ_TARGET(joining)

}  // namespace joining_fuzz
