// The calls of a plug-in's table: what they return is checked here, and becomes a Status.
#pragma once

#include "lib/base/wait.h"
#include "lib/loaded/table_object.h"
#include "transports/plugin/plugin.h"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace gyre::transport {

using PluginListener = Owned<loaded::TableObjectTraits<gyreTransportTable_t, gyreTransportListener,
                                                       &gyreTransportTable_t::closeListener>>;
using PluginHandle = Owned<loaded::TableObjectTraits<gyreTransportTable_t, gyreTransportStream,
                                                     &gyreTransportTable_t::closeStream>>;

// A plug-in's state for one rank; the transport and each of its connections hold it.
class PluginContext {
 public:
  // RemoteError where the network of the plug-in does not exist here.
  static Result<std::shared_ptr<PluginContext>> open(const Plugin& plugin,
                                                     const gyreTransportSelf_t& self);
  ~PluginContext();
  PluginContext(const PluginContext&) = delete;
  PluginContext& operator=(const PluginContext&) = delete;

  const Plugin& plugin() const { return plugin_; }
  Result<std::string> announce() const;
  Reachability reach(const gyreTransportPeer_t& peer) const;
  // The listener, and its endpoint.
  Result<std::pair<PluginListener, std::string>> listen(const gyreTransportPeer_t& peer) const;
  Result<PluginHandle> connect(std::string_view endpoint) const;
  // None: nobody has come.
  Result<PluginHandle> accept(const PluginListener& listener) const;
  void arm(const PluginListener& listener, WaitSet& set) const;

 private:
  explicit PluginContext(const Plugin& plugin) : plugin_(plugin) {}

  const Plugin& plugin_;
  gyreTransportContext_t context_ = nullptr;
};

// One stream, at either end.
class PluginStream {
 public:
  PluginStream(std::shared_ptr<PluginContext> context, PluginHandle handle)
      : context_(std::move(context)), handle_(std::move(handle)) {}

  struct Moved {
    std::size_t bytes = 0;  // none: nothing can be moved now
    bool closed = false;    // by the other end; nothing more comes
  };
  Result<Moved> send(std::span<const gyreTransportPart_t> parts);
  Result<Moved> receive(std::span<const gyreTransportPart_t> parts);
  // Whether the bytes that were sent need no more calls.
  Result<bool> flush();
  Status check(std::int64_t limit_ns);
  void arm(bool to_send, WaitSet& set) const;

 private:
  const gyreTransportTable_t& table() const { return context_->plugin().table; }

  std::shared_ptr<PluginContext> context_;  // goes after the handle
  PluginHandle handle_;
};

inline gyreTransportPart_t part_of(const void* data, std::size_t bytes) {
  return {const_cast<void*>(data), bytes};
}

}  // namespace gyre::transport
