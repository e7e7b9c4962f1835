// Job: one unique id as this process sees it: which of its ranks live here, how the other processes
// are reached, and what became of it. The process that made the id is the root: everybody has a
// session with it, it gathers the roster, passes letters on and spreads failures. Control thread
// only.
#pragma once

#include "lib/base/settings.h"
#include "lib/bootstrap/control_thread.h"
#include "lib/bootstrap/door.h"
#include "lib/bootstrap/member.h"
#include "lib/trust/secure_session.h"
#include "lib/trust/unique_id.h"

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace gyre::bootstrap {

class Job {
 public:
  Job(ControlThread& thread, const trust::Tls& tls, const trust::ProcessIdentity& self,
      trust::UniqueId id, std::shared_ptr<const trust::SessionKey> key, bool is_root);
  ~Job();

  const std::string& identity() const { return key_->identity; }
  const std::shared_ptr<const trust::SessionKey>& key() const { return key_; }
  bool is_root() const { return is_root_; }

  void add_local(std::shared_ptr<Member> member, int size, Letter note, const Settings& settings);
  void add_guest(Door::Guest guest);  // root: a process whose hello named this job
  void send_letter(int from, int to, std::uint64_t key, Letter letter);
  void abort(int rank, Status why);
  void leave(int rank);
  void tick(std::int64_t now_ns);
  // Nobody here needs it any more, and it has said all it had to say.
  bool finished() const;
  // Bytes that are still to be sent (at the end of the process).
  bool has_unsent() const;

 private:
  // The other end of a session: for the root one of many, for the others the root.
  struct Peer {
    std::unique_ptr<trust::SecureSession> session;
    ControlThread::WatchId watch = 0;
    FileDescriptor pidfd;
    ControlThread::WatchId pid_watch = 0;
    std::set<int> ranks;  // those that live there
    trust::ProcessIdentity identity;
    std::int64_t heard_ns = 0;
    std::int64_t pinged_ns = 0;
    bool gone = false;
  };
  enum class Kind : std::uint8_t { join = 1, roster, letter, failure, leave, ping };

  bool failed() const { return !failure_.ok(); }
  void fail(const Status& why, const Peer* except = nullptr);
  void fail_for(const Peer& peer, std::string_view what);
  std::string describe(const Peer& peer) const;
  std::vector<int> active_ranks(const Peer& peer) const;

  void connect_root(std::int64_t now_ns);
  Status attach(Peer& peer, std::unique_ptr<trust::SecureSession> session, int pid);
  void on_event(Peer& peer);
  void on_gone(Peer& peer, std::string_view how);
  void send(Peer& peer, Kind kind, const std::vector<std::uint8_t>& body);
  void send_others(Kind kind, const std::vector<std::uint8_t>& body, const Peer* except);
  void update_watch(Peer& peer);

  Status take(Peer& peer, const trust::Frame& frame);
  Status take_join(Peer& peer, const trust::Frame& frame);
  Status take_roster(const trust::Frame& frame);
  Status take_letter(Peer& peer, const trust::Frame& frame);
  Status take_failure(Peer& peer, const trust::Frame& frame);
  Status take_leave(Peer& peer, const trust::Frame& frame);

  Status enter(int size, int rank, Letter note, std::uint32_t process);
  void complete_if_all_came();
  std::shared_ptr<Roster> decode_roster(const trust::Frame& frame) const;
  std::string missing_ranks() const;
  std::vector<int> missing() const;

  ControlThread& thread_;
  const trust::Tls& tls_;
  const trust::ProcessIdentity& self_;
  const trust::UniqueId id_;
  const std::shared_ptr<const trust::SessionKey> key_;
  const bool is_root_;

  int size_ = 0;
  std::int64_t liveness_ns_ = 0;
  std::int64_t init_limit_ns_ = 0;
  std::int64_t init_until_ns_ = 0;  // 0: nobody has joined yet, or all have
  std::map<int, std::weak_ptr<Member>> locals_;
  std::vector<std::vector<std::uint8_t>> waiting_joins_;  // until the root is reached
  std::set<int> left_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::int64_t retry_ns_ = 0;
  std::size_t attempt_ = 0;
  std::string last_attempt_;
  // Root: what has come in so far.
  std::map<int, std::pair<std::uint32_t, Letter>> entered_;  // rank -> process, note
  std::vector<trust::ProcessIdentity> processes_;
  std::shared_ptr<const Roster> roster_;
  Status failure_;
};

}  // namespace gyre::bootstrap
