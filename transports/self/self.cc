#include "transports/self/self.h"

#include "lib/transport/endpoint.h"
#include "lib/transport/mapped.h"

#include <fmt/core.h>

namespace gyre::transport {
namespace {

class SelfTransport final : public Transport {
 public:
  explicit SelfTransport(const TransportEnvironment& environment) : environment_(environment) {}

  std::string_view name() const override { return "self"; }

  Reachability reach(const trust::ProcessIdentity& peer) const override {
    if (peer.process != environment_.self.process) return {.reason = "another process"};
    return {.reachable = true, .maps_slots = true, .reason = "own memory"};
  }

  Result<Listening> listen(const LinkKey&, const FifoShape& shape,
                           const trust::ProcessIdentity&) override {
    GYRE_ASSIGN(const std::shared_ptr<FifoMemory> memory, private_fifo(shape));
    // Nobody shows this ticket at the listener: the sending end, in this process, redeems it.
    GYRE_ASSIGN(const trust::Ticket ticket,
                environment_.tickets.issue([](FileDescriptor) {}, memory));
    return Listening{std::make_unique<MappedConnection>(
                         memory, Direction::receive, MappedConnection::Scope::one_process,
                         IssuedTicket({&environment_.tickets, ticket})),
                     encode_endpoint({.transport = name(),
                                      .process = environment_.self.process,
                                      .ticket = ticket,
                                      .secret = {},
                                      .shape = shape,
                                      .places = {}})};
  }

  Result<std::unique_ptr<Connection>> connect(const LinkKey& key, const FifoShape& shape,
                                              const Endpoint& endpoint) override {
    GYRE_ASSIGN(const EndpointContents contents,
                decode_endpoint(endpoint, name(), shape, key.peer));
    if (contents.process != environment_.self.process)
      return Status(Code::RemoteError, "a link with oneself leads to another process")
          .blame({key.peer});
    auto memory =
        std::static_pointer_cast<FifoMemory>(environment_.tickets.redeem_local(contents.ticket));
    if (memory == nullptr || memory->view.shape != shape)
      return Status(Code::RemoteError,
                    fmt::format("rank {}'s link with itself is not open, or is in use", key.peer))
          .blame({key.peer});
    return std::unique_ptr<Connection>(std::make_unique<MappedConnection>(
        memory, Direction::send, MappedConnection::Scope::one_process));
  }

 private:
  const TransportEnvironment environment_;
};

}  // namespace

std::unique_ptr<Transport> make_self_transport(const TransportEnvironment& environment) {
  return std::make_unique<SelfTransport>(environment);
}

}  // namespace gyre::transport
