#include "tests/support/host_device/host_device.h"

#include "kernels/cpu/narrow_float.h"
#include "kernels/cuda/reducer.h"
#include "tests/support/host_device/host_machine.h"

#include <bit>
#include <cstdlib>
#include <utility>

namespace gyre::tests {
namespace {

void touch(const void* place) {
  const auto& reaches = machine->options().reaches;
  if (reaches && place != nullptr) reaches(*machine->block().grid, place);
}

template <typename T>
T loaded(const void* place, bool weak) {
  touch(place);
  machine->check_alignment(place, sizeof(T));
  T value;
  machine->load(static_cast<const std::byte*>(place), &value, sizeof value, weak);
  if (weak) machine->maybe_yield();
  return value;
}

template <typename T>
T payload(const std::byte* place) {
  machine->watch_read(place, sizeof(T), false);
  return loaded<T>(place, true);
}

template <typename T>
void stored(void* place, T value) {
  touch(place);
  machine->check_alignment(place, sizeof(T));
  machine->store(static_cast<std::byte*>(place), &value, sizeof value);
  machine->maybe_yield();
}

template <typename T>
void put_payload(std::byte* place, T value) {
  machine->watch_write(place, sizeof(T), false);
  stored(place, value);
}

std::uint64_t group_accesses = 0, release_stores = 0;

// The same place in the memory of all ranks of its group.
std::vector<std::byte*> members_at(const std::byte* place) {
  ++group_accesses;
  for (const MulticastGroup& group : machine->options().groups) {
    if (place < group.address || place + sizeof(cuda::Bytes16) > group.address + group.bytes)
      continue;
    std::vector<std::byte*> places;
    for (std::byte* const member : group.members)
      places.push_back(member + (place - group.address));
    return places;
  }
  std::abort();  // as a GPU would
}

template <typename Element>
cuda::Bytes16 multicast_sum(const std::byte* place) {
  using Reducer = cuda::Reducer<Element, cuda::Sum>;
  typename Reducer::Value sum{};
  bool first = true;
  for (const std::byte* const member : members_at(place)) {
    const auto bytes = payload<cuda::Bytes16>(member);
    if (std::exchange(first, false))
      sum = Reducer::widen(bytes);
    else
      Reducer::combine(sum, bytes, {});
  }
  if (!machine->self().alias_fresh) return {0x6b6b6b6b6b6b6b6b, 0x6b6b6b6b6b6b6b6b};
  return Reducer::narrow(sum, {});
}

}  // namespace

std::uint64_t multicast_accesses() { return group_accesses; }
std::uint64_t releases() { return release_stores; }

std::string run_grids(const std::vector<Grid>& grids, const MachineOptions& options) {
  group_accesses = release_stores = 0;
  return Machine(grids, options).run();
}

void let_others_run() {
  machine->progress();
  machine->yield();
}

void host_fills(std::byte* place, std::size_t bytes, std::byte value) {
  machine->watch_write(place, bytes, false);
  std::memset(place, static_cast<int>(value), bytes);
}

}  // namespace gyre::tests

namespace gyre::cuda::device {

using tests::loaded;
using tests::machine;
using tests::payload;
using tests::put_payload;
using tests::release_stores;
using tests::stored;

std::uint32_t thread_index() { return machine->self().thread; }
std::uint32_t thread_count() { return machine->block().grid->threads; }
std::uint32_t block_index() { return machine->block().index; }
std::uint32_t block_count() { return machine->block().grid->blocks; }

void block_barrier() {
  machine->meet_aliases();
  machine->meet_block(false);
}
bool block_any(bool mine) {
  machine->meet_aliases();
  return machine->meet_block(mine);
}
bool warp_any(bool mine) { return machine->meet_warp(mine, nullptr, false); }

std::uint8_t load_1(const std::byte* place) { return payload<std::uint8_t>(place); }
std::uint16_t load_2(const std::byte* place) { return payload<std::uint16_t>(place); }
std::uint32_t load_4(const std::byte* place) { return payload<std::uint32_t>(place); }
std::uint64_t load_8(const std::byte* place) { return payload<std::uint64_t>(place); }
Bytes16 load_16(const std::byte* place) { return payload<Bytes16>(place); }
void store_1(std::byte* place, std::uint8_t value) { put_payload(place, value); }
void store_2(std::byte* place, std::uint16_t value) { put_payload(place, value); }
void store_4(std::byte* place, std::uint32_t value) { put_payload(place, value); }
void store_8(std::byte* place, std::uint64_t value) { put_payload(place, value); }
void store_16(std::byte* place, const Bytes16& value) { put_payload(place, value); }

std::uint32_t load_relaxed(const std::uint32_t* word) { return loaded<std::uint32_t>(word, false); }
std::uint64_t load_relaxed(const std::uint64_t* word) { return loaded<std::uint64_t>(word, false); }
std::uint64_t load_acquire(const std::uint64_t* word) {
  machine->yield();
  const auto value = loaded<std::uint64_t>(word, false);
  // Who wrote it may be another process: pairs with the release in store_release.
  (void)__atomic_load_n(word, __ATOMIC_ACQUIRE);
  machine->acquire(word);
  return value;
}
void store_relaxed(std::uint32_t* word, std::uint32_t value) { stored(word, value); }
void store_relaxed(std::uint64_t* word, std::uint64_t value) { stored(word, value); }
// No progress: a kernel that only shows that it waits is stuck.
void show(std::uint64_t* word, std::uint64_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELAXED);
}
void store_release(std::uint64_t* word, std::uint64_t value) {
  ++release_stores;
  machine->release(word);
  __atomic_store_n(word, value, __ATOMIC_RELEASE);  // pairs with the acquire in load_acquire
  machine->progress();
  machine->yield();
}
std::uint32_t add_acquire_release(std::uint32_t* word, std::uint32_t value) {
  machine->yield();
  machine->release(word);
  machine->acquire(word);
  const std::uint32_t before = *word;
  *word = before + value;
  machine->progress();
  return before;
}

Bytes16 load_flagged(const std::byte* place) {
  machine->watch_read(place, sizeof(Bytes16), true);
  return loaded<Bytes16>(place, false);
}
void store_flagged(std::byte* place, const Bytes16& value) {
  machine->watch_write(place, sizeof(Bytes16), true);
  stored(place, value);
}

Bytes16 load_line_part(const std::byte* place) {
  tests::touch(place);
  machine->meet_warp(false, const_cast<std::byte*>(place), false);
  return place != nullptr ? machine->self().part : Bytes16{0, 0};
}
void store_line_part(std::byte* place, const Bytes16& value) {
  tests::touch(place);
  machine->self().part = value;
  const bool whole = machine->options().whole_lines;
  machine->meet_warp(false, whole ? place : nullptr, true);
  if (!whole && place != nullptr) stored(place, value);
}

Bytes16 multicast_sum_float32(const std::byte* place) {
  return tests::multicast_sum<Float32>(place);
}
Bytes16 multicast_sum_float16(const std::byte* place) {
  return tests::multicast_sum<Float16>(place);
}
Bytes16 multicast_sum_bfloat16(const std::byte* place) {
  return tests::multicast_sum<BFloat16>(place);
}
void multicast_store(std::byte* place, const Bytes16& value) {
  for (std::byte* const member : tests::members_at(place))
    machine->self().aliased.emplace_back(member, value);
  machine->maybe_yield();
}
void alias_fence() {
  machine->self().alias_fresh = true;
  for (const auto& [place, value] : std::exchange(machine->self().aliased, {}))
    put_payload(place, value);
}

void pause(WaitingFor what, std::uint32_t link) { machine->wait_for(what, link); }
std::uint64_t clock_ns() { return machine->now(); }

float widen_float16(std::uint16_t code) {
  return std::bit_cast<float>(kernels::Float16::widen(code));
}
std::uint16_t narrow_float16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>(kernels::Float16::narrow(bits));
}
float widen_bfloat16(std::uint16_t code) {
  return std::bit_cast<float>(kernels::BFloat16::widen(code));
}
std::uint16_t narrow_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>(kernels::BFloat16::narrow(bits));
}

// All threads ask for the same size; what it holds at first is the seed's.
void* block_bytes(std::size_t bytes) {
  auto& memory = machine->block().memory;
  if (memory.empty()) memory.assign(bytes, std::byte(0xa5 ^ machine->options().seed));
  return memory.data();
}

}  // namespace gyre::cuda::device
