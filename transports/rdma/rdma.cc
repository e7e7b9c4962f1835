#include "transports/rdma/rdma.h"

#include "lib/base/log.h"
#include "lib/base/recent.h"
#include "lib/transport/endpoint.h"
#include "lib/transport/mapped.h"
#include "transports/rdma/announcement.h"
#include "transports/rdma/rail_ports.h"
#include "transports/rdma/receiver.h"
#include "transports/rdma/sender.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <span>

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

Status queues_too_short(const std::vector<std::shared_ptr<RdmaDevice>>& devices,
                        std::size_t pairs) {
  return Status(Code::SystemError,
                fmt::format("the queues of {} are too short for {} queue pairs",
                            devices.size() == 1 ? "RDMA device " + devices[0]->port().device->name()
                                                : std::string("the RDMA devices"),
                            pairs));
}

void tell_unused(std::string_view toward, int peer, const std::vector<std::string>& unused) {
  for (const std::string& one : unused)
    log_info(Subsystem::net, "{} {}: a port that its rings were planned for is not used: {}",
             toward, peer, one);
}

class RdmaTransport final : public Transport {
 public:
  explicit RdmaTransport(const TransportEnvironment& environment);

  std::string_view name() const override { return "rdma"; }
  Result<std::string> announcement() const override {
    if (!fault_.ok()) return fault_;
    return announce_networks(ports_.usable);
  }
  std::int64_t wire_megabytes_per_s() const override;
  Reachability reach(const trust::ProcessIdentity& peer) const override;
  Result<Listening> listen(const LinkKey& key, const FifoShape& shape,
                           const trust::ProcessIdentity& sender) override;
  Result<std::unique_ptr<Connection>> connect(const LinkKey& key, const FifoShape& shape,
                                              const Endpoint& endpoint) override;

 private:
  using AddressList = std::vector<RdmaAddress>;

  Status find_ports();
  Result<AddressList> read_addresses(const EndpointContents& contents, const LinkKey& key) const;
  Result<std::shared_ptr<RdmaDevice>> open(const RdmaPort& port);
  std::string announced_by(const trust::ProcessIdentity& peer) const {
    if (environment_.announced == nullptr) return {};
    const std::string all = environment_.announced(peer);
    const std::string_view networks = announced_part(all, rdma_announcement);
    return networks.empty() ? std::string() : fmt::format("{}{}", rdma_announcement, networks);
  }
  const TransportEnvironment environment_;
  RdmaPorts ports_;
  std::string absence_;  // why there is no port to use
  Status fault_;         // the settings ask for what is not there
  std::map<std::string, std::weak_ptr<RdmaDevice>> devices_;  // by the port's name
  Recent<trust::Ticket, 256> answered_;                       // endpoints that were connected to
  RdmaShared shared_;
};

RdmaTransport::RdmaTransport(const TransportEnvironment& environment) : environment_(environment) {
  shared_.farewell = std::make_shared<RdmaFarewell>();
  if (environment.lasting != nullptr)
    shared_.registrations = std::make_shared<RegistrationCache>(environment.lasting);
  if (environment.tcp_encrypted) {
    absence_ = "GYRE_TCP_SECURITY=tls asks for encryption, and RDMA has none";
    return;
  }
  if (environment.verbs == nullptr) {
    absence_ = "nobody opens RDMA devices for it";
    return;
  }
  if (const auto table = environment.verbs->table(); !table.ok()) {
    absence_ = table.status().message();
    return;
  }
  Status found = find_ports();
  if (found.code() == Code::InvalidUsage) fault_ = found;
  if (!found.ok()) absence_ = found.message();
}

Status RdmaTransport::find_ports() {
  GYRE_ASSIGN(ports_, find_rdma_ports(*environment_.verbs, environment_.rdma));
  if (!ports_.usable.empty()) return {};
  absence_ = ports_.skipped.empty()
                 ? "this machine has no RDMA device"
                 : fmt::format("no RDMA port is usable ({})", fmt::join(ports_.skipped, "; "));
  return {};
}

// Of the rails to a peer on the same networks.
std::int64_t RdmaTransport::wire_megabytes_per_s() const {
  constexpr double megabytes_per_gigabit = 125;
  double gigabits_per_s = 0;
  for (const RdmaWay& way : receiving_ports(ports_, announce_networks(ports_.usable), {}).ways)
    gigabits_per_s += way.port->gigabits_per_s();
  return static_cast<std::int64_t>(gigabits_per_s * megabytes_per_gigabit);
}

Reachability RdmaTransport::reach(const trust::ProcessIdentity& peer) const {
  if (!absence_.empty()) return {.reason = absence_};
  const std::string announced = announced_by(peer);
  if (announced.empty()) return {.reason = "its process has no usable RDMA port"};
  const std::vector<RdmaWay> ways = find_ways(ports_.usable, announced);
  if (ways.empty())
    return {.reason = fmt::format("it is on other networks: {}; here: {}", announced,
                                  announce_networks(ports_.usable))};
  std::string ports;
  for (const RdmaWay& way : ways)
    ports += fmt::format("{}{} ({}, {:.3g} Gb/s)", ports.empty() ? "by " : ", ", way.port->name(),
                         network_text(way.network), way.port->gigabits_per_s());
  return {.reachable = true, .reason = std::move(ports)};
}

Result<std::shared_ptr<RdmaDevice>> RdmaTransport::open(const RdmaPort& port) {
  std::shared_ptr<RdmaDevice> device = devices_[port.name()].lock();
  if (device == nullptr) {
    GYRE_ASSIGN(device, RdmaDevice::open(port, environment_.rdma));
    devices_[port.name()] = device;
  }
  return device;
}

Result<Listening> RdmaTransport::listen(const LinkKey& key, const FifoShape& shape,
                                        const trust::ProcessIdentity& sender) {
  const ReceivingPorts chosen =
      receiving_ports(ports_, announced_by(sender), key.ports, environment_.is_near_gpu);
  const std::vector<RdmaWay>& ways = chosen.ways;
  if (ways.empty() || environment_.letters.send == nullptr)
    return invalid_usage(fmt::format("rdma does not reach rank {}", key.peer));
  tell_unused("rdma from rank", key.peer, chosen.unused);
  GYRE_ASSIGN(std::shared_ptr<FifoMemory> memory, private_fifo(shape));
  const auto pairs = static_cast<std::size_t>(environment_.rdma.qps_per_connection);
  std::vector<std::shared_ptr<RdmaDevice>> devices;
  for (const RdmaWay& way : ways) {
    GYRE_ASSIGN(std::shared_ptr<RdmaDevice> device, open(*way.port));
    devices.push_back(std::move(device));
  }
  const RdmaWindow window = fit_window(shape, devices, pairs);
  if (window.messages == 0) return queues_too_short(devices, pairs);
  std::vector<RdmaRail> rails(ways.size());
  for (std::size_t i = 0; i < ways.size(); ++i) {
    GYRE_ASSIGN(rails[i].queues, RdmaQueues::make(devices[i], *ways[i].port->on(ways[i].network),
                                                  pairs, window.depth()));
    rails[i].planned = ways[i].planned;
  }
  GYRE_ASSIGN(const trust::Ticket ticket, environment_.tickets.issue([](FileDescriptor) {}));
  IssuedTicket issued({&environment_.tickets, ticket});
  RdmaReceiver::Letters letters{
      .take_answer = [post = environment_.letters, peer = key.peer,
                      ticket] { return post.receive(peer, answer_key(ticket)); },
      .refuse = [post = environment_.letters, peer = key.peer,
                 ticket] { (void)post.send(peer, refusal_key(ticket), {}); }};
  GYRE_ASSIGN(std::unique_ptr<RdmaReceiver> receiver,
              RdmaReceiver::make(key, std::move(memory), std::move(rails), shared_, window,
                                 std::move(issued), std::move(letters)));
  std::vector<std::string> places;
  for (const RdmaAddress& address : receiver->addresses(environment_.self.host_name)) {
    const std::vector<std::uint8_t> bytes = encode(address);
    places.emplace_back(bytes.begin(), bytes.end());
  }
  Endpoint endpoint = encode_endpoint({.transport = name(),
                                       .process = environment_.self.process,
                                       .ticket = ticket,
                                       .secret = {},
                                       .shape = shape,
                                       .places = std::move(places)});
  return Listening{std::move(receiver), std::move(endpoint)};
}

Result<RdmaTransport::AddressList> RdmaTransport::read_addresses(const EndpointContents& contents,
                                                                 const LinkKey& key) const {
  const auto refuse = [&](std::string_view why) {
    return Status(Code::RemoteError, fmt::format("rank {}'s endpoint {}", key.peer, why))
        .blame({key.peer});
  };
  AddressList addresses;
  for (const std::string& place : contents.places) {
    auto address =
        decode_rdma_address({reinterpret_cast<const std::uint8_t*>(place.data()), place.size()});
    if (!address) return refuse("is malformed");
    addresses.push_back(std::move(*address));
  }
  if (addresses.empty() || addresses.size() > max_rails) return refuse("names no port, or many");
  const std::uint32_t window = addresses[0].window;
  if (window > contents.shape.slot_count || !std::has_single_bit(window))
    return refuse(
        fmt::format("has a window of {} messages for {} slots", window, contents.shape.slot_count));
  for (const RdmaAddress& address : addresses)
    if (address.window != window || address.pairs.size() != addresses[0].pairs.size())
      return refuse("has unequal ports");
  if (answered_.contains(contents.ticket)) return refuse("was connected to before");
  return addresses;
}

Result<std::unique_ptr<Connection>> RdmaTransport::connect(const LinkKey& key,
                                                           const FifoShape& shape,
                                                           const Endpoint& endpoint) {
  GYRE_ASSIGN(const EndpointContents contents, decode_endpoint(endpoint, name(), shape, key.peer));
  GYRE_ASSIGN(const AddressList there, read_addresses(contents, key));
  std::vector<std::shared_ptr<RdmaDevice>> devices;  // of the rails that are used
  std::vector<std::size_t> used;
  const SendingPorts chosen = sending_ports(ports_, there, key.ports, environment_.is_near_gpu);
  for (std::size_t i = 0; i < there.size(); ++i) {
    if (chosen.ways[i].port == nullptr) continue;
    GYRE_ASSIGN(std::shared_ptr<RdmaDevice> device, open(*chosen.ways[i].port));
    devices.push_back(std::move(device));
    used.push_back(i);
  }
  if (used.empty() || environment_.letters.send == nullptr)
    return Status(Code::RemoteError,
                  fmt::format("rank {}'s endpoint is on {}, where this process has no port",
                              key.peer, network_text(there[0].network)))
        .blame({key.peer});
  tell_unused("rdma to rank", key.peer, chosen.unused);
  const std::size_t pairs = there[0].pairs.size();
  RdmaWindow window = fit_window(shape, devices, pairs);
  if (window.messages == 0) return queues_too_short(devices, pairs);
  window.messages = std::min(window.messages, there[0].window);
  GYRE_ASSIGN(std::shared_ptr<FifoMemory> memory, private_fifo(shape));
  std::vector<RdmaRail> rails(there.size());
  for (std::size_t i = 0; i < used.size(); ++i) {
    RdmaRail& rail = rails[used[i]];
    rail.there = there[used[i]];
    rail.planned = chosen.ways[used[i]].planned;
    const RdmaGid& gid = *devices[i]->port().on(rail.there.network);
    GYRE_ASSIGN(rail.queues, RdmaQueues::make(devices[i], gid, pairs, window.depth()));
  }
  auto is_refused = [post = environment_.letters, peer = key.peer, ticket = contents.ticket] {
    return post.receive(peer, refusal_key(ticket)).has_value();
  };
  GYRE_ASSIGN(std::unique_ptr<RdmaSender> sender,
              RdmaSender::make(key, std::move(memory), std::move(rails), shared_, window,
                               there[0].window, std::move(is_refused)));
  answered_.note(contents.ticket);
  const RdmaAnswer answer{contents.ticket, sender->addresses(environment_.self.host_name)};
  GYRE_TRY(environment_.letters.send(key.peer, answer_key(contents.ticket), encode(answer)));
  return std::unique_ptr<Connection>(std::move(sender));
}

}  // namespace

std::unique_ptr<Transport> make_rdma_transport(const TransportEnvironment& environment) {
  return std::make_unique<RdmaTransport>(environment);
}

}  // namespace gyre::transport
