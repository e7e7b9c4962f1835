// Buffers: allocation, filling, guards. See buffers.h.
#include "bench/runner/buffers.h"

#include "bench/runner/ranks.h"
#include "lib/base/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace gyre::bench {

Status Buffer::allocate(std::uint64_t bytes) {
  void* memory = nullptr;
  const std::uint64_t whole = front + bytes + guard_bytes;
  GYRE_TRY(checked(gyreMemAlloc(&memory, whole), fmt::format("gyreMemAlloc of {} bytes", whole)));
  memory_ = GyreMemory(memory);
  page_ = static_cast<std::byte*>(memory) + front;
  place(0, bytes);
  return {};
}

void Buffer::place(std::uint64_t offset, std::uint64_t bytes) {
  begin_ = page_ + offset;
  bytes_ = bytes;
}

Status Buffer::register_with(gyreComm_t comm) {
  GYRE_TRY(checked(gyreCommRegister(comm, begin_, bytes_, &registration_), "gyreCommRegister"));
  comm_ = comm;
  return {};
}

void Buffer::deregister() {
  if (comm_ != nullptr) (void)gyreCommDeregister(comm_, registration_);
  comm_ = nullptr;
}

void Buffer::touch(const Recipe& recipe, int rank) {
  constexpr std::uint64_t tile_bytes = 1 << 20;
  const std::uint64_t size = element_bytes(recipe.type);
  const std::uint64_t tile = std::min(bytes_, tile_bytes);
  fill_inputs(recipe, rank, 0, tile / size, begin_);
  for (std::uint64_t at = tile; at < bytes_; at += tile_bytes)
    std::memcpy(begin_ + at, begin_, std::min(tile_bytes, bytes_ - at));
}

void Buffer::guard(std::uint64_t used) {
  write_guard(begin_ - guard_bytes);
  write_guard(begin_ + used);
}

std::uint64_t Buffer::damage(std::uint64_t used) const {
  return damaged_guard_bytes(begin_ - guard_bytes) + damaged_guard_bytes(begin_ + used);
}

void Rotation::begin_row(std::uint64_t bytes) {
  last_ = buffer_bytes_ > bytes ? buffer_bytes_ - bytes : 0;
  if (!cold_) {
    stride_ = bytes;
    offset_ = 0;
    return;
  }
  // A page and a line more than the data, at least 64 KiB: another page each time, and another set
  // of each cache.
  constexpr std::uint64_t least = 64 << 10, page = 4096, line = 64;
  stride_ = std::max(round_up(bytes, page), least) + page + line;
  if (offset_ > last_) offset_ = 0;
}

}  // namespace gyre::bench
