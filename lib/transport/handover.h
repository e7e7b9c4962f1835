// Passes a memory's descriptor from one process to another (a fifo's from the receiver to the
// sender): one message with one descriptor, over the socket that showed the right ticket at the
// listener.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"
#include "lib/transport/lost_knocks.h"
#include "lib/trust/tickets.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace gyre::transport {

// Hands `memory` over. The socket is fresh, so the message never waits.
Status hand_over(const FileDescriptor& socket, const FileDescriptor& memory, std::uint64_t bytes);
// The same, as the answer to a ticket. The peer sees the socket close and reports a failure; here
// it is only worth a line, which begins with `what`. A peer that needs the memory no longer may
// close before it has taken it: that is no warning.
void answer_with_memory(const FileDescriptor& socket, const FileDescriptor& memory,
                        std::uint64_t bytes, std::string_view what);
// The descriptor; nothing while the message has not come. On an error, `unread` says whether the
// other end closed before it had read what it was sent.
Result<std::optional<FileDescriptor>> take_over(const FileDescriptor& socket, std::uint64_t bytes,
                                                bool* unread = nullptr);

// Joins an abstract listener of a process with our own user id. Nothing while the listener's queue
// is full.
Result<std::optional<FileDescriptor>> connect_to_listener(const std::string& listener_name);

// Asks a listener for the memory that a ticket stands for; again, if it closes before it has read
// the ticket.
class MemoryRequest {
 public:
  MemoryRequest(std::string listener_name, const trust::Ticket& ticket, std::uint64_t bytes)
      : listener_name_(std::move(listener_name)), ticket_(ticket), bytes_(bytes) {}
  // The memory, once; nothing while it has not come.
  Result<std::optional<FileDescriptor>> advance();
  // To be polled for reading meanwhile; -1 if there is none.
  int descriptor() const { return socket_.get(); }

 private:
  Result<std::optional<FileDescriptor>> note_loss(const Status& why);

  std::string listener_name_;
  trust::Ticket ticket_;
  std::uint64_t bytes_;
  FileDescriptor socket_;
  LostKnocks losses_;
};

}  // namespace gyre::transport
