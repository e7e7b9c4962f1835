// UcpEngine: a worker of UCX, which moves all bytes of a transport's connections. UcpPeer: its
// connection with another engine, over which all of the transport's links with that process go.
//
// A caller of an engine holds it (`hold`), but for the functions that say otherwise. So the threads
// of a communicator may use its links at once: one of them moves the bytes of all.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"
#include "lib/base/wait.h"
#include "lib/loaded/shared_ucp.h"
#include "transports/ucx/host_line.h"
#include "transports/ucx/notice.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gyre::transport {

struct UcpRequestTraits {
  struct Handle {
    const loaded::Ucp* table = nullptr;
    void* request = nullptr;
    friend bool operator==(const Handle&, const Handle&) = default;
  };
  static Handle none() { return {}; }
  // UCX keeps what has not completed until it has.
  static void close(const Handle& handle) { handle.table->free_request(handle.request); }
};
using UcpRequest = Owned<UcpRequestTraits>;

struct UcpPeer {
  loaded::UcpEndpoint* endpoint = nullptr;  // the engine closes it
  loaded::UcxStatus failure = loaded::ucx::ok;
  std::string way;  // "tcp/eth0": UCX's transports and devices
  // All of them copy what they move: messages leave in parts of so many bytes, one packet each. 0:
  // whole.
  std::uint64_t packet_bytes = 0;
  // To its host, on another one: those that its links have dialed, and may yet get.
  std::vector<std::shared_ptr<HostLine>> lines;
  bool has_dialed = false;
};

// What has come with a notice. With a promise the bytes are still at the sender.
struct UcpArrival {
  std::span<const std::byte> bytes;
  void* promise = nullptr;
  std::size_t promised = 0;
  std::size_t size() const { return promise != nullptr ? promised : bytes.size(); }
};

// The end of a link. It is told of notices by the thread that moves the bytes, which holds the
// engine, and throws nothing.
class UcpSink {
 public:
  virtual void take(const UcpNotice& notice, const UcpArrival& arrival) noexcept = 0;

 protected:
  ~UcpSink() = default;
};

class UcpEngine {
 public:
  // On this host UCX's shared memory is used, which does not notice the end of a peer. Other hosts
  // are watched by UCX.
  enum class Distance : std::uint8_t { this_host, another_host };

  static Result<std::shared_ptr<UcpEngine>> make(std::shared_ptr<loaded::UcpSharedContext> context);
  // Closes the connections, so that what has been sent arrives. It takes 200 ms at most.
  ~UcpEngine();
  UcpEngine(const UcpEngine&) = delete;
  UcpEngine& operator=(const UcpEngine&) = delete;

  // Not in a forked process, nor in one that has closed our descriptors.
  bool may_touch_worker() const;
  // Any thread.
  [[nodiscard]] std::unique_lock<std::mutex> hold() { return std::unique_lock(mutex_); }
  // Never changes. Any thread.
  const loaded::Ucp& table() const { return context_->table(); }

  // Of this worker, for peers of that distance.
  Result<std::string> address(Distance distance) const;
  // The connection with the worker of that address, which is made if there is none.
  Result<std::shared_ptr<UcpPeer>> reach(const std::string& address, Distance distance);
  // The link by which notices find the end.
  Result<std::uint64_t> join(UcpSink& sink);
  void leave(std::uint64_t link) { sinks_.erase(link); }

  // Moves what can be moved, without blocking.
  void progress();
  // The same, unless it was done since the caller's last look, for another link. So a turn of many
  // links asks UCX once.
  void progress_since(std::uint64_t& seen_turns) {
    if (seen_turns == turns_) progress();
    seen_turns = turns_;
  }
  // Ends a sleep when there is something to move. False: there is now, and `progress` moves it.
  bool arm(WaitSet& set);
  // There is always something to move, such as what waits for room in a peer's shared memory.
  void stay_awake(WaitSet& set) { set.add_futex(&busy_, 1); }

  // The notice and the bytes stay until the request has completed. None: it has.
  Result<UcpRequest> send(const UcpPeer& peer, const UcpNotice& notice,
                          std::span<const std::byte> bytes);
  // Without more ado.
  Status tell(const UcpPeer& peer, const UcpNotice& notice, std::vector<std::uint8_t> bytes = {});
  // Brings promised bytes to a place that stays until the request has completed. None: it has.
  Result<UcpRequest> fetch(const UcpArrival& arrival, std::byte* place);
  loaded::UcxStatus status_of(const UcpRequest& request) const {
    return table().request_status(request.get().request);
  }
  // True once UCX is done with it, or if it is none: it is none then. `failed`: what is said if it
  // did not end well.
  Result<bool> has_completed(UcpRequest& request, std::string_view failed) const;
  // Gives up the connection: from now on UCX reads nothing that was to be sent there.
  void cut(UcpPeer& peer) noexcept;
  // Keeps the memory of a request until that has completed.
  void keep(UcpRequest request, std::shared_ptr<const void> memory);

 private:
  explicit UcpEngine(std::shared_ptr<loaded::UcpSharedContext> context);
  Status open();
  Result<UcpRequest> begun(std::string_view call, void* pointer) const;
  void take(std::span<const std::byte> header, const UcpArrival& arrival) noexcept;
  std::vector<std::string> ways_of(loaded::UcpEndpoint* endpoint) const;
  UcpRequest close(UcpPeer& peer, bool by_force);
  void close_all();

  static loaded::UcxStatus on_message(void* engine, const void* header, std::size_t header_bytes,
                                      void* data, std::size_t bytes,
                                      const loaded::UcpArrivalParameters* parameters);
  static void on_error(void* peer, loaded::UcpEndpoint* endpoint, loaded::UcxStatus status);

  const std::shared_ptr<loaded::UcpSharedContext> context_;
  std::mutex own_mutex_;
  std::mutex& mutex_;
  int descriptor_ = -1;                 // the worker's
  std::uint64_t turns_ = 0;             // how often it has moved what can be moved
  std::atomic<std::uint32_t> busy_{0};  // never changes
  struct Kept {
    std::shared_ptr<const void> memory;
    UcpRequest request;
  };
  std::vector<Kept> kept_;
  loaded::UcpWorkerHandle worker_;
  std::map<std::string, std::shared_ptr<UcpPeer>> peers_;  // by address
  std::vector<std::shared_ptr<UcpPeer>> failed_;           // which others have replaced
  std::map<std::uint64_t, UcpSink*> sinks_;
};

}  // namespace gyre::transport
