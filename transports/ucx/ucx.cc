#include "transports/ucx/ucx.h"

#include "lib/base/recent.h"
#include "lib/transport/endpoint.h"
#include "lib/transport/mapped.h"
#include "transports/ucx/announcement.h"
#include "transports/ucx/receiver.h"
#include "transports/ucx/sender.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gyre::transport {
namespace {

constexpr std::size_t place_bytes = 255;

// A letter about an endpoint has a key of its ticket's bytes, which are random.
std::uint64_t ucx_refusal_key(const trust::Ticket& ticket) {
  std::uint64_t key = 0;
  std::memcpy(&key, ticket.data() + 14, 7);
  return key;
}

// "1.13" of "1.13.1": between them UCX promises nothing of what goes over the wire.
std::string series_of(const std::string& release) { return release.substr(0, release.rfind('.')); }

Result<std::string> address_of(UcpEngine& engine, UcpEngine::Distance distance) {
  const auto held = engine.hold();
  return engine.address(distance);
}

Result<std::shared_ptr<UcpPeer>> reach_by(UcpEngine& engine, const UcpPlace& there,
                                          UcpEngine::Distance distance, int rank) {
  const auto held = engine.hold();
  auto peer = engine.reach(there.worker, distance);
  if (peer.ok()) return peer;
  return link_failure(std::move(peer).status(), fmt::format("ucx to rank {}", rank), rank);
}

class UcpTransport final : public Transport {
 public:
  explicit UcpTransport(const TransportEnvironment& environment);

  std::string_view name() const override { return "ucx"; }
  Result<std::string> announcement() const override {
    return absence_.empty() ? std::string(ucx_announcement) + series_ : std::string();
  }
  Reachability reach(const trust::ProcessIdentity& peer) const override;
  Result<Listening> listen(const LinkKey& key, const FifoShape& shape,
                           const trust::ProcessIdentity& sender) override;
  Result<std::unique_ptr<Connection>> connect(const LinkKey& key, const FifoShape& shape,
                                              const Endpoint& endpoint) override;

 private:
  static constexpr std::uint8_t endpoint_of_this_host = 1;

  Result<std::shared_ptr<UcpEngine>> engine();
  UcpEngine::Distance distance_to(const trust::ProcessIdentity& peer) const {
    return peer.host == environment_.self.host ? UcpEngine::Distance::this_host
                                               : UcpEngine::Distance::another_host;
  }

  const TransportEnvironment environment_;
  std::string absence_;  // why there is no UCX to use
  std::string series_;
  std::string release_;
  std::shared_ptr<loaded::UcpSharedContext> context_;
  std::mutex mutex_;  // of what follows
  std::shared_ptr<UcpEngine> engine_;
  Recent<trust::Ticket, 256> answered_;  // endpoints that were connected to
};

UcpTransport::UcpTransport(const TransportEnvironment& environment) : environment_(environment) {
  if (environment.tcp_encrypted) {
    absence_ = "GYRE_TCP_SECURITY=tls asks for encryption, and UCX has none";
    return;
  }
  if (environment.ucp == nullptr) {
    absence_ = "nobody loads UCX for it";
    return;
  }
  auto context = environment.ucp->context(environment.liveness_ns);
  if (!context.ok()) {
    absence_ = context.status().message();
    return;
  }
  context_ = std::move(*context);
  release_ = loaded::release_of(context_->table());
  series_ = series_of(release_);
}

Reachability UcpTransport::reach(const trust::ProcessIdentity& peer) const {
  if (!absence_.empty()) return {.reason = absence_};
  const std::string all =
      environment_.announced == nullptr ? std::string() : environment_.announced(peer);
  const std::string_view announced = announced_part(all, ucx_announcement);
  if (announced.empty()) return {.reason = "its process has no UCX"};
  if (announced != series_)
    return {.reason = fmt::format("its process has UCX {}, and this one {}: install one release",
                                  announced, series_)};
  return {.reachable = true, .reason = fmt::format("by UCX {}", release_)};
}

Result<std::shared_ptr<UcpEngine>> UcpTransport::engine() {
  if (engine_ != nullptr) return engine_;
  if (context_ == nullptr) return invalid_usage(fmt::format("there is no ucx: {}", absence_));
  GYRE_ASSIGN(engine_, UcpEngine::make(context_));
  return engine_;
}

Result<Listening> UcpTransport::listen(const LinkKey& key, const FifoShape& shape,
                                       const trust::ProcessIdentity& sender) {
  const std::lock_guard lock(mutex_);
  GYRE_ASSIGN(const std::shared_ptr<UcpEngine> engine, this->engine());
  if (environment_.letters.send == nullptr)
    return invalid_usage(fmt::format("ucx does not reach rank {}", key.peer));
  GYRE_ASSIGN(std::shared_ptr<FifoMemory> memory, private_fifo(shape));
  const auto line = std::make_shared<HostLine>();
  GYRE_ASSIGN(const trust::Ticket ticket, environment_.tickets.issue([line](FileDescriptor socket) {
    line->take(std::move(socket));
  }));
  IssuedTicket issued({&environment_.tickets, ticket});
  auto refuse = [post = environment_.letters, peer = key.peer, ticket] {
    (void)post.send(peer, ucx_refusal_key(ticket), {});
  };
  const UcpEngine::Distance distance = distance_to(sender);
  GYRE_ASSIGN(std::string address, address_of(*engine, distance));
  const bool is_near = trust::can_meet_locally(sender, environment_.self);
  GYRE_ASSIGN(std::unique_ptr<UcpReceiver> receiver,
              UcpReceiver::make(key, engine, distance, std::move(memory), std::move(issued), line,
                                is_near ? sender.listener_name : std::string(), std::move(refuse)));
  std::string listener = is_near ? environment_.self.listener_name : std::string();
  const std::vector<std::string>& addresses = environment_.self.addresses;
  if (distance == UcpEngine::Distance::another_host && !addresses.empty())
    listener = addresses.front();
  const std::vector<std::uint8_t> place =
      encode(UcpPlace{receiver->link(), std::move(listener), std::move(address)});
  std::vector<std::string> places;
  for (std::size_t at = 0; at < place.size(); at += place_bytes)
    places.emplace_back(
        place.begin() + static_cast<std::ptrdiff_t>(at),
        place.begin() + static_cast<std::ptrdiff_t>(std::min(at + place_bytes, place.size())));
  return Listening{
      std::move(receiver),
      encode_endpoint({.transport = name(),
                       .flags = distance == UcpEngine::Distance::this_host ? endpoint_of_this_host
                                                                           : std::uint8_t{0},
                       .process = environment_.self.process,
                       .ticket = ticket,
                       .secret = {},
                       .shape = shape,
                       .places = std::move(places)})};
}

Result<std::unique_ptr<Connection>> UcpTransport::connect(const LinkKey& key,
                                                          const FifoShape& shape,
                                                          const Endpoint& endpoint) {
  const std::lock_guard lock(mutex_);
  GYRE_ASSIGN(const EndpointContents contents, decode_endpoint(endpoint, name(), shape, key.peer));
  const auto refuse = [&](std::string_view why) {
    return Status(Code::RemoteError, fmt::format("rank {}'s endpoint {}", key.peer, why))
        .blame({key.peer});
  };
  std::string bytes;
  for (const std::string& part : contents.places) bytes += part;
  std::optional<UcpPlace> there =
      decode_ucp_place({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  if (!there || contents.flags > endpoint_of_this_host) return refuse("is malformed");
  if (answered_.contains(contents.ticket)) return refuse("was connected to before");
  GYRE_ASSIGN(const std::shared_ptr<UcpEngine> engine, this->engine());
  GYRE_ASSIGN(std::shared_ptr<FifoMemory> memory, private_fifo(shape));
  const auto distance = contents.flags == endpoint_of_this_host ? UcpEngine::Distance::this_host
                                                                : UcpEngine::Distance::another_host;
  auto is_refused = [post = environment_.letters, peer = key.peer, ticket = contents.ticket] {
    return post.receive != nullptr && post.receive(peer, ucx_refusal_key(ticket)).has_value();
  };
  GYRE_ASSIGN(std::shared_ptr<UcpPeer> peer, reach_by(*engine, *there, distance, key.peer));
  GYRE_ASSIGN(std::string own_address, address_of(*engine, distance));
  std::string host_address;
  if (distance == UcpEngine::Distance::another_host) host_address.swap(there->listener);
  GYRE_ASSIGN(std::unique_ptr<UcpSender> sender,
              UcpSender::make(key, engine, std::move(peer), std::move(memory),
                              {std::move(*there), std::move(host_address), contents.ticket,
                               std::move(own_address)},
                              std::move(is_refused)));
  answered_.note(contents.ticket);
  return std::unique_ptr<Connection>(std::move(sender));
}

}  // namespace

std::unique_ptr<Transport> make_ucx_transport(const TransportEnvironment& environment) {
  return std::make_unique<UcpTransport>(environment);
}

}  // namespace gyre::transport
