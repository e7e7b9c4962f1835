// Two ends of one link over any transport, each run by a script: in two threads, or in two
// processes where the transport joins processes. A script returns its errors as text, since
// Catch2's macros serve one thread of one process.
#pragma once

#include "lib/base/wait.h"
#include "lib/transport/lasting_memory.h"
#include "lib/transport/transport.h"
#include "tests/support/transports/test_listener.h"

#include <fmt/core.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace gyre::tests {

// A transport, and between which ends; transport_pair.cc has a row for each.
// `tcp_rails` has three sockets for each connection and checksums, `tcp_checked` one and checksums.
// `rdma` is over the fake of pair_verbs.h, `rdma_device` over this machine's devices.
// `ucx` is over the fake of pair_ucp.h, `ucx_shm` and `ucx_tcp` are by this machine's UCX.
// `plugin` is over docs/examples/unix_transport.c.
enum class Kind {
  self,
  shm_threads,
  shm_processes,
  rdma,
  rdma_device,
  tcp4,
  tcp6,
  tcp_tls,
  tcp_rails,
  tcp_checked,
  ucx,
  ucx_shm,
  ucx_tcp,
  plugin
};
std::string kind_name(Kind kind);
// Those that this machine has (all, but for tcp6 where IPv6 is off, and for what lacks a device).
std::vector<Kind> all_kinds();
// Of those: both ends see the slots; the ends can be two processes.
std::vector<Kind> mapped_kinds();
std::vector<Kind> process_kinds();
// The library of docs/examples/unix_transport.c.
std::string example_plugin_path();
// Both ends belong to one Side.
bool is_one_process(Kind kind);
// How rdma is used by the Sides that are made from now on.
transport::RdmaOptions& pair_rdma_options();

// One process, or what stands for one: identity, tickets, listener and transport.
class Side {
 public:
  explicit Side(Kind kind);
  trust::ProcessIdentity identity;
  trust::TicketBook tickets;
  transport::RegionTable regions;
  const std::shared_ptr<transport::LastingMemory> lasting =
      std::make_shared<transport::LastingMemory>(regions);
  std::unique_ptr<TestListener> listener;
  std::unique_ptr<transport::Transport> transport;
};

// Small messages between the two scripts, beside the link that is tested.
class Letters {
 public:
  explicit Letters(FileDescriptor socket) : socket_(std::move(socket)) {}
  void post(const std::vector<std::uint8_t>& rank_message) const;
  void post_word(const std::string& word) const {
    post(std::vector<std::uint8_t>(word.begin(), word.end()));
  }
  // Nothing after the limit, or when the other end is gone.
  std::optional<std::vector<std::uint8_t>> await(int limit_ms = 60'000) const;
  bool await_word() const { return await().has_value(); }

 private:
  FileDescriptor socket_;
};

struct PairOptions {
  transport::FifoShape shape = {.slot_count = 4, .line_count = 16, .slot_bytes = 4096};
  std::uint64_t seed = 1;
  WaitPolicy policy{};
  bool processes = false;          // two of them for tcp as well
  bool receiver_in_child = false;  // else the sender is
};

struct End {
  Side& side;
  Letters& messages;
  const PairOptions& options;
  std::unique_ptr<transport::Connection> connection;
  std::mt19937_64 random;
  transport::Endpoint endpoint;  // the sender's: what it connected with
  Status status;                 // the connection's, once `until` has failed

  // Moves the link on, and sleeps, until `ready()`. False on an error or after `limit_ms`.
  template <typename Ready>
  bool until(Ready&& ready, int limit_ms = 30'000) {
    const SystemClock clock;
    Wait wait(clock, options.policy, limit_ms * ns_per_ms);
    const auto arm = [&](WaitSet& set) {
      connection->arm(set);
      return !ready();
    };
    for (;;) {
      status = connection->progress();
      if (!status.ok()) return false;
      if (ready()) return true;
      if (wait.pause(arm, [&] { connection->disarm(); }) == Wait::Outcome::again) continue;
      status = Status(Code::Timeout, "the test waited too long");
      return false;
    }
  }
  bool join() {
    return until([&] { return connection->ready(); });
  }
  bool flush() {
    return until([&] { return connection->flushed(); });
  }
};

using Script = std::function<std::string(End&)>;

struct PairResult {
  std::string sender, receiver;  // what each script said; empty is good
};
PairResult run_pair(Kind kind, const PairOptions& options, const Script& sender,
                    const Script& receiver);

// Both ends in the calling thread, joined; for what needs no second one.
struct Link {
  std::unique_ptr<transport::Connection> receiver, sender;
  transport::Endpoint endpoint;
  Status status;  // why it is not joined
};
// With ports that a plan has for it, at either end.
struct LinkPorts {
  std::vector<std::string> receiving, sending;
};
Link open_link(Side& receiving, Side& sending, const transport::FifoShape& shape,
               const LinkPorts& ports = {});
// Moves both ends on until `ready()`; false on an error or after ten seconds.
bool pump(Link& link, const std::function<bool()>& ready);

// Bytes that depend on their place in the message and on the message's number.
void fill(std::byte* place, std::size_t bytes, std::uint64_t number);
bool is_filled(const std::byte* place, std::size_t bytes, std::uint64_t number);

#define GYRE_EXPECT(condition)                                                                    \
  do {                                                                                            \
    if (!(condition))                                                                             \
      return fmt::format("line {}: not so: {} ({})", __LINE__, #condition, end.status.message()); \
  } while (false)

}  // namespace gyre::tests
