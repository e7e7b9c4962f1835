// Trunk: the secure connection with one other process. It carries the links of all communicators
// that the two processes share. The control thread watches its frames, its silence and its end. On
// one host the kernel reports the process's death even if another process still holds its socket.
//
//   greeting   the first frame of each end: which process it is. A claim.
//   opening    a link is asked for. Both ends prove, on this very connection, that they know the
//              communicator's key. It need not be the key with which the connection began.
#pragma once

#include "lib/base/clock.h"
#include "lib/base/path_watch.h"
#include "lib/control/control_link.h"
#include "lib/control/control_thread.h"
#include "lib/control/messages.h"
#include "lib/control/peer_processes.h"
#include "lib/trust/secure_session.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gyre::control {

class Trunk;

class TrunkOwner {
 public:
  // The peer has said who it is; links that were asked for before wait for `ask`, or are taken
  // away.
  virtual void on_greeting(Trunk& trunk) = 0;
  // Null: no communicator of this process has that key, or nobody may come in any more.
  virtual std::shared_ptr<const trust::SessionKey> find_key(const std::string& identity) = 0;
  // The peer has opened a link to that key's communicator.
  virtual void on_link(const std::string& identity, std::unique_ptr<ControlLink> link) = 0;
  // It carries nothing any more. Once.
  virtual void on_end(Trunk& trunk) = 0;

 protected:
  ~TrunkOwner() = default;
};

class Trunk final : public LinkCarrier {
 public:
  using OnLink = std::function<void(Result<std::unique_ptr<ControlLink>>)>;
  // A link that somebody here waits for.
  struct PendingLink {
    std::shared_ptr<const trust::SessionKey> key;
    OnLink on_link;
  };

  // `session` is established. A separate trunk is for those who do not trust the one that there is.
  Trunk(ControlThread& thread, TrunkOwner& owner, std::unique_ptr<trust::SecureSession> session,
        trust::SessionRole role, bool separate);
  ~Trunk();
  Trunk(const Trunk&) = delete;
  Trunk& operator=(const Trunk&) = delete;
  Status open(PeerProcesses& processes, const trust::ProcessIdentity& self);

  const std::optional<trust::ProcessIdentity>& peer() const { return peer_; }
  bool is_separate() const { return separate_; }
  // Asks now, or once the peer has greeted.
  void open_link(PendingLink opening);
  // Those that were not asked for yet: to be opened elsewhere.
  std::vector<PendingLink> take_waiting() { return std::exchange(waiting_, {}); }
  void ask_waiting();

  void send(std::uint64_t link, Kind kind, std::span<const std::uint8_t> body) override;
  void forget(std::uint64_t link) override;
  bool flushed() const override { return session_->flushed(); }
  std::int64_t heard_ns() const override { return heard_ns_; }
  std::int64_t grace_ns() const override { return is_local_ ? 0 : 500 * ns_per_ms; }
  bool loses_what_is_said(std::int64_t now_ns, std::int64_t limit_ns) override;
  std::int64_t next_look_ns(std::int64_t now_ns) const override;
  std::string silence_text(std::int64_t limit_ns) const override;
  std::int64_t ping(std::int64_t now_ns, std::int64_t period_ns) override;
  void due_at(std::int64_t time_ns) override { thread_.due_at(time_ns); }

  // Before the links' own.
  std::int64_t tick(std::int64_t now_ns, std::int64_t overslept_ns);

 private:
  void transmit(Kind kind, std::span<const std::uint8_t> body);
  std::uint32_t wished_events() const;
  void on_socket();
  void on_peer_exit();
  void read_all();
  void on_frame(trust::Frame& frame);
  bool on_own_frame(Kind kind, std::span<const std::uint8_t> body);
  bool on_greeting(std::span<const std::uint8_t> body);
  bool on_open(std::span<const std::uint8_t> body);
  bool on_opened(std::span<const std::uint8_t> body);
  bool on_refused(std::span<const std::uint8_t> body);
  bool on_closed(std::span<const std::uint8_t> body);
  void ask(PendingLink opening);
  std::unique_ptr<ControlLink> make_link(std::uint64_t number);
  Result<trust::KeyProof> proof(const trust::SessionKey& key, trust::Prover who,
                                std::uint64_t number) const;
  std::optional<trust::KeyProof> answer_to(const OpenMessage& message) const;
  bool is_idle() const;
  void rest();
  void end(const Status& how);

  ControlThread& thread_;
  TrunkOwner& owner_;
  const std::unique_ptr<trust::SecureSession> session_;
  const trust::SessionRole role_;
  const bool separate_;
  const bool is_local_;
  trust::ChannelBinding binding_{};
  ControlThread::Watch watch_;
  PeerProcesses::Watch process_watch_;
  bool looked_ = false;  // at the socket
  bool ended_ = false;
  std::optional<trust::ProcessIdentity> peer_;
  std::map<std::uint64_t, ControlLink*> links_;
  std::vector<PendingLink> waiting_;            // for the greeting
  std::map<std::uint64_t, PendingLink> asked_;  // by the number that the link will have
  std::uint64_t next_link_;                     // of ours
  std::uint64_t peer_link_ = 0;                 // the peer's last
  std::int64_t heard_ns_ = 0, said_ns_ = 0;
  std::int64_t idle_ns_ = 0;  // since when nothing needs it
  PathWatch path_watch_;
};

}  // namespace gyre::control
