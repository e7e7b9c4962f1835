#include "lib/trust/peer_process.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // asm-generic/socket.h, since Linux 6.5
#endif

namespace gyre::trust {

FileDescriptor open_peer_process(int socket) {
  int descriptor = -1;
  socklen_t length = sizeof descriptor;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &descriptor, &length) == 0)
    return FileDescriptor(descriptor);
  // As this process numbers it; 0 if it cannot see it.
  ucred peer = {};
  length = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.pid <= 0) return {};
  return FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
}

}  // namespace gyre::trust
