// SharedSocket: the two ways between this rank and a peer on one channel. They share a socket, so
// that messages acknowledge each other, in place of packets that only acknowledge: 64 bytes there
// and back at once took 4.7 us on one socket and 6.1 on two (loopback, two cores).
//
// Each end has issued a ticket for its receiving way; both know both. The issuer of the smaller
// dials for its sending way and shows the other's ticket at the listener. The other end sends on
// the socket that comes, and shows its ticket there first: then the listener has taken the first
// one. A listener that closes before may have been flooded, or the ticket late: it is dialed again.
// One thread uses both ends.
#pragma once

#include "lib/base/owned.h"
#include "lib/trust/tickets.h"

#include <memory>
#include <string>

namespace gyre::transport {

struct SharedSocket {
  trust::Ticket ticket{};  // of the receiving way
  // The socket, left by the end that has it for the one that waits for it; then they share it.
  std::shared_ptr<FileDescriptor> dialed;    // by the sending end; the peer has not answered yet
  std::shared_ptr<FileDescriptor> answered;  // the peer has shown its ticket there
  std::shared_ptr<FileDescriptor> came;      // to the receiving end
  std::string lost;                          // why what was dialed ended before an answer

  // Whether this rank's sending end waits for the peer to dial.
  bool rides(const trust::Ticket& of_peer) const { return ticket > of_peer; }
};

}  // namespace gyre::transport
