#include "transports/shm/shm.h"

#include "lib/transport/endpoint.h"
#include "lib/transport/handover.h"
#include "lib/transport/mapped.h"
#include "transports/shm/memory.h"
#include "transports/shm/sender.h"

#include <fmt/core.h>

namespace gyre::transport {
namespace {

class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(const TransportEnvironment& environment) : environment_(environment) {}

  std::string_view name() const override { return "shm"; }
  Reachability reach(const trust::ProcessIdentity& peer) const override;
  Result<Listening> listen(const LinkKey& key, const FifoShape& shape,
                           const trust::ProcessIdentity& sender) override;
  Result<std::unique_ptr<Connection>> connect(const LinkKey& key, const FifoShape& shape,
                                              const Endpoint& endpoint) override;

 private:
  bool is_ours(const trust::Token& process) const { return process == environment_.self.process; }
  Result<Listening> listen_to_thread(const FifoShape& shape);
  Result<Listening> listen_to_process(const LinkKey& key, const FifoShape& shape);
  Result<std::unique_ptr<Connection>> connect_to_thread(const LinkKey& key,
                                                        const EndpointContents& endpoint);

  const TransportEnvironment environment_;
};

Reachability ShmTransport::reach(const trust::ProcessIdentity& peer) const {
  const trust::ProcessIdentity& self = environment_.self;
  if (!is_ours(peer.process)) {
    if (peer.host != self.host) return {.reason = "another host"};
    if (peer.net_namespace != self.net_namespace)
      return {.reason = "another network namespace, where our listener cannot be seen"};
    if (peer.uid != self.uid) return {.reason = "another user"};
    if (peer.listener_name.empty()) return {.reason = "its process has no local listener"};
  }
  return {.reachable = true,
          .maps_slots = true,
          .reason = is_ours(peer.process) ? "same process" : "same host and user"};
}

Result<Listening> ShmTransport::listen(const LinkKey& key, const FifoShape& shape,
                                       const trust::ProcessIdentity& sender) {
  return is_ours(sender.process) ? listen_to_thread(shape) : listen_to_process(key, shape);
}

Result<Listening> ShmTransport::listen_to_thread(const FifoShape& shape) {
  GYRE_ASSIGN(const std::shared_ptr<FifoMemory> memory, private_fifo(shape));
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

Result<Listening> ShmTransport::listen_to_process(const LinkKey& key, const FifoShape& shape) {
  GYRE_ASSIGN(SharedFifo fifo, make_shared_fifo(shape));
  const std::uint64_t bytes = fifo.memory->mapping.get().bytes;
  const std::uint8_t flags = fifo.sealed ? 0 : endpoint_unsealed;
  // Closed with the callback: after the sender came, or when the connection goes.
  const auto descriptor = std::make_shared<FileDescriptor>(std::move(fifo.descriptor));
  const auto answer = [descriptor, bytes, peer = key.peer](const FileDescriptor& socket) {
    answer_with_memory(socket, *descriptor, bytes, fmt::format("shared memory for rank {}", peer));
  };
  GYRE_ASSIGN(const trust::Ticket ticket, environment_.tickets.issue(answer));
  return Listening{std::make_unique<MappedConnection>(
                       fifo.memory, Direction::receive, MappedConnection::Scope::two_processes,
                       IssuedTicket({&environment_.tickets, ticket})),
                   encode_endpoint({.transport = name(),
                                    .flags = flags,
                                    .process = environment_.self.process,
                                    .ticket = ticket,
                                    .secret = {},
                                    .shape = shape,
                                    .places = {environment_.self.listener_name}})};
}

Result<std::unique_ptr<Connection>> ShmTransport::connect(const LinkKey& key,
                                                          const FifoShape& shape,
                                                          const Endpoint& endpoint) {
  GYRE_ASSIGN(const EndpointContents contents, decode_endpoint(endpoint, name(), shape, key.peer));
  return is_ours(contents.process) ? connect_to_thread(key, contents)
                                   : ShmSender::create(key, contents);
}

Result<std::unique_ptr<Connection>> ShmTransport::connect_to_thread(
    const LinkKey& key, const EndpointContents& endpoint) {
  auto memory =
      std::static_pointer_cast<FifoMemory>(environment_.tickets.redeem_local(endpoint.ticket));
  if (memory == nullptr || memory->view.shape != endpoint.shape)
    return Status(Code::RemoteError,
                  fmt::format("rank {}'s link is not open, or is in use", key.peer))
        .blame({key.peer});
  return std::unique_ptr<Connection>(std::make_unique<MappedConnection>(
      memory, Direction::send, MappedConnection::Scope::one_process));
}

}  // namespace

std::unique_ptr<Transport> make_shm_transport(const TransportEnvironment& environment) {
  return std::make_unique<ShmTransport>(environment);
}

}  // namespace gyre::transport
