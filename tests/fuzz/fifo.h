// A fifo in memory of its own, so that a sanitizer sees an access of one byte too many.
#pragma once

#include "lib/base/units.h"
#include "lib/transport/slots.h"

#include <cstdlib>
#include <cstring>

namespace gyre::fuzz {

class Fifo {
 public:
  explicit Fifo(const transport::FifoShape& shape)
      : bytes_(round_up(transport::fifo_bytes(shape), 4096)),
        memory_(static_cast<std::byte*>(std::aligned_alloc(4096, bytes_))),
        view(transport::FifoView::at(memory_, shape)) {
    std::memset(memory_, 0, bytes_);
  }
  ~Fifo() { std::free(memory_); }
  Fifo(const Fifo&) = delete;
  Fifo& operator=(const Fifo&) = delete;

  // A peer writes what it likes, where it likes.
  void scribble(std::uint32_t offset, std::uint8_t value) {
    memory_[offset % transport::fifo_bytes(view.shape)] = std::byte{value};
  }

 private:
  const std::size_t bytes_;
  std::byte* const memory_;

 public:
  const transport::FifoView view;
};

}  // namespace gyre::fuzz
