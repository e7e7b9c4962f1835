#include "transports/plugin/plugin_calls.h"

#include <fmt/core.h>

#include <array>
#include <poll.h>

namespace gyre::transport {
namespace {

class WhyText {
 public:
  gyreTransportWhy_t* get() { return &why_; }
  // Of one line, whatever the plug-in wrote.
  std::string text() {
    why_.text[sizeof why_.text - 1] = '\0';
    std::string text = why_.text;
    for (char& c : text)
      if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
    return text;
  }

 private:
  gyreTransportWhy_t why_ = {.size = sizeof(gyreTransportWhy_t), .text = {}};
};

// The plug-in breaks its promise.
Status misbehaviour(const Plugin& plugin, std::string_view call, std::string_view what) {
  return Status(Code::SystemError, fmt::format("{} {} (plug-in {})", call, what, plugin.path));
}

Status failure(const Plugin& plugin, std::string_view call, int result, WhyText& why) {
  if (result != gyreTransportPeerError && result != gyreTransportOwnError)
    return misbehaviour(plugin, call, fmt::format("returned {}, which it must not", result));
  const std::string text = why.text();
  return Status(result == gyreTransportPeerError ? Code::RemoteError : Code::SystemError,
                fmt::format("{}: {}", call, text.empty() ? "no reason given" : text));
}

std::size_t bytes_of(std::span<const gyreTransportPart_t> parts) {
  std::size_t bytes = 0;
  for (const gyreTransportPart_t& part : parts) bytes += part.bytes;
  return bytes;
}

Status check_moved(const Plugin& plugin, std::string_view call, std::size_t moved,
                   std::size_t most) {
  if (moved > 0 && moved <= most) return {};
  return misbehaviour(plugin, call, fmt::format("says that it moved {} of {} bytes", moved, most));
}

void add_wait(const gyreTransportWait_t& wait, WaitSet& set) {
  const auto events = static_cast<short>(wait.events & (POLLIN | POLLOUT | POLLPRI));
  if (wait.descriptor >= 0 && events != 0) set.add_descriptor(wait.descriptor, events);
}

constexpr gyreTransportWait_t no_wait = {sizeof(gyreTransportWait_t), -1, 0};

}  // namespace

Result<std::shared_ptr<PluginContext>> PluginContext::open(const Plugin& plugin,
                                                           const gyreTransportSelf_t& self) {
  std::shared_ptr<PluginContext> made(new PluginContext(plugin));
  WhyText why;
  const int result = plugin.table.open(&self, &made->context_, why.get());
  if (result == gyreTransportOk && made->context_ != nullptr) return made;
  made->context_ = nullptr;
  if (result == gyreTransportOk) return misbehaviour(plugin, "open", "returned no context");
  return failure(plugin, "open", result, why);
}

PluginContext::~PluginContext() {
  if (context_ != nullptr) plugin_.table.close(context_);
}

Result<std::string> PluginContext::announce() const {
  std::array<unsigned char, GYRE_TRANSPORT_MAX_ANNOUNCEMENT> bytes{};
  std::size_t count = 0;
  if (plugin_.table.announce == nullptr) return std::string();
  WhyText why;
  const int result = plugin_.table.announce(context_, bytes.data(), &count, why.get());
  if (result != gyreTransportOk) return failure(plugin_, "announce", result, why);
  if (count > bytes.size())
    return misbehaviour(plugin_, "announce", fmt::format("returned {} bytes", count));
  return std::string(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
}

Reachability PluginContext::reach(const gyreTransportPeer_t& peer) const {
  WhyText why;
  const int result = plugin_.table.reach(context_, &peer, why.get());
  if (result == gyreTransportOk) {
    const std::string text = why.text();
    return {.reachable = true, .reason = text.empty() ? plugin_.reaches : text};
  }
  return {.reason = std::string(failure(plugin_, "reach", result, why).message())};
}

Result<std::pair<PluginListener, std::string>> PluginContext::listen(
    const gyreTransportPeer_t& peer) const {
  std::array<unsigned char, GYRE_TRANSPORT_MAX_ENDPOINT> endpoint{};
  std::size_t bytes = 0;
  gyreTransportListener_t made = nullptr;
  WhyText why;
  const int result =
      plugin_.table.listen(context_, &peer, &made, endpoint.data(), &bytes, why.get());
  if (result != gyreTransportOk) return failure(plugin_, "listen", result, why);
  if (made == nullptr) return misbehaviour(plugin_, "listen", "returned no listener");
  PluginListener listener({&plugin_.table, made});
  if (bytes == 0 || bytes > endpoint.size())
    return misbehaviour(plugin_, "listen", fmt::format("returned an endpoint of {} bytes", bytes));
  return std::pair(std::move(listener), std::string(endpoint.data(), endpoint.data() + bytes));
}

Result<PluginHandle> PluginContext::connect(std::string_view endpoint) const {
  gyreTransportStream_t made = nullptr;
  WhyText why;
  const int result =
      plugin_.table.connect(context_, reinterpret_cast<const unsigned char*>(endpoint.data()),
                            endpoint.size(), &made, why.get());
  if (result != gyreTransportOk) return failure(plugin_, "connect", result, why);
  if (made == nullptr) return misbehaviour(plugin_, "connect", "returned no stream");
  return PluginHandle({&plugin_.table, made});
}

Result<PluginHandle> PluginContext::accept(const PluginListener& listener) const {
  gyreTransportStream_t made = nullptr;
  WhyText why;
  const int result = plugin_.table.accept(listener.get().object, &made, why.get());
  if (result == gyreTransportAgain) return PluginHandle();
  if (result != gyreTransportOk) return failure(plugin_, "accept", result, why);
  if (made == nullptr) return misbehaviour(plugin_, "accept", "returned no stream");
  return PluginHandle({&plugin_.table, made});
}

void PluginContext::arm(const PluginListener& listener, WaitSet& set) const {
  gyreTransportWait_t wait = no_wait;
  plugin_.table.waitListener(listener.get().object, &wait);
  add_wait(wait, set);
}

Result<PluginStream::Moved> PluginStream::send(std::span<const gyreTransportPart_t> parts) {
  std::size_t moved = 0;
  WhyText why;
  const int result =
      table().send(handle_.get().object, parts.data(), parts.size(), &moved, why.get());
  if (result == gyreTransportAgain) return Moved();
  if (result != gyreTransportOk) return failure(context_->plugin(), "send", result, why);
  GYRE_TRY(check_moved(context_->plugin(), "send", moved, bytes_of(parts)));
  return Moved{.bytes = moved};
}

Result<PluginStream::Moved> PluginStream::receive(std::span<const gyreTransportPart_t> parts) {
  std::size_t moved = 0;
  WhyText why;
  const int result =
      table().receive(handle_.get().object, parts.data(), parts.size(), &moved, why.get());
  if (result == gyreTransportAgain) return Moved();
  if (result == gyreTransportClosed) return Moved{.closed = true};
  if (result != gyreTransportOk) return failure(context_->plugin(), "receive", result, why);
  GYRE_TRY(check_moved(context_->plugin(), "receive", moved, bytes_of(parts)));
  return Moved{.bytes = moved};
}

Result<bool> PluginStream::flush() {
  if (table().flush == nullptr) return true;
  WhyText why;
  const int result = table().flush(handle_.get().object, why.get());
  if (result == gyreTransportAgain) return false;
  if (result != gyreTransportOk) return failure(context_->plugin(), "flush", result, why);
  return true;
}

Status PluginStream::check(std::int64_t limit_ns) {
  if (table().check == nullptr) return {};
  WhyText why;
  const int result = table().check(handle_.get().object, limit_ns / ns_per_ms, why.get());
  return result == gyreTransportOk ? Status() : failure(context_->plugin(), "check", result, why);
}

void PluginStream::arm(bool to_send, WaitSet& set) const {
  gyreTransportWait_t wait = no_wait;
  table().waitStream(handle_.get().object, to_send ? 1 : 0, &wait);
  add_wait(wait, set);
}

}  // namespace gyre::transport
