// Link: what one communicator has with one other process, on the trunk that the two processes
// share: its frames, the process's silence, its end. It does not know what the frames mean.
#pragma once

#include "lib/base/status.h"
#include "lib/control/messages.h"
#include "lib/trust/frame.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace gyre::control {

class Link;
class Trunk;

class LinkOwner {
 public:
  virtual void on_frame(Link& link, const trust::Frame& frame) = 0;
  // Once, after the last frame. The text says how: "its control connection closed". `closed`: the
  // other end closed this link and lives on; else the process or the way to it has ended.
  virtual void on_end(Link& link, const Status& how, bool closed) = 0;
  // The peer has given no sign of life for `limit_ns`; the link still stands. `more` is what the
  // kernel knows of the way there.
  virtual void on_silence(Link& link, std::int64_t limit_ns, const std::string& more) = 0;

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
    peer,     // opened after somebody had left: in place of a parent, or for letters
    leaving,  // its duty is over; it ends when its last bytes are sent
  };
  static constexpr std::uint32_t unknown = UINT32_MAX;

  // Of an open link, by its trunk.
  Link(Trunk& trunk, std::uint64_t number) : trunk_(&trunk), number_(number) {}
  ~Link() { close(); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  // At once, before anything is heard.
  void belong_to(LinkOwner& owner, Role first_role);

  bool is_open() const { return trunk_ != nullptr; }
  // Queues and sends what the socket takes at once.
  void send(Kind kind, std::span<const std::uint8_t> body);
  bool flushed() const;
  // Hears and says nothing more; the peer is told, the owner is not.
  void close();

  // Pings if it is time, reports a silence that is too long, and says when to look again.
  std::int64_t tick(std::int64_t now_ns);
  // 0: pings no more and judges no silence.
  void set_liveness(std::int64_t limit_ns);

  Role role = Role::guest;
  std::uint32_t process = unknown;  // at first the root's slot, then the place in the roster
  bool welcome = true;              // of one that this process opened: the other end has taken it
  std::optional<HelloMessage> early_hello;  // it came before the roster did

 private:
  friend class Trunk;
  void hear(const trust::Frame& frame);
  void end(const Status& how, bool closed);
  void cut() { trunk_ = nullptr; }

  Trunk* trunk_;  // null: it has ended
  const std::uint64_t number_;
  LinkOwner* owner_ = nullptr;
  std::int64_t limit_ns_ = 0;  // 0: silence is not judged
};

}  // namespace gyre::control
