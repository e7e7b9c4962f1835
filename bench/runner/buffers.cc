// Buffers: allocation, filling, guards. See buffers.h.
#include "bench/runner/buffers.h"

#include "bench/runner/ranks.h"
#include "lib/base/units.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace gyre::bench {

TestBuffer::~TestBuffer() {
  if (whole_ != nullptr) memory_->release(whole_);
}

Status TestBuffer::allocate(Memory& memory, std::uint64_t bytes) {
  memory_ = &memory;
  GYRE_ASSIGN(whole_, memory.allocate(front + bytes + guard_bytes));
  page_ = whole_ + front;
  place(0, bytes);
  return {};
}

void TestBuffer::place(std::uint64_t offset, std::uint64_t bytes) {
  begin_ = page_ + offset;
  bytes_ = bytes;
}

Status TestBuffer::register_with(gyreComm_t comm) {
  if (bytes_ == 0) return {};  // nothing to register is an error
  GYRE_TRY(checked(gyreCommRegister(comm, begin_, bytes_, &registration_), "gyreCommRegister"));
  comm_ = comm;
  return {};
}

// Other ranks' kernels rest soon, as the calls are over. What another process may have open even
// then is not freed.
void TestBuffer::deregister() {
  if (comm_ == nullptr) return;
  gyreResult_t result = gyreInProgress;
  for (int i = 0; i < 10 && result == gyreInProgress; ++i)
    result = gyreCommDeregister(comm_, registration_);
  if (result != gyreSuccess) whole_ = nullptr;
  comm_ = nullptr;
}

Status TestBuffer::touch(const Recipe& recipe, int rank) {
  constexpr std::uint64_t part = 1 << 20;  // offsets of tiles are multiples of it
  std::vector<std::byte> pattern(std::min(bytes_, part));
  fill_inputs(recipe, rank, 0, pattern.size() / element_bytes(recipe.type), pattern.data());
  return memory_->write(begin_, bytes_, [&](std::byte* tile, std::uint64_t, std::uint64_t bytes) {
    for (std::uint64_t at = 0; at < bytes; at += part)
      std::memcpy(tile + at, pattern.data(), std::min(part, bytes - at));
  });
}

Status TestBuffer::guard(std::uint64_t used) {
  for (std::byte* place : {begin_ - guard_bytes, begin_ + used})
    GYRE_TRY(memory_->write(place, guard_bytes, [](std::byte* tile, std::uint64_t, std::uint64_t) {
      write_guard(tile);
    }));
  return {};
}

Result<std::uint64_t> TestBuffer::damage(std::uint64_t used) const {
  std::uint64_t damaged = 0;
  for (const std::byte* place : {begin_ - guard_bytes, begin_ + used})
    GYRE_TRY(
        memory_->read(place, guard_bytes, [&](const std::byte* tile, std::uint64_t, std::uint64_t) {
          damaged += damaged_guard_bytes(tile);
        }));
  return damaged;
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
