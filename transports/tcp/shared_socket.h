// SharedSocket: the two directions between this rank and a peer on one channel. They share a
// socket, so messages of one direction carry the acknowledgements of the other, in place of
// separate packets. 64 bytes in each direction at once took 4.7 us on one socket and 6.1 on two
// (loopback, two cores).
//
// Each end has issued a ticket for its receiving direction; both know both. The issuer of the
// smaller ticket dials for its sending direction and shows the other's ticket at the listener. The
// other end sends on that socket, and first shows its own ticket there: that confirms that the
// listener has taken the first one. If the listener closes before that, it may have been flooded,
// or the ticket late: the dialer tries again. One thread uses both ends.
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
