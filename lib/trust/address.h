// Addresses as values and as text, and sockets that listen at one or connect to one.
// "1.2.3.4:80", "[::1]:80", and "@name" for an abstract AF_UNIX name (for people only).
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"

#include <string>
#include <string_view>
#include <sys/socket.h>

namespace gyre::trust {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Result<SocketAddress> parse_address(std::string_view text);
std::string format_address(const SocketAddress& address);
// Without the port: "1.2.3.4", "[::1]".
std::string_view host_of(std::string_view address);
// Of a connected socket: "10.0.0.1:4711 to 10.0.0.2:4712".
std::string format_path(int socket);
Result<SocketAddress> abstract_address(std::string_view name);

// Non-blocking, close-on-exec sockets.
Result<FileDescriptor> listen_at(const SocketAddress& address);
// The next connection of such a socket. Without one, errno is accept4's; but it is EAGAIN wherever
// nobody waits. The kernel alone says EMFILE there when no descriptor is left.
FileDescriptor accept_at(const FileDescriptor& listener);
// Begins to connect (TCP_NODELAY set before anything is sent); `*pending` if the answer is still to
// come: the socket becomes writable, then SO_ERROR says. A RemoteError is the other end's; every
// other error is this process's own.
Result<FileDescriptor> begin_connect(const SocketAddress& address, bool* pending);

}  // namespace gyre::trust
