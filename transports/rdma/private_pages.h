// Zeroed pages of this process alone.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"
#include "lib/base/units.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstddef>
#include <sys/mman.h>

namespace gyre::transport {

inline Result<Mapping> private_pages(std::size_t bytes) {
  const std::size_t whole = round_up(bytes, 4096);
  void* const start =
      mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED)
    return Status::from_errno(fmt::format("mmap of {} bytes for notes of messages", whole), errno);
  return Mapping({static_cast<std::byte*>(start), whole});
}

}  // namespace gyre::transport
