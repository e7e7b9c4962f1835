// Job: one unique id as this process sees it: which of its ranks live here, which processes are its
// neighbours, and its state. On the control thread only.
//
// The ranks gather: every process opens a link to the root, the process that made the id, and says
// who it is. When all have come, they link up as a tree (tree.h). The root's children keep their
// link and get the roster on it. Every other process gets its place and its parent's listener from
// the root. It opens a link to the parent, closes the one to the root, and gets the roster from the
// parent. So no process sends the roster more than eight times. When all links stand, the root says
// go, and everybody has joined. Messages, failures and leaves travel over the tree. When all ranks
// of a process have left, its children get another parent (departures.h). A process that has
// messages for a reader behind it opens its own link to that reader. A process that has left may
// end when another one has said that it heard of it (job_leaving.cc).
#pragma once

#include "lib/base/settings.h"
#include "lib/control/control_dialer.h"
#include "lib/control/control_link.h"
#include "lib/control/control_thread.h"
#include "lib/control/departures.h"
#include "lib/control/join_roster.h"
#include "lib/control/local_member.h"
#include "lib/control/messages.h"
#include "lib/control/post.h"

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

namespace gyre::control {

// What all jobs of a process share.
struct JobServices {
  ControlThread& thread;
  Trunks& trunks;
  const trust::ProcessIdentity& self;
};

class Job final : public ControlLinkOwner, public MemberOwner {
 public:
  // `root`: where the root is; nowhere else: this process is the root.
  Job(const JobServices& services, std::shared_ptr<const trust::SessionKey> key,
      std::optional<Destination> root);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  bool is_root() const { return is_root_; }
  bool failed() const { return !failure_.ok(); }
  // A root that no rank of this process has joined.
  bool is_untouched() const {
    return is_root_ && !failed() && phase_ == Phase::gathering && members_.empty();
  }
  // Null once nobody else may come in.
  const std::shared_ptr<const trust::SessionKey>& key() const { return key_; }
  // Null while the ranks gather.
  const Roster* roster() const { return group_ != nullptr ? &group_->roster : nullptr; }
  // How many ranks are still to come: for the listener.
  std::size_t expected_guests() const;

  void enlist(std::shared_ptr<LocalMember> member, int size, MessageBytes note,
              const Settings& settings);
  void admit(std::unique_ptr<ControlLink> link);
  void send_rank_message(int from, int to, std::uint64_t key,
                         const MessageBytes& rank_message) override;
  void abort(int rank, Status why) override;
  void leave(const LocalMember& member, std::function<void()> on_heard) override;

  // Something happened to this process, or ran out in it.
  void give_up(const Status& why);
  // The same, told to the ranks here alone: that needs no memory.
  void give_up_here(const Status& why) noexcept;

  std::int64_t tick(std::int64_t now_ns, std::int64_t overslept_ns);
  // Nobody here needs it any more. A root that failed before its ranks were together stays, to tell
  // those who come late.
  bool finished() const;
  bool is_tombstone() const { return is_root_ && failed() && members_.empty(); }
  std::int64_t failed_ns() const { return failed_ns_; }
  // It failed before it could reach the root, and goes on trying, so that the others hear of it.
  bool seeks_root() const { return failed() && dialer_ != nullptr; }
  // The same, and nobody here is in it any more: who joins now begins anew.
  bool is_spent() const { return seeks_root() && members_.empty(); }
  // A root whose job failed while ranks were still to come: they do not know why yet.
  bool has_unreported_failure() const;
  // The process ends: whoever is still in it dies with it.
  void close();
  bool flushed() const;

 private:
  enum class Phase { gathering, linking, joined };

  void fail(const Status& cause, const ControlLink* told_by = nullptr);
  void fail_and_tell(const Status& cause, const Status& told, const ControlLink* told_by);
  void end_as_root();
  void fail_process(std::uint32_t process, std::string_view what);
  void fail_as_seen_here(const Status& cause);
  bool is_known(std::uint32_t process) const;
  Status blame_process(std::uint32_t process, std::string_view what) const;
  std::vector<int> ranks_of(std::uint32_t process) const;
  std::vector<int> ranks_here() const;
  const trust::ProcessIdentity& identity_of(std::uint32_t process) const;

  // Gathering, job_gathering.cc.
  void on_join(ControlLink& link, const trust::Frame& frame);
  void tell_late_rank(ControlLink& link, const trust::Frame& frame);
  Status note_join(ControlLink& link, JoinMessage message);
  void enter(std::uint32_t slot, int size, int rank, MessageBytes note);
  void complete_roster();
  void tell_places(const RosterMessage& message);
  bool brings_roster(const ControlLink& link) const;
  void on_roster(ControlLink& link, const trust::Frame& frame);
  Status take_roster(RosterMessage message);
  // Dials the root, later the parent; `take` takes the link.
  void dial(const Destination& destination, void (Job::*take)(std::unique_ptr<ControlLink> link));
  void root_reached(std::unique_ptr<ControlLink> link);
  bool dials_root_again(const ControlLink& link, const Status& how, bool closed);
  void check_root();
  std::int64_t check_unheard_failure(std::int64_t now_ns);
  void set_limits(std::int64_t init_until_ns, std::int64_t liveness_ns);
  std::int64_t check_silence(std::int64_t now_ns);
  std::int64_t check_deadline(std::int64_t now_ns);
  Status lateness() const;
  Status blame_silent_above(const std::string& limit) const;
  bool knows_who_is_late() const;

  // The tree, job_tree.cc.
  using Processes = std::vector<std::uint32_t>;  // numbers in the roster
  Processes children() const;
  Processes unlinked() const;
  Processes late_neighbours() const;
  void begin_linking();
  void on_place(ControlLink& link, const trust::Frame& frame);
  bool is_at_its_place(const Roster& roster) const;
  void dial_parent();
  void parent_reached(std::unique_ptr<ControlLink> link);
  std::vector<ControlLink*> early_guests() const;
  bool is_child(const HelloMessage& hello) const;
  void place_child(ControlLink& link, const HelloMessage& hello);
  void on_hello(ControlLink& link, const trust::Frame& frame);
  void let_in(ControlLink& early_guest);
  void on_welcome(ControlLink& link, const trust::Frame& frame);
  void on_ready(ControlLink& link);
  void check_ready();
  void go();
  void on_go(ControlLink& link);
  void on_moved(ControlLink& link);
  ControlLink* neighbour(std::uint32_t process) const;
  bool is_neighbour(const ControlLink& link) const;

  // Leaving, job_leaving.cc.
  void leave_as_root();
  void on_leave(ControlLink& link, const trust::Frame& frame);
  bool may_be_told(std::uint32_t rank) const;
  void note_left(std::uint32_t rank, const ControlLink* told_by);
  void acknowledge_farewell(ControlLink& link);
  void on_farewell_heard(const ControlLink& link);
  bool says_farewell() const;
  std::int64_t check_farewell(std::int64_t now_ns);
  std::int64_t seek_listener(std::int64_t now_ns);

  // Messages, job_messages.cc.
  void on_rank_message(ControlLink& link, const trust::Frame& frame);
  void on_ack(ControlLink& link, const trust::Frame& frame);
  void take_rank_message(std::uint32_t source, const RankMessageHead& head,
                         std::span<const std::uint8_t> text);
  void deliver(const RankMessageHead& head, MessageBytes text);
  bool speaks_for(const ControlLink& link, std::uint32_t process) const;
  ControlLink* way_to(std::uint32_t process) const;
  void send_unacknowledged(std::uint32_t process);

  // The tree without those who are gone, job_repair.cc.
  void on_gone(std::uint32_t process);
  void expect_successors(std::uint32_t process);
  std::int64_t repair_tree(std::int64_t now_ns, std::int64_t overslept_ns);
  std::int64_t seek_parent(std::int64_t now_ns);
  std::optional<std::uint32_t> next_candidate() const;
  std::int64_t check_wanted_links(std::int64_t now_ns);
  std::int64_t check_successors(std::int64_t now_ns);
  std::int64_t close_links_to_departed(std::int64_t now_ns);
  bool has_parent() const;
  bool must_pass_failure_on() const;
  void reach(std::uint32_t process);
  std::unique_ptr<ControlDialer> dial(std::uint32_t process);
  void redial(std::uint32_t process);
  void reached(std::uint32_t process, std::unique_ptr<ControlLink> link);
  void meet_peer(ControlLink& link, const HelloMessage& hello);
  void on_peer_welcome(ControlLink& link, const HelloMessage& welcome);
  void on_departed(ControlLink& link, const trust::Frame& frame);
  void tell_state(ControlLink& link);
  bool answers_successors() const;
  bool tells_late_seekers() const;

  // Links, job.cc.
  void on_frame(ControlLink& link, const trust::Frame& frame) override;
  void on_end(ControlLink& link, const Status& how, bool closed) override;
  void on_silence(ControlLink& link, std::int64_t limit_ns, const std::string& more) override;
  bool is_needed(const ControlLink& link) const;
  void protocol_error(const ControlLink& link, Kind kind);
  ControlLink& add_link(std::unique_ptr<ControlLink> link, ControlLink::Role role);
  void drop(ControlLink& link);
  void send_neighbours(Kind kind, std::span<const std::uint8_t> body, const ControlLink* except);

  const JobServices services_;
  std::shared_ptr<const trust::SessionKey> key_;
  const bool is_root_;
  Phase phase_ = Phase::gathering;
  Status failure_;                  // as the ranks of this process learn it
  std::vector<std::uint8_t> told_;  // the same as the others learn it
  bool ended_ = false;

  std::map<int, std::shared_ptr<LocalMember>> members_;  // of this process, until they leave
  std::vector<std::shared_ptr<LocalMember>> doubles_;    // joined as a rank that is here already
  std::vector<std::unique_ptr<ControlLink>> links_;
  std::unique_ptr<ControlDialer> dialer_;  // to the root, later to the parent
  std::optional<Destination> root_;        // none at the root
  Status root_broke_;                      // how the first connection to it ended, if it did

  int size_ = 0;  // 0: not known yet
  std::int64_t init_limit_ns_ = 0;
  std::int64_t init_until_ns_ = never_ns;
  bool deadline_passed_ = false;
  std::int64_t liveness_ns_ = 0;

  JoinRoster join_roster_;                        // root
  std::set<int> told_late_;                       // root: ranks that came after the failure
  std::vector<std::vector<std::uint8_t>> joins_;  // others: what the root is told, once reached
  RosterAssembly intake_;
  std::optional<PlaceMessage> place_;  // of who gets the roster from a parent other than the root
  std::vector<std::vector<std::uint8_t>> roster_parts_;  // for the children, until all have joined

  std::shared_ptr<JoinedGroup> group_;
  std::uint32_t index_ = 0;  // this process's number in the roster
  std::set<std::uint32_t> ready_children_;
  bool parent_stands_ = false;
  bool ready_sent_ = false;
  Departures departures_;
  std::set<std::uint32_t> met_;  // processes that are or were neighbours
  Post post_;
  // A process to which a link is wanted that the tree has not.
  struct WantedLink {
    std::unique_ptr<ControlDialer> dial;
    std::int64_t since_ns = 0;
  };
  std::map<std::uint32_t, WantedLink> wanted_links_;
  std::map<std::uint32_t, std::int64_t> successors_;  // that have to link up here, and since when
  std::int64_t gone_ns_ = 0;                          // when somebody was found gone last; 0: never
  std::int64_t failed_ns_ = 0;
  bool farewell_heard_ = false;  // somebody knows that this process is gone, or nobody is there
  std::int64_t farewell_ns_ = 0, listener_ns_ = 0;  // when it was said, when the last was dialed
  std::set<std::uint32_t> unreachable_;             // that this process cannot tell
  std::vector<std::function<void()>> wait_for_farewell_;
};

}  // namespace gyre::control
