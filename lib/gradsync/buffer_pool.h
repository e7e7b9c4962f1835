// BufferPool: memory for units whose parameters or gradients are whole only for a while. Returned
// memory is given out again. It goes back to the system only at the end.
#pragma once

#include "lib/gradsync/gyre_objects.h"

#include <vector>

namespace gyre::gradsync {

class BufferPool {
 public:
  explicit BufferPool(std::uint64_t buffer_bytes) : buffer_bytes_(buffer_bytes) {}

  // Of buffer_bytes, with anything in it.
  Result<SharedMemory> take() {
    if (free_.empty()) return allocate(buffer_bytes_);
    SharedMemory last = std::move(free_.back());
    free_.pop_back();
    return last;
  }
  void give_back(SharedMemory memory) { free_.push_back(std::move(memory)); }

 private:
  const std::uint64_t buffer_bytes_;
  std::vector<SharedMemory> free_;
};

}  // namespace gyre::gradsync
