// The contract of a transport. A Transport judges how well it reaches a peer (Reachability) and
// makes Connections. A Connection is one direction of one link: a fifo of slots to or from one
// peer.
//
//   receiving side   listen(key, shape, sender)     a Connection, and an Endpoint for the sender
//   sending side     connect(key, shape, endpoint)  a Connection
//
// The executor moves messages on the fifo's memory alone (SlotWriter/SlotReader on `fifo()`). So a
// message costs no virtual call; each turn of a Launch makes one or two for each connection
// (`needs_progress`, `flushed`). If memory does not reach the peer, `progress` ships committed
// messages and stores those that arrive. A Connection is used by one thread at a time. Errors are
// sticky and name their cause.
#pragma once

#include "lib/base/reachability.h"
#include "lib/base/status.h"
#include "lib/base/wait.h"
#include "lib/transport/lasting_memory.h"
#include "lib/transport/slots.h"
#include "lib/trust/identity.h"
#include "lib/trust/tickets.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::loaded {
class SharedUcp;
class SharedVerbs;
}  // namespace gyre::loaded

namespace gyre::transport {

class Carrier;

enum class Direction : std::uint8_t { send, receive };
enum class TrafficClass : std::uint8_t { collective, point_to_point };

struct LinkKey {
  std::int32_t peer = 0;  // rank at the other end
  std::uint32_t channel = 0;
  Direction direction = Direction::send;
  TrafficClass traffic = TrafficClass::collective;
  // The NIC ports of this end that a plan has for the connection, by name ("mlx5_0:1"). The other
  // end has as many: its i-th is for this end's i-th. None: the transport chooses, as do those that
  // have no use for it.
  std::vector<std::string> ports = {};
  friend auto operator<=>(const LinkKey&, const LinkKey&) = default;
};

// The failure of a link to `peer`: the peer's doing, unless this process failed by itself, as where
// it has no descriptors or no memory left.
Status link_failure(Status why, std::string_view what, int peer);

// The failure of a system call on the way to a peer: this process's where it lacks something, else
// what happened at the other end.
Status failure_on_the_way(std::string call, int error_number);

// What the sender needs to reach the receiver. Opaque to all but its transport; checked by it.
using Endpoint = std::vector<std::uint8_t>;

class Connection {
 public:
  virtual ~Connection() = default;

  // Whether both ends are joined; `progress` brings it about. The fifo may be used from then on
  // (a receiving end in shared memory is ready at once).
  virtual bool ready() const = 0;
  // Stable from creation to destruction.
  virtual const FifoView& fifo() const = 0;
  // Moves bytes between fifo and wire without blocking. A no-op where memory reaches the peer.
  // The sticky error, if there is one. A peer that closes after its last message is none, until
  // this end waits for more (see arm).
  virtual Status progress() = 0;
  // Everything committed has left to shared memory or the kernel.
  virtual bool flushed() const = 0;
  // The same of the slots before number `tail`, whatever was committed later.
  virtual bool flushed_to(std::uint64_t) const { return flushed(); }
  // Whether calls of `progress` do anything after `ready`.
  virtual bool needs_progress() const = 0;
  // Announces that this thread is about to sleep until the fifo changes for this end; disarm takes
  // it back. The caller looks at the fifo once more between arm and sleep. To be armed only where
  // the caller cannot go on without the peer: a peer that has closed its end is an error from then
  // on.
  virtual void arm(WaitSet& set) = 0;
  // For who has waited long: an error if the peer's process has ended, or if nothing of its host
  // has answered for `limit_ns`, though its program and the control plane say nothing. Costs a
  // system call.
  virtual Status look_at_peer(std::int64_t /*now_ns*/, std::int64_t /*limit_ns*/) { return {}; }
  // After an error of `progress`: no host has answered, so that nobody is to say more of it.
  virtual bool met_silence() const { return false; }
  // The peer has closed its end and nothing more will come: only who depends on it arms this.
  virtual bool at_end() const { return false; }
  virtual void disarm() = 0;
  // Grants over this connection can lend plain addresses: both ends share one address space.
  virtual bool same_address_space() const = 0;
  // Null: the wire moves slots alone, or there is none. Stays as long as the connection.
  virtual Carrier* carrier() { return nullptr; }
};

struct Listening {
  std::unique_ptr<Connection> connection;
  Endpoint endpoint;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  // What peers have to know of this end to judge how to reach it, beside its identity; of one line
  // without '|' and ';', with a first word of its own. It travels in the message with which a rank
  // joins. Empty: nothing. An error where settings ask for what is not there.
  virtual Result<std::string> announcement() const { return std::string(); }
  // What the ports carry together by which it reaches other hosts; 0: none, or nobody knows.
  virtual std::int64_t wire_megabytes_per_s() const { return 0; }
  virtual Reachability reach(const trust::ProcessIdentity& peer) const = 0;
  // `sender` is the process that will connect: it decides what kind of memory it takes.
  virtual Result<Listening> listen(const LinkKey& key, const FifoShape& shape,
                                   const trust::ProcessIdentity& sender) = 0;
  virtual Result<std::unique_ptr<Connection>> connect(const LinkKey& key, const FifoShape& shape,
                                                      const Endpoint& endpoint) = 0;
};

using TransportList = std::vector<std::unique_ptr<Transport>>;  // best first

// Small messages of two transports, over the encrypted control plane: for what a sender has to tell
// a receiver before bytes can pass. A message with a key of its own comes once. Nothing blocks.
struct TransportLetters {
  using Bytes = std::vector<std::uint8_t>;
  std::function<Status(std::int32_t to_rank, std::uint64_t key, Bytes)> send;
  std::function<std::optional<Bytes>(std::int32_t from_rank, std::uint64_t key)> receive;
};

// How RDMA is used: the settings of these names, GYRE_IB_...
struct RdmaOptions {
  std::string hca = {};
  int gid_index = -1;  // -1: by type and address
  int traffic_class = 0;
  int service_level = 0;
  int timeout = 20;
  int retry_count = 7;
  int qps_per_connection = 1;
};

// The transports of a process announce one text, with ';' between their parts. Returns what follows
// the first word of one of them; empty if that announces nothing.
std::string_view announced_part(std::string_view all, std::string_view first_word);

// What a transport is made from. Both references outlive the transport and its connections.
struct TransportEnvironment {
  const trust::ProcessIdentity& self;
  trust::TicketBook& tickets;
  // The address at which processes of this host reach this one by TCP; it listens there from the
  // first call on. Null: they come in where others do.
  std::function<Result<std::string>()> listen_on_this_host = {};
  bool tcp_encrypted = false;
  std::size_t tcp_sockets = 1;  // of a connection; the same at both ends
  bool tcp_checksums = false;   // as well
  // Which communicator's bytes these are; said in every message on a wire and checked there.
  std::uint64_t communicator_hash = 0;
  std::uint32_t epoch = 0;
  // How long another host may be silent (GYRE_LIVENESS_TIMEOUT).
  std::int64_t liveness_ns = 10 * ns_per_s;
  TransportLetters letters = {};
  // What a peer's transports announced (announced_part); empty before it has joined.
  std::function<std::string(const trust::ProcessIdentity& peer)> announced = {};
  RdmaOptions rdma = {};
  loaded::SharedVerbs* verbs = nullptr;  // of the process; null: rdma reaches nobody
  loaded::SharedUcp* ucp = nullptr;      // of the process; null: ucx reaches nobody
  // Whether the port ("mlx5_0:1") is near the GPU whose memory it may reach: it is then taken
  // before others. Null: there is no GPU.
  std::function<bool(std::string_view port)> is_near_gpu = {};
  // The memory of callers that NICs may read and write; null: none.
  std::shared_ptr<LastingMemory> lasting = {};
};

}  // namespace gyre::transport
