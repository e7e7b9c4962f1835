// How a fifo's memory travels from the receiver's process to the sender's: one letter with one
// descriptor, over the socket that showed the right ticket at the door.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"

#include <cstdint>
#include <optional>
#include <string>

namespace gyre::transport {

// Hands `memory` over. The socket is fresh, so the letter never waits.
Status hand_over(const FileDescriptor& socket, const FileDescriptor& memory, std::uint64_t bytes);
// The descriptor; nothing while the letter has not come.
Result<std::optional<FileDescriptor>> take_over(const FileDescriptor& socket, std::uint64_t bytes);

// Joins an abstract door of a process with our own user id. Nothing while the door's queue is full.
Result<std::optional<FileDescriptor>> knock(const std::string& door_name);

}  // namespace gyre::transport
