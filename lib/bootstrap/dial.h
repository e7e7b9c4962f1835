// Dial: keeps trying to reach one process until a session with it stands: each way in turn, with
// growing pauses. The other process may not be there yet, or be besieged by strangers.
#pragma once

#include "lib/bootstrap/control_thread.h"
#include "lib/trust/address.h"
#include "lib/trust/secure_session.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gyre::bootstrap {

class Dial {
 public:
  using OnSession = std::function<void(std::unique_ptr<trust::SecureSession>)>;

  Dial(ControlThread& thread, const trust::Tls& tls, std::shared_ptr<const trust::SessionKey> key,
       std::vector<trust::SocketAddress> ways, OnSession on_session);

  // Tries if it is time; says when to call again.
  std::int64_t tick(std::int64_t now_ns);
  // "@gyre-12ab: connecting to ...: ECONNREFUSED"; empty before the first attempt has failed.
  const std::string& problem() const { return problem_; }
  std::string target() const;

 private:
  void attempt(std::int64_t now_ns);
  Status begin();
  void on_socket();
  void give_up(const Status& why, std::int64_t now_ns);

  ControlThread& thread_;
  const trust::Tls& tls_;
  const std::shared_ptr<const trust::SessionKey> key_;
  const std::vector<trust::SocketAddress> ways_;
  const OnSession on_session_;
  std::unique_ptr<trust::SecureSession> session_;  // the attempt under way
  ControlThread::Watch watch_;
  bool connecting_ = false;
  std::size_t attempts_ = 0;
  std::int64_t next_ns_ = 0;  // the next attempt, or the end of this one
  std::int64_t pause_ns_;
  std::string problem_;
};

}  // namespace gyre::bootstrap
