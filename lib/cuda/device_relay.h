// DeviceRelay: connects two ranks' kernels where neither reaches the other's memory. The two pieces
// of the link (device_link.h) are then pinned memory of this process: its own piece, and a mirror
// in place of the peer's piece. The relay acts as the peer's kernels at both. It ships what kernels
// here write into the mirror to the peer's relay over a transport. It writes what arrives from
// there into their own piece. Kernels send only as much as credits allow, and the credits are the
// far kernels'. So everything that arrives finds room, and no channel blocks another.
//
//   kernel ──> mirror ──> relay ══ transport ══> relay ──> own piece ──> kernel
//
// Where the transport has a Carrier, the relay is a caller of it with one call, which takes as long
// as the relay. The wire may hold the mirror's rings: then it reads messages where kernels wrote
// them. Each end lends its own rings, or says that it does not: where it does, the other end's wire
// writes messages there. Each end decides that for itself. Rings that the wire may hold or write
// may lie in the GPU's memory, where the relay does not reach them. A slot that kernels have sent
// stays as it is until the far kernel has released it, so it lasts as long as the wire needs it.
#pragma once

#include "lib/base/wait.h"
#include "lib/cuda/relay_message.h"
#include "lib/transport/carrier.h"
#include "lib/transport/transport.h"

#include <memory>
#include <vector>

namespace gyre::exec {

// Which rings lie in the GPU's memory. A relay's wires can have those.
struct RelayPlaces {
  bool own_on_gpu = false, mirror_on_gpu = false;
};

// One thread at a time.
class DeviceRelay {
 public:
  // `link`: as this thread reaches it; it outlives the relay. Kernels use nothing but `simple`, and
  // ends that lend nothing. `first`: what words of the link stand at; zero, but in tests.
  DeviceRelay(int peer, const DeviceShape& shape, const DeviceLink& link,
              std::unique_ptr<transport::Connection> send,
              std::unique_ptr<transport::Connection> receive, std::uint64_t first = 0,
              const RelayPlaces& places = {});
  // Of both connections.
  static transport::FifoShape fifo_shape(const DeviceShape& shape);

  int peer() const { return peer_; }
  // Both connections are joined; `advance` brings it about.
  bool ready() const { return joined_; }
  // Moves what can be moved and blocks on nothing. The error is sticky and blames the peer.
  Status advance(bool& moved);
  // Where nobody else notices that the peer's host is silent: see Connection::look_at_peer. The
  // error is the same as of `advance`.
  Status look_at_peer(std::int64_t now_ns, std::int64_t limit_ns);
  // Before a sleep, as a Connection's; false if there is something to move after all. What kernels
  // tell rings nowhere: while they run, a sleep is short.
  bool arm(WaitSet& set);
  void disarm();

  // No kernel here uses the link any more. What they have told is still shipped; then each relay
  // tells the other that nothing more comes, so that both may close with no byte lost between them.
  void leave() { leaving_ = true; }
  bool has_left() const;
  // The peer's kernels use the link no more, and all that they told is here.
  bool peer_has_left() const { return peer_left_; }

 private:
  struct Channel {
    cuda::DeviceEnd takes;  // what kernels here send
    cuda::DeviceEnd gives;  // what they receive
  };
  Status keep(Status status);
  Status move(bool& moved);
  void lend_rings();
  bool can_join() const;
  void join();
  Status land(bool& moved);
  Status deliver(bool& moved);
  Result<RelayMessage> take_message(const transport::SlotHeader& note);
  Status check_far_end(const Status& received);
  Status ship(bool& moved);
  Status ship_released(std::uint32_t channel, bool& moved);
  Status ship_message(std::uint32_t channel, bool& moved);
  Status commit_tail(const RelayMessage& tail, const std::byte* place);
  void commit(const RelayMessage& message);
  void say_goodbye(bool& moved);
  bool has_told(std::uint32_t channel) const;
  int first_told() const;  // a channel with something to ship; -1: none

  const int peer_;
  const DeviceShape shape_;
  const DeviceLink link_;
  const RelayPlaces places_;
  // The wire's right to the mirror's rings; it outlives the connection, and what was lent as well.
  std::shared_ptr<const void> held_;
  const std::unique_ptr<transport::Connection> send_, receive_;
  bool peer_lends_ = false;
  bool peer_needs_all_ = false;  // it does not reach what it lends
  transport::SlotWriter writer_;
  transport::SlotReader reader_;
  std::vector<Channel> channels_;
  std::vector<RelayCounts> counts_;  // by channel
  std::uint32_t next_channel_ = 0;   // who ships first
  bool joined_ = false;
  bool leaving_ = false, said_goodbye_ = false, peer_left_ = false;
  Status send_error_;  // judged when all that came is read: the peer may have left in peace
  Status error_;
};

}  // namespace gyre::exec
