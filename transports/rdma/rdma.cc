#include "transports/rdma/rdma.h"

#include "lib/base/log.h"
#include "lib/base/recent.h"
#include "lib/transport/endpoint.h"
#include "lib/transport/mapped.h"
#include "transports/rdma/receiver.h"
#include "transports/rdma/sender.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>

namespace gyre::transport {
namespace {

// Letters about an endpoint have keys of its ticket's bytes, which are random.
std::uint64_t answer_key(const trust::Ticket& ticket) {
  std::uint64_t key = 0;
  std::memcpy(&key, ticket.data(), 7);
  return key;
}
std::uint64_t refusal_key(const trust::Ticket& ticket) {
  std::uint64_t key = 0;
  std::memcpy(&key, ticket.data() + 7, 7);
  return key;
}

class RdmaTransport final : public Transport {
 public:
  explicit RdmaTransport(const TransportEnvironment& environment);

  std::string_view name() const override { return "rdma"; }
  Result<std::string> announcement() const override {
    if (!fault_.ok()) return fault_;
    return announce_networks(ports_.usable);
  }
  Reachability reach(const trust::ProcessIdentity& peer) const override;
  Result<Listening> listen(const LinkKey& key, const FifoShape& shape,
                           const trust::ProcessIdentity& sender) override;
  Result<std::unique_ptr<Connection>> connect(const LinkKey& key, const FifoShape& shape,
                                              const Endpoint& endpoint) override;

 private:
  Status find_ports();
  Result<RdmaAddress> read_address(const EndpointContents& contents, const LinkKey& key) const;
  Result<std::shared_ptr<RdmaDevice>> open(const RdmaPort& port);
  std::string announced_by(const trust::ProcessIdentity& peer) const {
    return environment_.announced == nullptr ? std::string() : environment_.announced(peer);
  }
  std::string place(const RdmaPort& port) const {
    return fmt::format("{} of host {}", port.name(), environment_.self.host_name);
  }

  const TransportEnvironment environment_;
  std::unique_ptr<const loaded::Verbs> loaded_;
  const loaded::Verbs* verbs_ = nullptr;
  RdmaPorts ports_;
  std::string absence_;  // why there is no port to use
  Status fault_;         // the settings ask for what is not there
  std::map<std::string, std::weak_ptr<RdmaDevice>> devices_;  // by the port's name
  Recent<trust::Ticket, 256> answered_;                       // endpoints that were connected to
  const std::shared_ptr<RdmaFarewell> farewell_ = std::make_shared<RdmaFarewell>();
};

RdmaTransport::RdmaTransport(const TransportEnvironment& environment)
    : environment_(environment), verbs_(environment.verbs) {
  if (environment.tcp_encrypted) {
    absence_ = "GYRE_TCP_SECURITY=tls asks for encryption, and RDMA has none";
    return;
  }
  if (verbs_ == nullptr) {
    auto loaded = loaded::load_verbs();
    if (!loaded.ok()) {
      absence_ = loaded.status().message();
      return;
    }
    loaded_ = std::move(*loaded);
    verbs_ = loaded_.get();
  }
  Status found = find_ports();
  if (found.code() == Code::InvalidUsage) fault_ = found;
  if (!found.ok()) absence_ = found.message();
}

Status RdmaTransport::find_ports() {
  GYRE_ASSIGN(ports_, find_rdma_ports(*verbs_, environment_.rdma));
  if (!ports_.usable.empty()) return {};
  absence_ = ports_.skipped.empty()
                 ? "this machine has no RDMA device"
                 : fmt::format("no RDMA port is usable ({})", fmt::join(ports_.skipped, "; "));
  return {};
}

Reachability RdmaTransport::reach(const trust::ProcessIdentity& peer) const {
  if (!absence_.empty()) return {.reason = absence_};
  const std::string announced = announced_by(peer);
  if (announced.empty()) return {.reason = "its process has no usable RDMA port"};
  const std::optional<RdmaWay> way = find_way(ports_.usable, announced);
  if (!way)
    return {.reason = fmt::format("it is on other networks: {}; here: {}", announced,
                                  announce_networks(ports_.usable))};
  return {.reachable = true,
          .reason = fmt::format("by {} ({}, {:.3g} Gb/s)", way->port->name(),
                                network_text(way->network), way->port->gigabits_per_s())};
}

Result<std::shared_ptr<RdmaDevice>> RdmaTransport::open(const RdmaPort& port) {
  std::shared_ptr<RdmaDevice> device = devices_[port.name()].lock();
  if (device == nullptr) {
    GYRE_ASSIGN(device, RdmaDevice::open(*verbs_, port, environment_.rdma));
    devices_[port.name()] = device;
  }
  return device;
}

Result<Listening> RdmaTransport::listen(const LinkKey& key, const FifoShape& shape,
                                        const trust::ProcessIdentity& sender) {
  const std::optional<RdmaWay> way = find_way(ports_.usable, announced_by(sender));
  if (!way) return invalid_usage(fmt::format("rdma does not reach rank {}", key.peer));
  GYRE_ASSIGN(std::shared_ptr<FifoMemory> memory, private_fifo(shape));
  GYRE_ASSIGN(const std::shared_ptr<RdmaDevice> device, open(*way->port));
  const auto pairs = static_cast<std::size_t>(environment_.rdma.qps_per_connection);
  const RdmaWindow window = fit_window(shape, *device, pairs);
  if (window.messages == 0)
    return Status(Code::SystemError,
                  fmt::format("queues of RDMA device {} are too short for {} queue pairs",
                              way->port->device, pairs));
  GYRE_ASSIGN(std::unique_ptr<RdmaQueues> queues,
              RdmaQueues::make(device, *way->port->on(way->network), pairs, window.depth()));
  GYRE_ASSIGN(const trust::Ticket ticket, environment_.tickets.issue([](FileDescriptor) {}));
  IssuedTicket issued({&environment_.tickets, ticket});
  RdmaReceiver::Letters letters{
      .take_answer = [post = environment_.letters, peer = key.peer,
                      ticket] { return post.receive(peer, answer_key(ticket)); },
      .refuse = [post = environment_.letters, peer = key.peer,
                 ticket] { (void)post.send(peer, refusal_key(ticket), {}); }};
  GYRE_ASSIGN(std::unique_ptr<RdmaReceiver> receiver,
              RdmaReceiver::make(key, std::move(memory), std::move(queues), farewell_, window,
                                 std::move(issued), std::move(letters)));
  const std::vector<std::uint8_t> address = encode(receiver->address(place(*way->port)));
  Endpoint endpoint = encode_endpoint({.transport = name(),
                                       .process = environment_.self.process,
                                       .ticket = ticket,
                                       .secret = {},
                                       .shape = shape,
                                       .places = {std::string(address.begin(), address.end())}});
  return Listening{std::move(receiver), std::move(endpoint)};
}

Result<RdmaAddress> RdmaTransport::read_address(const EndpointContents& contents,
                                                const LinkKey& key) const {
  const auto refuse = [&](std::string_view why) {
    return Status(Code::RemoteError, fmt::format("rank {}'s endpoint {}", key.peer, why))
        .blame({key.peer});
  };
  if (contents.places.size() != 1) return refuse("names no RDMA port, or several");
  const std::string& text = contents.places.front();
  std::optional<RdmaAddress> address =
      decode_rdma_address({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  if (!address) return refuse("is malformed");
  if (address->window == 0 || address->window > contents.shape.slot_count ||
      (address->window & (address->window - 1)) != 0)
    return refuse(fmt::format("has a window of {} messages for {} slots", address->window,
                              contents.shape.slot_count));
  if (answered_.contains(contents.ticket)) return refuse("was connected to before");
  return std::move(*address);
}

Result<std::unique_ptr<Connection>> RdmaTransport::connect(const LinkKey& key,
                                                           const FifoShape& shape,
                                                           const Endpoint& endpoint) {
  GYRE_ASSIGN(const EndpointContents contents, decode_endpoint(endpoint, name(), shape, key.peer));
  GYRE_ASSIGN(const RdmaAddress there, read_address(contents, key));
  const auto port = std::ranges::find_if(
      ports_.usable, [&](const RdmaPort& one) { return one.on(there.network) != nullptr; });
  if (port == ports_.usable.end())
    return Status(Code::RemoteError,
                  fmt::format("rank {}'s endpoint is on {}, where this process has no port",
                              key.peer, network_text(there.network)))
        .blame({key.peer});
  GYRE_ASSIGN(std::shared_ptr<FifoMemory> memory, private_fifo(shape));
  GYRE_ASSIGN(const std::shared_ptr<RdmaDevice> device, open(*port));
  RdmaWindow window = fit_window(shape, *device, there.pairs.size());
  window.messages = std::min(window.messages, there.window);
  if (window.messages == 0)
    return Status(Code::SystemError,
                  fmt::format("queues of RDMA device {} are too short for {} queue pairs",
                              port->device, there.pairs.size()));
  GYRE_ASSIGN(
      std::unique_ptr<RdmaQueues> queues,
      RdmaQueues::make(device, *port->on(there.network), there.pairs.size(), window.depth()));
  const RdmaAnswer answer{contents.ticket, queues->address(place(*port))};
  auto is_refused = [post = environment_.letters, peer = key.peer, ticket = contents.ticket] {
    return post.receive(peer, refusal_key(ticket)).has_value();
  };
  GYRE_ASSIGN(std::unique_ptr<RdmaSender> sender,
              RdmaSender::make(key, std::move(memory), std::move(queues), farewell_, there, window,
                               std::move(is_refused)));
  answered_.note(contents.ticket);
  GYRE_TRY(environment_.letters.send(key.peer, answer_key(contents.ticket), encode(answer)));
  return std::unique_ptr<Connection>(std::move(sender));
}

}  // namespace

std::unique_ptr<Transport> make_rdma_transport(const TransportEnvironment& environment) {
  return std::make_unique<RdmaTransport>(environment);
}

}  // namespace gyre::transport
