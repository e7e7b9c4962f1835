// The contents of an Endpoint, in one format for all transports, and its one parser. A sender gets
// it from the receiver's process over the control plane and still checks every field. Also:
// IssuedTicket, a ticket that is withdrawn when its owner is destroyed.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"
#include "lib/transport/transport.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::transport {

struct EndpointContents {
  std::string_view transport;  // its name, as Transport::name says it
  std::uint8_t flags = 0;      // the transport's own
  trust::Token process{};      // the receiver's process
  trust::Ticket ticket{};
  std::vector<trust::Ticket> further_tickets = {};  // of the other sockets, if there are several
  // What both ends of an encrypted stream derive its key from; zero where none is. Unlike the
  // ticket it is shown to nobody: an endpoint travels over the encrypted control plane alone.
  std::array<std::uint8_t, 32> secret{};
  FifoShape shape;
  std::vector<std::string> places;  // listener name or addresses, best first; at most 8
};

Endpoint encode_endpoint(const EndpointContents& contents);
// The contents, if they are whole, of this transport and for a fifo of this shape. `peer` is who
// sent them.
Result<EndpointContents> decode_endpoint(const Endpoint& bytes, std::string_view transport,
                                         const FifoShape& shape, std::int32_t peer);

struct IssuedTicketTraits {
  struct Handle {
    trust::TicketBook* book = nullptr;
    trust::Ticket ticket{};
    friend bool operator==(const Handle&, const Handle&) = default;
  };
  static Handle none() { return {}; }
  static void close(const Handle& handle) { handle.book->withdraw(handle.ticket); }
};
using IssuedTicket = Owned<IssuedTicketTraits>;

}  // namespace gyre::transport
