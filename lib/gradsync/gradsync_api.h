// The common parts of all C functions of this library: handles, and errors that threads remember.
#pragma once

#include "lib/base/caught.h"
#include "lib/base/handle_table.h"
#include "lib/gradsync/mesh.h"
#include "lib/gradsync/parallel.h"
#include "lib/gradsync/replica.h"
#include "lib/gradsync/shards.h"
#include "lib/gradsync/stale_replica.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <functional>
#include <new>

namespace gyre::gradsync {

// The only process-wide state of this library.
struct Handles {
  HandleTable<Replica> replicas{0xD1, 1};
  HandleTable<Shards> shards{0xD2, 1};
  HandleTable<Mesh> meshes{0xD3, 1};
  HandleTable<StaleReplica> stale_replicas{0xD4, 1};
  HandleTable<Parallel> parallels{0xD5, 1};
  Handles* before_fork = nullptr;  // a child's: of the one before its parent's
};
Handles& handles();
// Why a handle is none that a call could use.
Status unknown(const char* what, const void* handle);

// Keeps the text for gyreGradGetLastError and returns the code.
gyreResult_t answer(const Status& status) noexcept;

// Runs `body` (returning Status) for a C function; nothing thrown gets past it.
template <typename Body>
gyreResult_t guarded(Body&& body) {
  return answer(caught(body));
}

template <typename Object>
Result<typename HandleTable<Object>::Pin> find(HandleTable<Object>& table, const void* handle,
                                               const char* what) {
  auto pin = table.pin(reinterpret_cast<std::uintptr_t>(handle));
  if (!pin) return unknown(what, handle);
  return pin;
}

// A new object's handle, to the caller's place for it; `what`: what there are many of.
template <typename Handle, typename Object>
Status keep(HandleTable<Object>& table, std::unique_ptr<Object> object, Handle* handle,
            const char* what) {
  const std::uint64_t number = table.insert(std::move(object));
  if (number == 0) return Status(Code::SystemError, fmt::format("there are 2^20 {} already", what));
  *handle = reinterpret_cast<Handle>(number);
  return {};
}

template <typename Object>
gyreResult_t destroy(HandleTable<Object>& table, const void* handle, const char* what) {
  return guarded([&]() -> Status {
    GYRE_TRY(find(table, handle, what).status());
    table.remove(reinterpret_cast<std::uintptr_t>(handle));
    return {};
  });
}

// body(object) for a function that is called on one.
template <typename Object, typename Body>
gyreResult_t on(HandleTable<Object>& table, const void* handle, const char* what,
                const char* function, const Body& body) {
  return guarded([&]() -> Status {
    GYRE_ASSIGN(auto pin, find(table, handle, what));
    return body(*pin).while_doing(function);
  });
}

// config.`field` of a caller.
Status in_range(const char* field, std::int64_t value, std::int64_t least, std::int64_t most);
// One of host memory.
Status check_communicator(gyreComm_t comm);

// How large callers' structs may say that they are.
inline constexpr std::size_t max_struct_bytes = 4096;
inline Status check_size(const char* what, std::size_t size, std::size_t least) {
  if (size >= least && size <= max_struct_bytes) return {};
  return invalid_argument(
      fmt::format("{} size {} is not valid: initialize it as gradsync.h says", what, size));
}

// Results to a caller's struct, as much as its version has: `told.size` bytes.
template <typename Struct>
void write_struct(Struct* place, const Struct& told) {
  std::memcpy(place, &told, std::min(told.size, sizeof told));
}

// A caller's struct as this library knows it: fields that the caller's version lacks are as in
// `known`. `least`: bytes that every version has.
template <typename Struct>
Result<Struct> read_struct(const Struct* given, Struct known, unsigned magic, std::size_t least) {
  if (given == nullptr) return known;
  if (given->magic != magic)
    return invalid_argument("the config was not made with its INITIALIZER (wrong magic)");
  GYRE_TRY(check_size("the config's", given->size, least));
  std::memcpy(&known, given, std::min(given->size, sizeof known));
  return known;
}

}  // namespace gyre::gradsync
