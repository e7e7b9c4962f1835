// The message by which a rank lets a peer connect to it, from its first byte to the connection: the
// message, the endpoint in it, and each transport's use of it. Nothing is dialed. Input: u8 flags
// (1: the endpoint shows a ticket that is good, 2: from this process), the message.
#include "lib/links/connect_message.h"
#include "lib/links/transport_registry.h"
#include "lib/loaded/shared_ucp.h"
#include "lib/transport/endpoint.h"
#include "lib/transport/mapped.h"
#include "tests/fuzz/input.h"
#include "tests/support/fake_ucx/fake_ucp.h"
#include "tests/support/fake_verbs/pair_verbs.h"
#include "transports/rdma/rdma.h"
#include "transports/tcp/tcp.h"
#include "transports/ucx/ucx.h"

#include <optional>

namespace connect_message_fuzz {

using namespace gyre;
using namespace gyre::transport;

namespace {

constexpr FifoShape shape = {.slot_count = 2, .line_count = 4, .slot_bytes = 256};
constexpr std::size_t process_at = 8, ticket_at = 24;  // in an endpoint

TransportLetters silent_letters() {
  return {.send = [](std::int32_t, std::uint64_t, TransportLetters::Bytes) { return Status(); },
          .receive = [](std::int32_t,
                        std::uint64_t) { return std::optional<TransportLetters::Bytes>(); }};
}

struct Process {
  trust::ProcessIdentity self;
  trust::TicketBook tickets;
  tests::FakeUcp fake;
  loaded::SharedUcp ucp{&fake.table()};
  // All that need no naming, tcp once more, and rdma and ucx over fakes.
  comm::TransportList transports;

  Process() {
    self.process.fill(0x11);
    self.listener_name = "gyre-fuzz-none";
    self.addresses = {"127.0.0.1:1"};
    auto made = comm::make_transports({}, {.self = self, .tickets = tickets});
    transports = std::move(*made);
    transports.push_back(
        make_tcp_transport({.self = self, .tickets = tickets, .tcp_encrypted = true}));
    transports.push_back(make_rdma_transport({.self = self,
                                              .tickets = tickets,
                                              .letters = silent_letters(),
                                              .verbs = tests::pair_verbs()}));
    transports.push_back(make_ucx_transport(
        {.self = self, .tickets = tickets, .letters = silent_letters(), .ucp = &ucp}));
  }
};

template <typename Bytes>
void write_over(Endpoint& endpoint, std::size_t at, const Bytes& bytes) {
  if (endpoint.size() >= at + bytes.size())
    std::memcpy(endpoint.data() + at, bytes.data(), bytes.size());
}

void check_contents(const Endpoint& endpoint, std::string_view transport) {
  const auto contents = decode_endpoint(endpoint, transport, shape, 1);
  if (!contents.ok()) return;
  GYRE_DEMAND(contents->transport == transport && contents->shape == shape);
  GYRE_DEMAND(contents->places.size() <= 8);
  for (const std::string& place : contents->places) GYRE_DEMAND(!place.empty());
  GYRE_DEMAND(encode_endpoint(*contents) == endpoint);
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::uint8_t flags = input.take<std::uint8_t>();
  const auto rest = input.rest();
  const control::MessageBytes bytes(rest.begin(), rest.end());
  Process process;
  const auto message = comm::decode_connect_message(bytes, process.transports.size());
  if (!message) return 0;
  GYRE_DEMAND(message->transport < process.transports.size());
  GYRE_DEMAND(comm::encode(*message) == bytes);

  const auto memory = private_fifo(shape);
  const auto ticket = process.tickets.issue([](FileDescriptor) {}, *memory);
  Endpoint endpoint = message->endpoint;
  if ((flags & 1) != 0) write_over(endpoint, ticket_at, *ticket);
  if ((flags & 2) != 0) write_over(endpoint, process_at, process.self.process);
  for (const auto& transport : process.transports) check_contents(endpoint, transport->name());
  const LinkKey key{.peer = 1, .direction = Direction::send};
  auto connection = process.transports[message->transport]->connect(key, shape, endpoint);
  if (!connection.ok()) return 0;
  GYRE_DEMAND((*connection)->fifo().shape == shape);
  GYRE_DEMAND(!(*connection)->same_address_space() || (flags & 1) != 0);
  // Used up.
  if ((*connection)->same_address_space())
    GYRE_DEMAND(!process.transports[message->transport]->connect(key, shape, endpoint).ok());
  return 0;
}

GYRE_FUZZ_TARGET(connect_message)

}  // namespace connect_message_fuzz
