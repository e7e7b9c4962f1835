// ControlDialer: keeps trying to get a link to one process: on the trunk to it, or by a new
// connection, each address in turn, with growing pauses. The other process may not have started
// yet, or may be flooded by unauthenticated clients.
#pragma once

#include "lib/control/trunks.h"
#include "lib/trust/address.h"
#include "lib/trust/secure_session.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gyre::control {

// A process, by its listener, and where that listener is, the nearest way first.
struct Destination {
  trust::Token host{};
  std::string listener_name;
  std::vector<trust::SocketAddress> ways{};
  // It has taken part in a communicator, or in this one: where its host gives no answer at all, the
  // way there is cut.
  bool is_up = false;

  // As `self` can reach it.
  static Destination of(const trust::ProcessIdentity& process, const trust::ProcessIdentity& self);
};

class ControlDialer {
 public:
  using OnLink = std::function<void(std::unique_ptr<ControlLink>)>;

  ControlDialer(Trunks& trunks, std::shared_ptr<const trust::SessionKey> key,
                Destination destination, OnLink on_link);

  // Tries if it is time; says when to call again.
  std::int64_t tick(std::int64_t now_ns);
  // "@gyre-12ab: connecting to ...: ECONNREFUSED"; empty before the first attempt has failed.
  const std::string& problem() const { return problem_; }
  // The last attempt failed in this process, as it lacks something.
  bool failed_here() const { return failed_here_; }
  // Each way was tried in vain.
  bool has_tried_all() const { return attempts_ > 0 && attempts_ >= destination_.ways.size(); }
  // How long nothing has come back from a process that is up; 0 if something has.
  std::int64_t silent_ns(std::int64_t now_ns) const {
    return silent_since_ns_ == 0 ? 0 : now_ns - silent_since_ns_;
  }
  // This process stood still.
  void forgive(std::int64_t overslept_ns) {
    if (silent_since_ns_ != 0) silent_since_ns_ += overslept_ns;
  }
  std::string target() const;

 private:
  const trust::SocketAddress& way() const {
    return destination_.ways[attempts_ % destination_.ways.size()];
  }
  void attempt(std::int64_t now_ns);
  Status connect();
  void on_socket();
  void ask(Trunk& trunk);
  void answered(Result<std::unique_ptr<ControlLink>> link);
  void take_refusal(const Status& why);
  void give_up(const Status& why, std::int64_t now_ns);

  Trunks& trunks_;
  const std::shared_ptr<const trust::SessionKey> key_;
  const Destination destination_;
  const OnLink on_link_;
  // The attempt under way: a session that does not stand yet, then a trunk that was asked.
  std::unique_ptr<trust::SecureSession> session_;
  ControlThread::Watch watch_;
  bool connecting_ = false;
  std::shared_ptr<const char> asked_;
  // A trunk that leads there gave no link: what its other end says of itself may be a lie.
  bool distrusts_ = false;
  std::size_t attempts_ = 0;
  std::int64_t next_ns_ = 0;  // the next attempt, or the end of this one
  std::int64_t pause_ns_;
  std::int64_t silent_since_ns_ = 0;  // during attempts: the last sign of life
  std::string problem_;
  bool failed_here_ = false;
};

}  // namespace gyre::control
