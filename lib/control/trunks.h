// Trunks: this process's connections with others. There is one for each other process, however many
// communicators they share, or two if both dialed at once. On the control thread only.
#pragma once

#include "lib/control/control_thread.h"
#include "lib/control/peer_processes.h"
#include "lib/control/trunk.h"
#include "lib/trust/identity.h"
#include "lib/trust/secure_session.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gyre::control {

// What this process answers when another one opens a link.
class LinkTaker {
 public:
  // As for TrunkOwner.
  virtual std::shared_ptr<const trust::SessionKey> find_key(const std::string& identity) = 0;
  virtual void on_link(const std::string& identity, std::unique_ptr<ControlLink> link) = 0;

 protected:
  ~LinkTaker() = default;
};

class Trunks final : private TrunkOwner {
 public:
  // All outlive it.
  Trunks(ControlThread& thread, const trust::Tls& tls, const trust::ProcessIdentity& self,
         LinkTaker& taker);
  Trunks(const Trunks&) = delete;
  Trunks& operator=(const Trunks&) = delete;

  const trust::Tls& tls() const { return tls_; }
  ControlThread& thread() const { return thread_; }

  // Null if none leads to the process with that listener.
  Trunk* find(const trust::Token& host, const std::string& listener_name) const;
  // An established session becomes a trunk. Null: it could not be watched.
  Trunk* adopt(std::unique_ptr<trust::SecureSession> session, trust::SessionRole role,
               bool separate = false);
  // Before the links' own.
  std::int64_t tick(std::int64_t now_ns, std::int64_t overslept_ns);
  bool flushed() const;
  void clear() { trunks_.clear(); }

 private:
  void on_greeting(Trunk& trunk) override;
  std::shared_ptr<const trust::SessionKey> find_key(const std::string& identity) override {
    return taker_.find_key(identity);
  }
  void on_link(const std::string& identity, std::unique_ptr<ControlLink> link) override {
    taker_.on_link(identity, std::move(link));
  }
  void on_end(Trunk& trunk) override;

  ControlThread& thread_;
  const trust::Tls& tls_;
  const trust::ProcessIdentity& self_;
  LinkTaker& taker_;
  PeerProcesses processes_{thread_};
  std::vector<std::unique_ptr<Trunk>> trunks_;
};

}  // namespace gyre::control
