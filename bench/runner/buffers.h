// Buffers: one rank's memory for a sweep, with room for guards around the used part, and the
// rotation that moves successive iterations through it.
#pragma once

#include "bench/runner/check.h"
#include "bench/runner/memory.h"
#include "lib/base/status.h"
#include <gyre/gyre.h>

#include <cstddef>
#include <cstdint>

namespace gyre::bench {

class TestBuffer {
 public:
  TestBuffer() = default;
  ~TestBuffer();
  TestBuffer(const TestBuffer&) = delete;
  TestBuffer& operator=(const TestBuffer&) = delete;

  // `bytes` at the beginning of a page, and room for the guards. The memory outlives it.
  Status allocate(Memory& memory, std::uint64_t bytes);
  // Uses `bytes` of it that begin `offset` after the page.
  void place(std::uint64_t offset, std::uint64_t bytes);
  Status register_with(gyreComm_t comm);
  void deregister();

  std::byte* begin() const { return begin_; }

  // All of it becomes valid numbers of the recipe's type, so that no timed pass reads pages that
  // were never written.
  Status touch(const Recipe& recipe, int rank);

  // Guards before begin() and after the first `used` bytes.
  Status guard(std::uint64_t used);
  Result<std::uint64_t> damage(std::uint64_t used) const;

 private:
  static constexpr std::uint64_t front = 4096;  // keeps the page alignment
  Memory* memory_ = nullptr;
  std::byte* whole_ = nullptr;
  std::byte* page_ = nullptr;
  std::byte* begin_ = nullptr;
  std::uint64_t bytes_ = 0;
  gyreComm_t comm_ = nullptr;
  void* registration_ = nullptr;
};

// Where successive iterations begin. Warm: as nccl-tests, from the beginning of the buffer in steps
// of the operation's size, again from the beginning for each row. Cold: on and on through the whole
// buffer, with a stride that no prefetcher follows, so that a place comes again only after more
// bytes than the cache holds.
class Rotation {
 public:
  Rotation(std::uint64_t buffer_bytes, bool cold) : buffer_bytes_(buffer_bytes), cold_(cold) {}
  // Before the iterations of an operation on `bytes`.
  void begin_row(std::uint64_t bytes);
  std::uint64_t next() {
    const std::uint64_t offset = offset_;
    offset_ = offset_ + stride_ > last_ ? 0 : offset_ + stride_;
    return offset;
  }

 private:
  const std::uint64_t buffer_bytes_;
  const bool cold_;
  std::uint64_t stride_ = 0;
  std::uint64_t last_ = 0;  // the last offset at which the operation fits
  std::uint64_t offset_ = 0;
};

}  // namespace gyre::bench
