// Link: a session with one other process, watched by the control thread: its frames, its silence,
// its end. On one host the kernel tells of the process's death even where somebody else still holds
// its socket. It does not know what the frames mean.
#pragma once

#include "lib/bootstrap/control_thread.h"
#include "lib/bootstrap/messages.h"
#include "lib/bootstrap/peer_processes.h"
#include "lib/trust/secure_session.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

namespace gyre::bootstrap {

class Link;

class LinkOwner {
 public:
  virtual void on_frame(Link& link, const trust::Frame& frame) = 0;
  // Once, after the last frame. The text says how: "its control connection closed".
  virtual void on_end(Link& link, const Status& how) = 0;
  // The peer has given no sign of life for `limit_ns`; the link still stands.
  virtual void on_silence(Link& link, std::int64_t limit_ns) = 0;

 protected:
  ~LinkOwner() = default;
};

class Link {
 public:
  // What the other end is to this process. The owner sets it.
  enum class Role : std::uint8_t {
    guest,  // came through the door; not yet, or not in the tree, a neighbour
    root,   // this process's way to the root while the ranks gather
    parent,
    child,
    leaving,  // its duty is over; it ends when its last bytes are sent
  };
  static constexpr std::uint32_t unknown = UINT32_MAX;

  Link(ControlThread& thread, PeerProcesses& processes, LinkOwner& owner,
       std::unique_ptr<trust::SecureSession> session, Role first_role);
  Status open();

  // Queues and sends what the socket takes at once.
  void send(Kind kind, std::span<const std::uint8_t> body);
  bool flushed() const { return ended_ || session_->flushed(); }
  // Hears and says nothing more; the owner is not told.
  void close();

  // Pings if it is time, reports a silence that is too long, and says when to look again.
  std::int64_t tick(std::int64_t now_ns, std::int64_t overslept_ns);
  // 0: pings no more and judges no silence.
  void set_liveness(std::int64_t limit_ns);

  Role role;
  std::uint32_t process = unknown;  // at first the root's slot, then the place in the roster
  std::optional<HelloMessage> early_hello;  // it came before the roster did

 private:
  void on_socket();
  void on_peer_exit();
  void read_all();
  void end(const Status& how);

  ControlThread& thread_;
  PeerProcesses& processes_;
  LinkOwner& owner_;
  const std::unique_ptr<trust::SecureSession> session_;
  ControlThread::Watch watch_;
  PeerProcesses::Watch process_watch_;
  bool ended_ = false;
  std::int64_t limit_ns_ = 0;  // 0: silence is not judged
  std::int64_t heard_ns_ = 0, said_ns_ = 0;
};

}  // namespace gyre::bootstrap
