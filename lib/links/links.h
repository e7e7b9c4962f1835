// Links: this rank's ports to its peers, opened when a plan first needs them. Opening is resumable:
// the receiving side listens and sends its endpoint as a message, the sending side connects to it.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/wait.h"
#include "lib/control/control.h"
#include "lib/exec/launch.h"
#include "lib/links/connect_message.h"
#include "lib/plan/plan.h"
#include "lib/topology/transport_path.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gyre::comm {

using transport::TransportList;

struct TransportCandidate;

class Links {
 public:
  using Key = std::pair<int, int>;  // peer, channel
  Links(int rank, control::Membership& membership, const TransportList& transports,
        const transport::Probe& probe)
      : rank_(rank), membership_(membership), transports_(transports), probe_(probe) {}

  // Of all links: before the first one opens. The shape is the same on all ranks.
  void use_shape(const transport::FifoShape& shape) { shape_ = shape; }
  // Whether long messages are copied from where they lie in the peer's memory: before the first
  // link opens.
  void use_copies(bool copies) { copies_ = copies; }
  // Begins to open what `plan` needs and is not there.
  Status open(const plan::Plan& plan);
  // Goes on opening. `moved` says whether anything happened.
  Status advance(bool& moved);
  // Whether nothing is being opened; `plan_is_open`: nothing of a plan.
  bool all_open() const { return opening_.empty(); }
  bool plan_is_open() const;

  // The link for sends and receives with one peer: begins to open it, if it is not there.
  Status open_pair(int peer);
  // The same for whoever of `size` ranks has begun.
  Status accept_pairs(int size);
  bool pair_is_open(int peer) const;
  // Whether messages of the peer can be read. They may be there before its endpoint: a peer that
  // only sends may have left, and its endpoint be lost with the processes that would forward it.
  bool can_receive(int peer) const;
  struct PortPair {
    exec::SendPort* send;
    exec::ReceivePort* receive;
  };
  PortPair pair(int peer) const;  // `send` is null if it cannot be sent to: see check_pair
  Status check_pair(int peer) const;
  Blocked blocked() const;
  // An error if this rank could not dial one who stays: that one waits for it, though this rank may
  // only receive from it. After a refusal the control plane has as long to say more as silence has,
  // and half a second at the least. An error, too, if what this rank has sent to one who stays, be
  // it in an earlier call, does not get there (Connection::look_at_peer): only the sender sees that
  // of a connection that was cut before its first bytes had come.
  Status check_reached(std::int64_t now_ns, std::int64_t limit_ns) const;
  // The same; and whether those whom openings wait for can still come (Connection::look_at_peer).
  Status look_at_peers(std::int64_t now_ns, std::int64_t limit_ns);
  bool arm(WaitSet& set);
  void disarm();

  // The plan's lanes with their ports; all links are open.
  exec::BoundPlan bind(const plan::Plan& plan);
  // One way of a link that its caller keeps: the end that receives, with the message to the peer;
  // and the end that sends, by the peer's message. `ports`: see transport::LinkKey.
  struct ReceivingEnd {
    std::unique_ptr<transport::Connection> connection;
    ConnectMessage message;
  };
  Result<ReceivingEnd> listen(const Key& key, const transport::FifoShape& shape,
                              const std::vector<std::string>& ports = {}) const;
  Result<std::unique_ptr<transport::Connection>> connect(
      const Key& key, const transport::FifoShape& shape, const control::MessageBytes& message,
      const std::vector<std::string>& ports = {}) const;

  // The best transport to a rank, or why there is none.
  Result<transport::Transport*> select(int peer) const;
  const trust::ProcessIdentity& identity_of(int peer) const;
  // Another process of this host, by which the kernel tells of its end. Empty if it is none, or if
  // it listens where this one cannot reach it: what they share are sockets then, which tell of it.
  FileDescriptor process_of(int peer) const;
  // One line on each candidate: why it is taken or not.
  std::string reasons(int peer) const;
  // The transports to a rank, best first; `find_path` tells what a medium is worth.
  std::vector<TransportCandidate> candidates(
      int peer, const std::function<topology::TransportPath(topology::Medium)>& find_path) const;

 private:
  struct PendingConnection {
    Key key;
    bool endpoint_came = false;
    std::optional<control::MessageBytes> message;  // read before the opening began
    std::int64_t dialed_ns = 0;
  };
  Status open_one(const Key& key, std::optional<control::MessageBytes> message);
  Status connect(PendingConnection& opening, const control::MessageBytes& message);
  transport::PeerMemory* memory_of(const Key& key, const transport::Probe& probe);
  void reach_memory(exec::SendPort& send, exec::ReceivePort& receive,
                    transport::PeerMemory* memory) const;
  exec::SendPort* send_port(const Key& key);  // a closed one if it cannot be sent to
  Status check_sendable(const Key& key) const;
  Status advance_one(PendingConnection& opening, bool& moved, bool& open);

  const int rank_;
  control::Membership& membership_;
  const TransportList& transports_;
  transport::FifoShape shape_;
  bool copies_ = false;
  const transport::Probe probe_;  // by which peers try to map this process's regions
  // By process: of collectives, which keep to what one call uses, and of sends and receives.
  using PeerMemories = std::map<std::uint32_t, std::unique_ptr<transport::PeerMemory>>;
  PeerMemories peer_memories_, pair_memories_;
  std::map<Key, std::unique_ptr<exec::SendPort>> send_ports_;
  std::map<Key, std::unique_ptr<exec::ReceivePort>> receive_ports_;
  std::vector<PendingConnection> opening_;
  struct UnsendableLink {
    Status why;
    std::int64_t dialed_ns = 0, failed_ns = 0;
    bool is_silent = false;
  };
  std::map<Key, UnsendableLink> unsendable_;  // links without a sending end
};

}  // namespace gyre::comm
