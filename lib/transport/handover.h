// Passes a memory's descriptor from one process to another (a fifo's from the receiver to the
// sender): one message with one descriptor, over the socket that showed the right ticket at the
// listener.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"
#include "lib/trust/tickets.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gyre::transport {

// Hands `memory` over. The socket is fresh, so the message never waits.
Status hand_over(const FileDescriptor& socket, const FileDescriptor& memory, std::uint64_t bytes);
// The same, as the answer to a ticket. The peer sees the socket close and reports a failure; here
// it is only worth a line, which begins with `what`. A peer that needs the memory no longer may
// close before it has taken it: that is no warning.
void answer_with_memory(const FileDescriptor& socket, const FileDescriptor& memory,
                        std::uint64_t bytes, std::string_view what);
// The descriptor; nothing while the message has not come.
Result<std::optional<FileDescriptor>> take_over(const FileDescriptor& socket, std::uint64_t bytes);

// At a listener, so that it hands over what the ticket stands for.
Status show_ticket_at_listener(const FileDescriptor& socket, const trust::Ticket& ticket);

// Joins an abstract listener of a process with our own user id. Nothing while the listener's queue
// is full.
Result<std::optional<FileDescriptor>> connect_to_listener(const std::string& listener_name);

}  // namespace gyre::transport
