// How memory travels from one process to another, as a descriptor of it (a fifo's from the
// receiver's to the sender's): one letter with one descriptor, over the socket that showed the
// right ticket at the door.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"
#include "lib/trust/tickets.h"

#include <cstdint>
#include <optional>
#include <string>

namespace gyre::transport {

// Hands `memory` over. The socket is fresh, so the letter never waits.
Status hand_over(const FileDescriptor& socket, const FileDescriptor& memory, std::uint64_t bytes);
// The descriptor; nothing while the letter has not come.
Result<std::optional<FileDescriptor>> take_over(const FileDescriptor& socket, std::uint64_t bytes);

// At a door, so that it hands over what the ticket stands for.
Status show_ticket_at_door(const FileDescriptor& socket, const trust::Ticket& ticket);

// Joins an abstract door of a process with our own user id. Nothing while the door's queue is full.
Result<std::optional<FileDescriptor>> knock(const std::string& door_name);

}  // namespace gyre::transport
