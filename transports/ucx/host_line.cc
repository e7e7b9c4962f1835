#include "transports/ucx/host_line.h"

#include "lib/base/clock.h"
#include "lib/trust/address.h"

#include <fmt/core.h>

#include <poll.h>
#include <sys/socket.h>
#include <utility>

namespace gyre::transport {

void HostLine::dial(const std::string& address, const trust::Ticket& ticket) {
  const auto place = trust::parse_address(address);
  if (!place.ok() || place->family() == AF_UNIX) return;
  bool is_pending = false;
  auto socket = trust::begin_connect(*place, &is_pending);
  if (!socket.ok()) return;
  socket_ = std::move(*socket);
  ticket_ = ticket;
  is_dialing_ = true;
}

void HostLine::advance() {
  if (!is_dialing_) return;
  pollfd ready{socket_.get(), POLLOUT, 0};
  if (poll(&ready, 1, 0) <= 0) return;
  is_dialing_ = false;
  trust::TicketHello hello;
  hello.ticket = ticket_;
  // A socket that has sent nothing yet takes the 40 bytes at once.
  if (send(socket_.get(), &hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof hello)
    socket_.reset();
}

void HostLine::take(FileDescriptor socket) {
  // Pairs with the acquire in look.
  came_.store(socket.release(), std::memory_order_release);
}

Status HostLine::look(std::int64_t now_ns, std::int64_t limit_ns) {
  advance();
  if (!socket_.has_value()) socket_ = FileDescriptor(came_.exchange(-1, std::memory_order_acquire));
  if (!socket_.has_value() || is_dialing_) return {};
  if (!std::exchange(asks_, true)) set_path_questions(socket_.get(), limit_ns);
  const auto silent_ns = path_.find_cut(socket_.get(), now_ns, limit_ns);
  if (!silent_ns) return {};
  return Status(
      Code::RemoteError,
      fmt::format("no answer from its host for {:.1f} s: the network from {} is cut, or the "
                  "host is down",
                  static_cast<double>(*silent_ns) / ns_per_s, trust::format_path(socket_.get())));
}

}  // namespace gyre::transport
