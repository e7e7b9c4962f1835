// Pages that NICs know, of this process alone: a forked child does not have them. Where a fork does
// not copy pinned pages (lib/transport/pinned_pages.h), it would part those that this process has
// from those that the NIC has.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"
#include "lib/base/units.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstddef>
#include <sys/mman.h>

namespace gyre::transport {

inline Status keep_from_children(const Mapping& pages) {
  const MemoryRange& range = pages.get();
  if (madvise(range.data, range.bytes, MADV_DONTFORK) == 0) return {};
  return Status::from_errno(fmt::format("madvise of {} bytes for RDMA, MADV_DONTFORK", range.bytes),
                            errno);
}

// Zeroed.
inline Result<Mapping> private_pages(std::size_t bytes) {
  const std::size_t whole = round_up(bytes, 4096);
  void* const start =
      mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED)
    return Status::from_errno(fmt::format("mmap of {} bytes for RDMA", whole), errno);
  Mapping pages({static_cast<std::byte*>(start), whole});
  GYRE_TRY(keep_from_children(pages));
  return pages;
}

}  // namespace gyre::transport
