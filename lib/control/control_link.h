// ControlLink: the connection of one communicator with one other process, on the trunk that the two
// processes share. It carries frames and reports the process's silence and end. It does not know
// what the frames mean.
//
//   held   the owner cannot judge yet what this link says: its frames and its end wait
#pragma once

#include "lib/base/status.h"
#include "lib/control/messages.h"
#include "lib/trust/frame.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>

namespace gyre::control {

class ControlLink;
class Trunk;

// What carries links, each under a number: a trunk.
class LinkCarrier {
 public:
  // What is said is queued, and sent as far as the socket takes it at once.
  virtual void send(std::uint64_t link, Kind kind, std::span<const std::uint8_t> body) = 0;
  virtual void forget(std::uint64_t link) = 0;
  virtual bool flushed() const = 0;
  virtual std::int64_t heard_ns() const = 0;
  // How much longer than the limit it may be silent: a network that was cut and has healed carries
  // what was said meanwhile when the kernel repeats it.
  virtual std::int64_t grace_ns() const = 0;
  // What was said is lost, though the peer may still be heard. Then what it says now may not come,
  // as its kernel waits for answers of ours.
  virtual bool loses_what_is_said(std::int64_t now_ns, std::int64_t limit_ns) = 0;
  // When it is time to look at that again: soon after something was said, and while it is out.
  virtual std::int64_t next_look_ns(std::int64_t now_ns) const = 0;
  // What the kernel knows of the way to a peer that is silent, for people; empty on one host.
  virtual std::string silence_text(std::int64_t limit_ns) const = 0;
  // Says that it lives if it has said nothing for so long; when it will be time again.
  virtual std::int64_t ping(std::int64_t now_ns, std::int64_t period_ns) = 0;
  virtual void due_at(std::int64_t time_ns) = 0;

 protected:
  ~LinkCarrier() = default;
};

class ControlLinkOwner {
 public:
  virtual void on_frame(ControlLink& link, const trust::Frame& frame) = 0;
  // Once, after the last frame. The text says how: "its control connection closed". `closed`: the
  // other end closed this link and lives on; else the process or the way to it has ended.
  virtual void on_end(ControlLink& link, const Status& how, bool closed) = 0;
  // The peer has given no sign of life for `limit_ns`; the link still stands. `more` is what the
  // kernel knows of the way there.
  virtual void on_silence(ControlLink& link, std::int64_t limit_ns, const std::string& more) = 0;

 protected:
  ~ControlLinkOwner() = default;
};

class ControlLink {
 public:
  // What the other end is to this process. The owner sets it.
  enum class Role : std::uint8_t {
    guest,  // came through the listener; not yet, or not in the tree, a neighbour
    root,   // this process's way to the root while the ranks gather
    parent,
    child,
    peer,     // opened after somebody had left: in place of a parent, or for messages
    leaving,  // its duty is over; it ends when its last bytes are sent
  };
  static constexpr std::uint32_t unknown = UINT32_MAX;

  // Of an open link, by its trunk.
  ControlLink(LinkCarrier& trunk, std::uint64_t number) : trunk_(&trunk), number_(number) {}
  ~ControlLink() { close(); }
  ControlLink(const ControlLink&) = delete;
  ControlLink& operator=(const ControlLink&) = delete;
  // At once, before anything is heard.
  void belong_to(ControlLinkOwner& owner, Role first_role);

  bool is_open() const { return trunk_ != nullptr; }
  // Queues and sends what the socket takes at once.
  void send(Kind kind, std::span<const std::uint8_t> body);
  bool flushed() const;
  // Hears and says nothing more; the peer is told, the owner is not.
  void close();

  // Pings if it is time, reports a silence that is too long, and says when to look again.
  std::int64_t tick(std::int64_t now_ns);
  // From now on frames and the end wait for `release`, which hands them to the owner in order.
  void hold() { held_ = true; }
  void release();
  // 0: pings no more and judges no silence.
  void set_liveness(std::int64_t limit_ns);

  Role role = Role::guest;
  std::uint32_t process = unknown;  // at first the root's slot, then the place in the roster
  bool welcome = true;              // of one that this process opened: the other end has taken it
  std::optional<HelloMessage> early_hello;  // it came before this process could place it

 private:
  friend class Trunk;
  void hear(trust::Frame& frame);
  void end(const Status& how, bool closed);
  void cut() { trunk_ = nullptr; }
  struct LinkEnd {
    Status how;
    bool closed = false;
  };

  LinkCarrier* trunk_;  // null: it has ended
  const std::uint64_t number_;
  ControlLinkOwner* owner_ = nullptr;
  std::int64_t limit_ns_ = 0;  // 0: silence is not judged
  bool held_ = false;
  std::deque<trust::Frame> waiting_;
  std::optional<LinkEnd> end_;  // that waits
};

}  // namespace gyre::control
