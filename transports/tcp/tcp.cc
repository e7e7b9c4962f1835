#include "transports/tcp/tcp.h"

#include "lib/transport/endpoint.h"
#include "lib/transport/mapped.h"
#include "lib/trust/interfaces.h"
#include "transports/tcp/receiver.h"
#include "transports/tcp/sender.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace gyre::transport {
namespace {

class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(const TransportEnvironment& environment) : environment_(environment) {}

  std::string_view name() const override { return "tcp"; }
  std::int64_t wire_megabytes_per_s() const override {
    const auto& addresses = environment_.self.addresses;
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < std::min(addresses.size(), rail_count()); ++i) {
      const std::int64_t one = trust::interface_megabits_per_s(addresses[i]) / 8;
      if (one == 0) return 0;
      sum += one;
    }
    return sum;
  }

  Reachability reach(const trust::ProcessIdentity& peer) const override {
    const bool local = is_local(peer);
    if (peer.addresses.empty() && !local) return {.reason = "its process listens at no address"};
    if (peer.host == environment_.self.host)
      return {.reachable = true,
              .reason = local ? "over loopback" : "over loopback, at " + peer.addresses.front()};
    return {.reachable = true, .reason = "at " + peer.addresses.front()};
  }

  Result<Listening> listen(const LinkKey& key, const FifoShape& shape,
                           const trust::ProcessIdentity& sender) override {
    GYRE_ASSIGN(const std::vector<std::string> places, places_for(sender));
    GYRE_ASSIGN(std::shared_ptr<FifoMemory> memory, private_fifo(shape));
    GYRE_ASSIGN(StreamSecurity security, make_security());
    std::vector<trust::Ticket> tickets;
    std::vector<ReceivingRail> rails;
    rails.reserve(rail_count());
    for (std::size_t number = 0; number < rail_count(); ++number) {
      const auto arrival = std::make_shared<Arrival>();
      GYRE_ASSIGN(tickets.emplace_back(), issue_ticket(arrival));
      const trust::Ticket& ticket = tickets.back();
      rails.emplace_back(terms_for(key, shape, security), environment_.self.addresses, arrival,
                         IssuedTicket({&environment_.tickets, ticket}),
                         make_pair(key, number, ticket));
    }
    return Listening{std::make_unique<TcpReceiver>(key, environment_, memory, std::move(rails)),
                     encode_endpoint({.transport = name(),
                                      .flags = own_flags(),
                                      .process = environment_.self.process,
                                      .ticket = tickets.front(),
                                      .further_tickets = {tickets.begin() + 1, tickets.end()},
                                      .secret = security.secret,
                                      .shape = shape,
                                      .places = places})};
  }

  Result<std::unique_ptr<Connection>> connect(const LinkKey& key, const FifoShape& shape,
                                              const Endpoint& endpoint) override {
    GYRE_ASSIGN(const EndpointContents contents,
                decode_endpoint(endpoint, name(), shape, key.peer));
    if (contents.flags != own_flags())
      return Status(Code::RemoteError,
                    fmt::format("rank {} and this one do not agree on GYRE_TCP_SECURITY", key.peer))
          .blame({key.peer});
    std::vector<trust::Ticket> tickets = contents.further_tickets;
    tickets.insert(tickets.begin(), contents.ticket);
    if (tickets.size() != rail_count())
      return Status(Code::RemoteError,
                    fmt::format("rank {} has GYRE_TCP_SOCKETS={}, and this one {}: it must be the "
                                "same on all ranks",
                                key.peer, tickets.size(), rail_count()))
          .blame({key.peer});
    GYRE_ASSIGN(std::shared_ptr<FifoMemory> memory, private_fifo(shape));
    GYRE_ASSIGN(StreamSecurity security, make_security());
    security.secret = {contents.secret};
    std::vector<SendingRail> rails;
    rails.reserve(rail_count());
    for (std::size_t number = 0; number < rail_count(); ++number) {
      const trust::Ticket& ticket = tickets[number];
      rails.emplace_back(terms_for(key, shape, security), ticket,
                         TcpDialer(addresses_of(contents.places, number), ticket, environment_),
                         find_pair(key, number));
    }
    return std::unique_ptr<Connection>(
        std::make_unique<TcpSender>(key, environment_, std::move(memory), std::move(rails)));
  }

 private:
  using SharedSocketKey = std::tuple<std::int32_t, std::uint32_t, std::size_t>;
  static constexpr std::uint8_t endpoint_encrypted = 1;

  // Sockets of a connection.
  std::size_t rail_count() const { return environment_.tcp_sockets; }
  RailTerms terms_for(const LinkKey& key, const FifoShape& shape,
                      const StreamSecurity& security) const {
    return {.peer = key.peer,
            .liveness_ns = environment_.liveness_ns,
            .is_one_of_several = rail_count() > 1,
            .has_checksums = environment_.tcp_checksums,
            .first_message = shape.first,
            .security = security};
  }
  // A socket alone is for whichever address answers. Of several, each has one: it is an error if
  // that does not answer, as the others would be slower than they are meant to be.
  std::vector<std::string> addresses_of(const std::vector<std::string>& places,
                                        std::size_t number) const {
    if (rail_count() == 1 || places.empty()) return places;
    return {places[number % places.size()]};
  }
  Result<trust::Ticket> issue_ticket(const std::shared_ptr<Arrival>& arrival) {
    return environment_.tickets.issue([arrival](FileDescriptor socket) {
      // Pairs with the acquire in ReceivingRail::find_socket.
      arrival->socket.store(socket.release(), std::memory_order_release);
      arrival->rung.fetch_add(1, std::memory_order_release);
      wake_futex(&arrival->rung);
    });
  }

  bool is_local(const trust::ProcessIdentity& peer) const {
    return environment_.listen_on_this_host != nullptr &&
           trust::can_meet_locally(peer, environment_.self);
  }
  // Whoever is on this host comes in at an address that other hosts need not reach.
  Result<std::vector<std::string>> places_for(const trust::ProcessIdentity& sender) const {
    if (is_local(sender)) {
      GYRE_ASSIGN(std::string address, environment_.listen_on_this_host());
      return std::vector<std::string>{std::move(address)};
    }
    if (environment_.self.addresses.empty())
      return invalid_usage("tcp needs an address, and this process's listener has none");
    return environment_.self.addresses;
  }

  // Links come in pairs: who listens to a peer on a channel also sends to it. Encrypted ways are
  // apart, since a session of TLS belongs to one.
  std::shared_ptr<SharedSocket> make_pair(const LinkKey& key, std::size_t number,
                                          const trust::Ticket& ticket) {
    if (environment_.tcp_encrypted) return nullptr;
    auto pair = std::make_shared<SharedSocket>();
    pair->ticket = ticket;
    pairs_[{key.peer, key.channel, number}] = pair;
    return pair;
  }
  std::shared_ptr<SharedSocket> find_pair(const LinkKey& key, std::size_t number) const {
    const auto found = pairs_.find({key.peer, key.channel, number});
    return found == pairs_.end() ? nullptr : found->second.lock();
  }

  std::uint8_t own_flags() const { return environment_.tcp_encrypted ? endpoint_encrypted : 0; }
  // A fresh secret, where streams are encrypted.
  Result<StreamSecurity> make_security() {
    if (!environment_.tcp_encrypted) return StreamSecurity{};
    if (tls_ == nullptr) {
      GYRE_ASSIGN(tls_, trust::Tls::create());
    }
    GYRE_ASSIGN(const trust::Secret secret, trust::random_secret());
    return StreamSecurity{tls_, secret};
  }

  const TransportEnvironment environment_;
  std::map<SharedSocketKey, std::weak_ptr<SharedSocket>> pairs_;  // of the receiving ends
  std::shared_ptr<const trust::Tls> tls_;  // shared by all streams; made with the first
};

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(const TransportEnvironment& environment) {
  return std::make_unique<TcpTransport>(environment);
}

}  // namespace gyre::transport
