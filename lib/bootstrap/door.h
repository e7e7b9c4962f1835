// Door: where other processes knock: one abstract AF_UNIX name (same host, same user) and one TCP
// port on one interface. The first bytes decide: a ticket goes to the TicketBook, a TLS hello with
// an identity that somebody here knows becomes a session, everything else is a stranger and is
// closed without an answer. A stranger costs a descriptor for two seconds at most, and one log line
// for all.
#pragma once

#include "lib/base/log.h"
#include "lib/base/settings.h"
#include "lib/bootstrap/control_thread.h"
#include "lib/trust/tickets.h"

#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <vector>

namespace gyre::bootstrap {

class Door {
 public:
  struct Guest {
    FileDescriptor socket;
    int pid = -1;  // same-host guests: the kernel's word
  };
  // Whether a ClientHello holds an identity that is known here.
  using Knows = std::function<bool(std::string_view hello)>;
  using OnGuest = std::function<void(Guest)>;

  Door(ControlThread& thread, trust::TicketBook& tickets) : thread_(thread), tickets_(tickets) {}
  ~Door();

  // Before the thread serves it: opens both listeners.
  Status open(const Settings& settings);
  void serve(Knows knows, OnGuest on_guest);
  // A further abstract name that leads here.
  Status add_name(const std::string& name);
  void tick(std::int64_t now_ns);

  const std::string& name() const { return name_; }
  const std::vector<std::string>& addresses() const { return addresses_; }

 private:
  struct Stranger {
    FileDescriptor socket;
    ControlThread::WatchId watch = 0;
    std::int64_t until_ns = 0;
    int pid = -1;
  };
  using Place = std::list<Stranger>::iterator;
  struct Listener {
    FileDescriptor socket;
    bool local = false;
    ControlThread::WatchId watch = 0;
  };

  void watch_listener(Listener& listener);
  void accept_all(Listener& listener);
  bool is_same_user(int socket, int& pid);
  void look(Place stranger);
  void turn_away(Place stranger, std::string_view why);

  ControlThread& thread_;
  trust::TicketBook& tickets_;
  std::string name_;
  std::vector<std::string> addresses_;
  std::list<Listener> listeners_;
  std::list<Stranger> strangers_;   // oldest first
  std::int64_t deaf_until_ns_ = 0;  // no descriptors left: accept nothing until then
  Knows knows_;
  OnGuest on_guest_;
  RateLimitedWarning warning_{10 * 1'000'000'000LL};
};

}  // namespace gyre::bootstrap
