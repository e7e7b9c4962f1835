// Owners of the objects that gyre.h gives, and its results as Status.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"
#include <gyre/gyre.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gyre::gradsync {

// With the text of gyreGetLastError (of `comm`, if it is one).
Status checked(gyreResult_t result, gyreComm_t comm = nullptr);
// Whether it is about this rank alone, and no peer's doing.
bool is_local(const Status& failure);

struct CommunicatorTraits {
  using Handle = gyreComm_t;
  static Handle none() { return nullptr; }
  static void close(Handle comm) { gyreCommDestroy(comm); }
};
using OwnedCommunicator = Owned<CommunicatorTraits>;

struct StreamTraits {
  using Handle = gyreStream_t;
  static Handle none() { return nullptr; }
  static void close(Handle stream) { gyreStreamDestroy(stream); }
};
using OwnedStream = Owned<StreamTraits>;

// Zeroed memory that peers of this host reach directly.
struct SharedMemoryTraits {
  using Handle = void*;
  static Handle none() { return nullptr; }
  static void close(Handle memory) { gyreMemFree(memory); }
};
using SharedMemory = Owned<SharedMemoryTraits>;
Result<SharedMemory> allocate(std::uint64_t bytes);

// The ranks of `comm` that give this color, with this deadline for each call;
// GYRE_CONFIG_UNDEF_INT: as in `comm`. Collective.
Result<OwnedCommunicator> split_off(gyreComm_t comm, int color, const char* name, int timeout_ms);
Result<OwnedStream> make_stream();
int size_of(gyreComm_t comm);
int rank_of(gyreComm_t comm);

// Every rank's values, as many from each, in the order of ranks.
template <typename Value>
Status all_gather(gyreComm_t comm, std::span<const Value> mine, std::vector<Value>& all) {
  all.resize(mine.size() * static_cast<std::size_t>(size_of(comm)));
  return checked(gyreAllGather(mine.data(), all.data(), mine.size_bytes(), gyreChar, comm, nullptr),
                 comm);
}

}  // namespace gyre::gradsync
