// ControlListener: where other processes connect: one abstract AF_UNIX name (same user only), and,
// while it is needed, a TCP port of this host and one on an interface that other hosts reach. The
// first bytes decide. A ticket goes to the TicketBook. A ClientHello that names a key known here
// becomes a session. Everything else is closed without an answer.
//
//   client   an end that has not shown a ticket or proved a key yet. It costs a descriptor for two
//            seconds at most. None of its bytes are kept but a running handshake's, and all
//            clients share one log line
#pragma once

#include "lib/base/log.h"
#include "lib/base/settings.h"
#include "lib/control/control_thread.h"
#include "lib/control/membership.h"
#include "lib/trust/interfaces.h"
#include "lib/trust/secure_session.h"
#include "lib/trust/tickets.h"

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::control {

class ControlListener {
 public:
  // An identity that somebody names. No key: nobody comes in with it; it may have been known, so
  // that whoever names it is late rather than an unauthenticated client.
  struct KeyLookup {
    std::shared_ptr<const trust::SessionKey> key;
    bool was_known = false;
  };
  using FindKey = std::function<KeyLookup(const std::string& identity)>;
  using OnSession = std::function<void(std::unique_ptr<trust::SecureSession> session)>;

  ControlListener(ControlThread& thread, const trust::Tls& tls, trust::TicketBook& tickets)
      : thread_(thread), tls_(tls), tickets_(tickets) {}

  // Any thread, before serve: opens the abstract name, and looks whether the settings wish for an
  // interface that there is.
  Status open(const Settings& settings);
  const std::string& name() const { return name_; }

  // The control thread from here.
  Status serve(FindKey find_key, OnSession on_session);
  // Where these reach us by TCP, best first: it listens there from now on. Empty: at no interface.
  // Other hosts are offered as many interfaces as a connection has sockets, if so many are named.
  Result<std::vector<std::string>> listen_for(Audience audience, const Settings& settings);
  // No process of another host is expected any more.
  void close_to_other_hosts();
  // A further abstract name that leads here, until it is removed. It may be there already.
  Status add_name(const std::string& name);
  void remove_name(const std::string& name);
  // Nobody comes in any more: for those who connect, the process has ended.
  void close() { sockets_.clear(); }
  // How many ranks may come at once: unauthenticated clients beyond twice as many and 64 push out
  // the oldest.
  void expect(std::size_t ranks) { max_clients_ = 2 * ranks + 64; }
  std::int64_t tick(std::int64_t now_ns);
  // An error each time it could accept nobody for GYRE_LIVENESS_TIMEOUT.
  Status check_deaf();

 private:
  struct UnauthenticatedClient {
    int descriptor() const { return session != nullptr ? session->descriptor() : socket.get(); }

    FileDescriptor socket;  // until its handshake begins
    std::unique_ptr<trust::SecureSession> session;
    std::shared_ptr<const trust::SessionKey> key;
    ControlThread::Watch watch;
    std::int64_t until_ns = 0;
  };
  using ClientIterator = std::list<UnauthenticatedClient>::iterator;
  struct ListeningSocket {
    FileDescriptor socket;
    std::optional<Audience> by_tcp;  // none: an abstract name
    std::string address;             // by TCP; else the name that was added
    ControlThread::Watch watch;
  };

  Status keep(ListeningSocket socket);
  Status listen_at(const trust::Interface& interface, Audience audience);
  // How many of its sockets are closed.
  std::size_t close_for(Audience audience);
  Status watch_listener(ListeningSocket& listener);
  void accept_some(ListeningSocket& listener);
  bool make_room(std::string_view why);
  void pause();
  void let_in(FileDescriptor socket);
  void on_event(ClientIterator client);
  void look(ClientIterator client);
  void take_ticket(ClientIterator client);
  void begin_handshake(ClientIterator client, const std::string& identity);
  void continue_handshake(ClientIterator client);
  void turn_away(ClientIterator client, std::string_view why);
  void see_off(ClientIterator client, std::string_view why);
  void let_go(ClientIterator client);

  ControlThread& thread_;
  const trust::Tls& tls_;
  trust::TicketBook& tickets_;
  std::string name_;
  std::list<ListeningSocket> sockets_;
  std::list<UnauthenticatedClient> clients_;  // oldest first
  std::size_t max_clients_ = 2 * 64 + 64;
  // No descriptors are left: it accepts nothing until then, and has accepted nothing since.
  bool is_deaf_ = false;
  std::int64_t deaf_until_ns_ = 0;
  std::int64_t deaf_since_ns_ = 0;
  std::int64_t max_deaf_ns_ = 0;
  FindKey find_key_;
  OnSession on_session_;
  RateLimitedWarning warning_{60 * 1'000'000'000LL};
};

}  // namespace gyre::control
