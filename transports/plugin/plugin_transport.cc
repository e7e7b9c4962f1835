// The transport of a plug-in. It announces that it is there, so that peers take it only for ranks
// that have it too. Its endpoint has the plug-in's own in its places, cut into texts, and a fresh
// ticket, which the sender shows as the first bytes of its stream.
#include "lib/transport/endpoint.h"
#include "lib/transport/mapped.h"
#include "lib/trust/unique_id.h"
#include "transports/plugin/plugin_receiver.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

namespace gyre::transport {
namespace {

constexpr std::size_t max_place_bytes = 255;

// ",plugin:NAME:HEX," among what other transports announce.
std::string announced_head(const Plugin& plugin) { return fmt::format(",plugin:{}:", plugin.name); }

std::optional<int> digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return std::nullopt;
}

// What a peer's plug-in announced; nothing if it has none, or not in this way.
std::optional<std::string> read_announced(std::string_view text, const Plugin& plugin) {
  const std::string head = announced_head(plugin);
  const std::size_t at = text.find(head);
  if (at == text.npos) return std::nullopt;
  text.remove_prefix(at + head.size());
  const std::size_t digits = std::min(text.find(','), text.size());
  if (digits % 2 != 0 || digits > 2 * GYRE_TRANSPORT_MAX_ANNOUNCEMENT) return std::nullopt;
  std::string bytes;
  for (std::size_t i = 0; i < digits; i += 2) {
    const auto high = digit(text[i]), low = digit(text[i + 1]);
    if (!high.has_value() || !low.has_value()) return std::nullopt;
    bytes += static_cast<char>(16 * *high + *low);
  }
  return bytes;
}

std::string first_of(const std::vector<std::string>& addresses) {
  return addresses.empty() ? std::string() : addresses.front();
}

// What a plug-in is told of a peer; it lives as long as the call.
class PeerView {
 public:
  PeerView(const trust::ProcessIdentity& peer, const trust::ProcessIdentity& self,
           std::string announced)
      : address_(first_of(peer.addresses)), announced_(std::move(announced)) {
    const bool same_host = peer.host == self.host;
    view_ = {.size = sizeof view_,
             .sameProcess = peer.process == self.process,
             .sameHost = same_host,
             .sameNetwork = same_host && peer.net_namespace == self.net_namespace,
             .sameUser = same_host && peer.uid == self.uid,
             .address = address_.c_str(),
             .announcement = reinterpret_cast<const unsigned char*>(announced_.data()),
             .announcementBytes = announced_.size()};
  }
  PeerView(const PeerView&) = delete;
  PeerView& operator=(const PeerView&) = delete;
  const gyreTransportPeer_t& get() const { return view_; }

 private:
  const std::string address_, announced_;
  gyreTransportPeer_t view_{};
};

Result<trust::Ticket> make_ticket() {
  GYRE_ASSIGN(const trust::Secret secret, trust::random_secret());
  return trust::Ticket(secret);
}

class PluginTransport final : public Transport {
 public:
  PluginTransport(const Plugin& plugin, const TransportEnvironment& environment)
      : plugin_(plugin), environment_(environment), address_(first_of(environment.self.addresses)) {
    auto opened = PluginContext::open(plugin, {.size = sizeof(gyreTransportSelf_t),
                                               .address = address_.c_str(),
                                               .livenessMs = environment.liveness_ns / ns_per_ms});
    if (opened.ok())
      context_ = std::move(*opened);
    else
      absence_ = opened.status();
  }

  std::string_view name() const override { return plugin_.name; }

  Result<std::string> announcement() const override {
    if (context_ == nullptr && absence_.code() == Code::RemoteError) return std::string();
    if (context_ == nullptr)
      return Status(absence_).while_doing(fmt::format("transport {}", plugin_.name));
    GYRE_ASSIGN(const std::string said, context_->announce());
    std::string text = announced_head(plugin_);
    for (const char c : said) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
    return text + ",";
  }

  Reachability reach(const trust::ProcessIdentity& peer) const override {
    if (context_ == nullptr) return {.reason = std::string(absence_.message())};
    if (environment_.tcp_encrypted && peer.host != environment_.self.host)
      return {.reason = "GYRE_TCP_SECURITY=tls asks for encryption, and a plug-in has none"};
    const auto announced = announced_by(peer);
    if (!announced.has_value()) return {.reason = "its process has no such transport"};
    return context_->reach(PeerView(peer, environment_.self, *announced).get());
  }

  Result<Listening> listen(const LinkKey& key, const FifoShape& shape,
                           const trust::ProcessIdentity& sender) override {
    GYRE_TRY(check_context());
    GYRE_ASSIGN(std::shared_ptr<FifoMemory> memory, private_fifo(shape));
    GYRE_ASSIGN(const trust::Ticket ticket, make_ticket());
    const PeerView peer(sender, environment_.self, announced_by(sender).value_or(""));
    auto listening = context_->listen(peer.get());
    if (!listening.ok())
      return link_failure(listening.status(), fmt::format("{} from rank {}", name(), key.peer),
                          key.peer);
    auto& [listener, endpoint] = *listening;
    std::vector<std::string> places;
    for (std::size_t at = 0; at < endpoint.size(); at += max_place_bytes)
      places.push_back(endpoint.substr(at, max_place_bytes));
    return Listening{std::make_unique<PluginReceiver>(key.peer, context_, std::move(listener),
                                                      ticket, std::move(memory)),
                     encode_endpoint({.transport = name(),
                                      .process = environment_.self.process,
                                      .ticket = ticket,
                                      .secret = {},
                                      .shape = shape,
                                      .places = places})};
  }

  Result<std::unique_ptr<Connection>> connect(const LinkKey& key, const FifoShape& shape,
                                              const Endpoint& endpoint) override {
    GYRE_TRY(check_context());
    GYRE_ASSIGN(const EndpointContents contents,
                decode_endpoint(endpoint, name(), shape, key.peer));
    std::string own;
    for (const std::string& place : contents.places) own += place;
    if (own.empty() || own.size() > GYRE_TRANSPORT_MAX_ENDPOINT)
      return Status(Code::RemoteError, fmt::format("rank {} sent an endpoint of {} bytes for {}",
                                                   key.peer, own.size(), name()))
          .blame({key.peer});
    GYRE_ASSIGN(std::shared_ptr<FifoMemory> memory, private_fifo(shape));
    auto stream = context_->connect(own);
    if (!stream.ok())
      return link_failure(stream.status(), fmt::format("{} to rank {}", name(), key.peer),
                          key.peer);
    return std::unique_ptr<Connection>(std::make_unique<PluginSender>(
        key.peer, context_, std::move(*stream), contents.ticket, std::move(memory)));
  }

 private:
  // No link is made over it then, unless the two ends judge differently.
  Status check_context() const {
    return context_ != nullptr ? Status() : Status(absence_).while_doing(name());
  }
  std::optional<std::string> announced_by(const trust::ProcessIdentity& peer) const {
    if (environment_.announced == nullptr) return std::nullopt;
    return read_announced(environment_.announced(peer), plugin_);
  }
  const Plugin& plugin_;
  const TransportEnvironment environment_;
  const std::string address_;
  std::shared_ptr<PluginContext> context_;  // null: see absence_
  Status absence_;
};

}  // namespace

std::unique_ptr<Transport> make_plugin_transport(const Plugin& plugin,
                                                 const TransportEnvironment& environment) {
  return std::make_unique<PluginTransport>(plugin, environment);
}

}  // namespace gyre::transport
