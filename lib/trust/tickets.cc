#include "lib/trust/tickets.h"

#include <algorithm>
#include <cerrno>
#include <sys/random.h>

namespace gyre::trust {

Result<Ticket> TicketBook::issue(OnArrival on_arrival, std::shared_ptr<void> local) {
  Ticket ticket;
  if (getrandom(ticket.data(), ticket.size(), 0) != static_cast<ssize_t>(ticket.size()))
    return Status::from_errno("getrandom for a ticket", errno);
  const std::lock_guard lock(mutex_);
  entries_[ticket] = {std::move(on_arrival), std::move(local)};
  return ticket;
}

void TicketBook::withdraw(const Ticket& ticket) {
  const std::lock_guard lock(mutex_);
  if (entries_.erase(ticket) != 0) withdrawn_.note(ticket);
}

TicketBook::Redemption TicketBook::redeem(const Ticket& ticket, FileDescriptor socket) {
  // The callback runs under the lock, so that withdraw's promise holds; it only stores or answers.
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(ticket);
  if (found == entries_.end())
    return withdrawn_.contains(ticket) ? Redemption::withdrawn : Redemption::unknown;
  const PendingTicket entry = std::move(found->second);
  entries_.erase(found);
  entry.on_arrival(std::move(socket));
  return Redemption::good;
}

bool TicketBook::are_out() {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(entries_, [](const auto& one) { return one.second.local == nullptr; });
}

std::shared_ptr<void> TicketBook::redeem_local(const Ticket& ticket) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(ticket);
  if (found == entries_.end() || found->second.local == nullptr) return nullptr;
  std::shared_ptr<void> local = std::move(found->second.local);
  entries_.erase(found);
  return local;
}

}  // namespace gyre::trust
