// Operations on a connected socket that both ends of the tcp transport use.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/path_watch.h"
#include "lib/base/status.h"
#include "lib/trust/tickets.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::transport {

// Where the other end is, for people: "127.0.0.1:80".
std::string peer_address(const FileDescriptor& socket);
std::string own_address(int socket);
// Whether "host:port" is on this host, whose own addresses are `own`.
bool leads_to_this_host(std::string_view address, const std::vector<std::string>& own);

// For an end that sends: nothing is held back. It sets no TCP_USER_TIMEOUT. With one, the kernel
// counts a full window as silence, and ends the link of a peer that computes for long between two
// calls. Threads that wait watch the path (judge_path). Before connecting, or on a socket that
// came.
Status set_sending(const FileDescriptor& socket);
// Where several sockets share the messages: one takes no more while the kernel holds so much of it
// that it has not sent. Else a slow one would take more than its share.
Status keep_backlog_short(const FileDescriptor& socket);
// How the sending way does, as the kernel counts it from the connection's first byte on.
struct Deliveries {
  std::uint64_t backlog_bytes = 0;    // that the kernel has taken and the peer has not acknowledged
  std::uint64_t delivered_bytes = 0;  // that the peer has acknowledged
  std::int64_t busy_ns = 0;           // while there was a backlog and the peer had room for it
};
std::optional<Deliveries> look_at_deliveries(int socket);
// Why the path of a connected socket counts as cut, if the watch says so.
Status judge_path(int socket, PathWatch& watch, std::int64_t now_ns, std::int64_t limit_ns);

// How the kernel paces a socket: Reno within a host, what the system prefers between hosts. Before
// connecting; a socket that came was born with Reno (see trust::listen_at). Best effort: a sandbox
// may allow only the default.
void prefer_reno(const FileDescriptor& socket);
void prefer_system_default(const FileDescriptor& socket);

// The first bytes on a connection, or the first of its other way.
Status show_ticket(const FileDescriptor& socket, const trust::Ticket& ticket);
// Takes them as they come; an error if they are not `ticket`'s.
struct ShownTicket {
  trust::TicketHello hello;
  std::size_t bytes = 0;  // that are here
  std::string end;        // how the connection ended before they were whole
};
enum class TicketProgress { not_yet, whole, ended };
Result<TicketProgress> take_ticket(const FileDescriptor& socket, const trust::Ticket& ticket,
                                   ShownTicket& shown);

}  // namespace gyre::transport
