// Tickets: a data connection shows a one-time ticket at the listener of the process that it wants
// to reach. The receiving side issues the ticket, says what happens when it is shown, and hands it
// to the sender over the authenticated control plane. A ticket is valid once, and not after it was
// withdrawn.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/recent.h"
#include "lib/base/status.h"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace gyre::trust {

using Ticket = std::array<std::uint8_t, 32>;

// What a data connection sends first, over TCP or an abstract socket: 40 bytes.
struct TicketHello {
  std::array<char, 8> magic = {'G', 'Y', 'R', 'E', 'T', 'K', 'T', '1'};
  Ticket ticket{};
};
static_assert(sizeof(TicketHello) == 40);

class TicketBook {
 public:
  // Called on the control thread with the connected socket (non-blocking, hello already read).
  using OnArrival = std::function<void(FileDescriptor)>;

  // A fresh random ticket. `local` is what a thread of this same process gets from `redeem_local`.
  Result<Ticket> issue(OnArrival on_arrival, std::shared_ptr<void> local = nullptr);
  // After it returns, on_arrival is not running and will not run.
  void withdraw(const Ticket& ticket);

  // The listener. A good ticket is used up. One of the last that were withdrawn unused is known for
  // it: a peer was late with it, which is nothing to warn of.
  enum class Redemption : std::uint8_t { good, withdrawn, unknown };
  Redemption redeem(const Ticket& ticket, FileDescriptor socket);
  // Whether a peer of another process is still to come with one.
  bool are_out();
  // A thread of this process: the `local` of a good ticket, which is used up; else null.
  std::shared_ptr<void> redeem_local(const Ticket& ticket);

 private:
  struct PendingTicket {
    OnArrival on_arrival;
    std::shared_ptr<void> local;
  };
  std::mutex mutex_;
  std::map<Ticket, PendingTicket> entries_;
  Recent<Ticket, 256> withdrawn_;
};

}  // namespace gyre::trust
