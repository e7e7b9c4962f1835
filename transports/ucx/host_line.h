// HostLine: a TCP connection with a peer's process on another host, by which nobody sends: the
// kernels of both hosts ask each other whether they are there (keep-alive). UCX does not ask where
// its own bytes are out and nothing answers, as on a path that is cut in one direction.
//
// A sending end dials the listener of the receiver's process, and shows the ticket that it shows to
// UCX, too. It is a help alone: where the listener cannot be reached, there is no line.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/path_watch.h"
#include "lib/base/status.h"
#include "lib/trust/tickets.h"

#include <atomic>
#include <cstdint>
#include <string>

namespace gyre::transport {

class HostLine {
 public:
  HostLine() = default;
  HostLine(const HostLine&) = delete;
  HostLine& operator=(const HostLine&) = delete;
  ~HostLine() { FileDescriptor(came_.load(std::memory_order_acquire)).reset(); }

  // At the one end. From then on `advance` until the ticket has been shown.
  void dial(const std::string& address, const trust::Ticket& ticket);
  bool is_dialing() const { return is_dialing_; }
  void advance();
  // At the other end, by any thread, once.
  void take(FileDescriptor socket);

  // An error if the other host has not answered for `limit_ns`. Costs system calls.
  Status look(std::int64_t now_ns, std::int64_t limit_ns);

 private:
  FileDescriptor socket_;  // of whoever holds the engine
  std::atomic<int> came_{-1};
  bool is_dialing_ = false;
  bool asks_ = false;
  trust::Ticket ticket_{};
  PathWatch path_;
};

}  // namespace gyre::transport
