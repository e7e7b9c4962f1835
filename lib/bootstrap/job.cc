#include "lib/bootstrap/job.h"

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/trust/address.h"
#include "lib/trust/wire.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gyre::bootstrap {

using trust::Reader;
using trust::Writer;

Job::Job(ControlThread& thread, const trust::Tls& tls, const trust::ProcessIdentity& self,
         trust::UniqueId id, std::shared_ptr<const trust::SessionKey> key, bool is_root)
    : thread_(thread),
      tls_(tls),
      self_(self),
      id_(std::move(id)),
      key_(std::move(key)),
      is_root_(is_root) {
  if (is_root_) processes_.push_back(self_);
}

Job::~Job() {
  for (const auto& peer : peers_) {
    thread_.unwatch(peer->watch);
    thread_.unwatch(peer->pid_watch);
  }
}

// ------------------------------------------------------------------------------ joining

void Job::add_local(std::shared_ptr<Member> member, int size, Letter note,
                    const Settings& settings) {
  const std::int64_t now = SystemClock::read();
  liveness_ns_ = settings.liveness_timeout_s * ns_per_s;
  if (init_until_ns_ == 0 && roster_ == nullptr) {
    init_limit_ns_ = settings.init_timeout_s * ns_per_s;
    init_until_ns_ = now + init_limit_ns_;
  }
  const int rank = member->rank();
  if (failed()) return member->fail(failure_);
  if (const auto known = locals_.find(rank); known != locals_.end()) {
    member->fail(
        invalid_argument(fmt::format("rank {} has joined already, from this process", rank)));
    return;
  }
  locals_[rank] = member;
  if (is_root_) {
    if (Status status = enter(size, rank, std::move(note), 0); !status.ok()) return fail(status);
    return complete_if_all_came();
  }
  if (size_ == 0) size_ = size;
  Writer join;
  join.put(static_cast<std::int32_t>(size));
  join.put(static_cast<std::int32_t>(rank));
  join.put_block(note);
  join.put_block(trust::encode(self_));
  waiting_joins_.push_back(join.take());
  if (peers_.empty()) connect_root(now);
  if (peers_.empty()) return;
  for (const auto& body : std::exchange(waiting_joins_, {})) send(*peers_[0], Kind::join, body);
}

// Root: notes that a rank has come; refuses what does not fit those who came before.
Status Job::enter(int size, int rank, Letter note, std::uint32_t process) {
  if (size_ == 0) size_ = size;
  if (size != size_)
    return Status(Code::InvalidArgument,
                  fmt::format("rank {} joins a communicator of {} ranks, the "
                              "others one of {}",
                              rank, size, size_))
        .blame({rank});
  if (rank < 0 || rank >= size_)
    return Status(Code::InvalidArgument, fmt::format("rank {} is not below {}", rank, size_));
  if (!entered_.try_emplace(rank, process, std::move(note)).second)
    return Status(Code::InvalidArgument,
                  fmt::format("two processes join as rank {}: process {} and process {} of host {}",
                              rank, processes_[entered_[rank].first].pid, processes_[process].pid,
                              processes_[process].host_name))
        .blame({rank});
  return {};
}

void Job::complete_if_all_came() {
  if (roster_ != nullptr || failed() || size_ == 0 || static_cast<int>(entered_.size()) < size_)
    return;
  auto roster = std::make_shared<Roster>();
  roster->processes = processes_;
  Writer writer;
  writer.put(static_cast<std::uint32_t>(processes_.size()));
  for (const auto& process : processes_) writer.put_block(trust::encode(process));
  writer.put(static_cast<std::uint32_t>(size_));
  for (const auto& [rank, entry] : entered_) {
    roster->process_of_rank.push_back(entry.first);
    roster->notes.push_back(entry.second);
    writer.put(entry.first);
    writer.put_block(entry.second);
  }
  roster_ = std::move(roster);
  init_until_ns_ = 0;
  send_others(Kind::roster, writer.take(), nullptr);
  for (const auto& [rank, weak] : locals_)
    if (const auto member = weak.lock()) member->join(roster_);
}

std::shared_ptr<Roster> Job::decode_roster(const trust::Frame& frame) const {
  auto roster = std::make_shared<Roster>();
  Reader reader(frame.body);
  std::uint32_t processes = 0, ranks = 0;
  if (!reader.get(processes) || processes == 0 || processes > static_cast<std::uint32_t>(size_) + 1)
    return nullptr;
  for (std::uint32_t i = 0; i < processes; ++i) {
    std::vector<std::uint8_t> block;
    if (!reader.get_block(block, 1 << 14)) return nullptr;
    auto identity = trust::decode_identity(block);
    if (!identity.ok()) return nullptr;
    roster->processes.push_back(std::move(*identity));
  }
  if (!reader.get(ranks) || ranks != static_cast<std::uint32_t>(size_)) return nullptr;
  for (std::uint32_t i = 0; i < ranks; ++i) {
    std::uint32_t process = 0;
    Letter note;
    if (!reader.get(process) || process >= processes || !reader.get_block(note, 1 << 14))
      return nullptr;
    roster->process_of_rank.push_back(process);
    roster->notes.push_back(std::move(note));
  }
  return reader.at_end() ? roster : nullptr;
}

std::vector<int> Job::missing() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size_; ++rank)
    if (!entered_.contains(rank)) ranks.push_back(rank);
  return ranks;
}

std::string Job::missing_ranks() const {
  std::vector<int> ranks = missing();
  const std::size_t count = ranks.size();
  if (count > 20) ranks.resize(20);
  return fmt::format("{} {}{}", count == 1 ? "rank" : "ranks", fmt::join(ranks, ", "),
                     count > 20 ? fmt::format(" and {} more", count - 20) : "");
}

// ------------------------------------------------------------------------------ sessions

// One attempt: the abstract name on the root's host, else its address. Tried again at each tick.
void Job::connect_root(std::int64_t now_ns) {
  retry_ns_ = now_ns + 100 * ns_per_ms;
  const bool local = id_.root_host == self_.host && !id_.root_door.empty() &&
                     (attempt_ % 2 == 0 || id_.root_address.empty());
  ++attempt_;
  auto address =
      local ? trust::abstract_address(id_.root_door) : trust::parse_address(id_.root_address);
  bool pending = false;
  auto socket = address.ok() ? trust::begin_connect(*address, &pending)
                             : Result<FileDescriptor>(address.status());
  auto session = socket.ok() ? trust::SecureSession::start(tls_, std::move(*socket),
                                                           trust::SessionRole::client, key_)
                             : Result<std::unique_ptr<trust::SecureSession>>(socket.status());
  if (!session.ok()) {
    last_attempt_ = session.status().message();
    return;
  }
  auto peer = std::make_unique<Peer>();
  peers_.push_back(std::move(peer));
  int pid = -1;
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (local &&
      getsockopt((*session)->descriptor(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0)
    pid = credentials.pid;
  if (Status status = attach(*peers_.back(), std::move(*session), pid); !status.ok()) {
    last_attempt_ = status.message();
    peers_.clear();
    return;
  }
  on_event(*peers_.back());
}

void Job::add_guest(Door::Guest guest) {
  auto session =
      trust::SecureSession::start(tls_, std::move(guest.socket), trust::SessionRole::server, key_);
  if (!session.ok()) return log_warn("a session could not be made: {}", session.status().message());
  peers_.push_back(std::make_unique<Peer>());
  Peer& peer = *peers_.back();
  if (Status status = attach(peer, std::move(*session), guest.pid); !status.ok()) {
    log_warn("a session could not be made: {}", status.message());
    peers_.pop_back();
    return;
  }
  on_event(peer);
}

Status Job::attach(Peer& peer, std::unique_ptr<trust::SecureSession> session, int pid) {
  peer.session = std::move(session);
  peer.heard_ns = SystemClock::read();
  GYRE_ASSIGN(peer.watch, thread_.watch(peer.session->descriptor(), EPOLLIN | EPOLLOUT,
                                        [this, &peer](std::uint32_t) { on_event(peer); }));
  if (pid <= 0) return {};
  // The kernel tells of its death even where somebody else still holds its socket.
  peer.pidfd = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!peer.pidfd.has_value()) return {};
  auto watch = thread_.watch(peer.pidfd.get(), EPOLLIN, [this, &peer](std::uint32_t) {
    on_event(peer);  // first what it said before it died
    on_gone(peer, "its process ended");
  });
  if (watch.ok()) peer.pid_watch = *watch;
  return {};
}

void Job::update_watch(Peer& peer) {
  const std::uint32_t events = peer.session->wants_write() ? EPOLLIN | EPOLLOUT : EPOLLIN;
  thread_.change(peer.watch, events);
}

void Job::on_event(Peer& peer) {
  if (peer.gone) return;
  const Status status = peer.session->advance();
  if (peer.session->heard()) peer.heard_ns = SystemClock::read();
  while (auto frame = peer.session->receive()) {
    if (Status taken = take(peer, *frame); !taken.ok()) return on_gone(peer, taken.message());
    if (peer.gone) return;
  }
  if (!status.ok()) return on_gone(peer, status.message());
  update_watch(peer);
}

std::vector<int> Job::active_ranks(const Peer& peer) const {
  std::vector<int> ranks;
  for (const int rank : peer.ranks)
    if (!left_.contains(rank)) ranks.push_back(rank);
  return ranks;
}

std::string Job::describe(const Peer& peer) const {
  const std::vector<int> ranks = active_ranks(peer);
  if (ranks.empty()) return "the process that made the id (as a rule rank 0's)";
  return fmt::format("{} {} (host {}, pid {})", ranks.size() == 1 ? "rank" : "ranks",
                     fmt::join(ranks, ", "), peer.identity.host_name, peer.identity.pid);
}

void Job::on_gone(Peer& peer, std::string_view how) {
  if (peer.gone) return;
  peer.gone = true;
  thread_.unwatch(peer.watch);
  thread_.unwatch(peer.pid_watch);
  const bool was_in = peer.session->established();
  peer.session.reset();
  if (!was_in) {
    last_attempt_ = how;
    if (is_root_) log_info("a guest did not prove that it knows the secret: {}", how);
    return;
  }
  if (failed()) return;
  const bool needed =
      is_root_ ? !active_ranks(peer).empty() : roster_ == nullptr || !active_ranks(peer).empty();
  if (needed) fail_for(peer, fmt::format("died: {}", how));
}

void Job::fail_for(const Peer& peer, std::string_view what) {
  std::vector<int> culprits = active_ranks(peer);
  if (culprits.empty()) culprits.push_back(0);
  fail(Status(Code::RemoteError, fmt::format("{} {}", describe(peer), what)).blame(culprits));
}

void Job::send(Peer& peer, Kind kind, const std::vector<std::uint8_t>& body) {
  if (peer.gone) return;
  // A broken session reports itself at its next event.
  (void)peer.session->send(static_cast<std::uint8_t>(kind), body);
  if (peer.session->established()) (void)peer.session->advance();
  update_watch(peer);
}

void Job::send_others(Kind kind, const std::vector<std::uint8_t>& body, const Peer* except) {
  for (const auto& peer : peers_)
    if (peer.get() != except) send(*peer, kind, body);
}

// ------------------------------------------------------------------------------ failure

// The first cause wins; it goes out before this process can do anything that looks like a failure.
void Job::fail(const Status& why, const Peer* except) {
  if (failed()) return;
  failure_ = why;
  init_until_ns_ = 0;
  Writer writer;
  writer.put(static_cast<std::uint8_t>(why.code()));
  writer.put_text(std::string(why.message()).substr(0, 2000));
  const auto& culprits = why.culprits();
  writer.put(static_cast<std::uint32_t>(std::min<std::size_t>(culprits.size(), 1000)));
  for (std::size_t i = 0; i < culprits.size() && i < 1000; ++i)
    writer.put(static_cast<std::int32_t>(culprits[i]));
  send_others(Kind::failure, writer.take(), except);
  for (const auto& [rank, weak] : locals_)
    if (const auto member = weak.lock()) member->fail(failure_);
}

void Job::abort(int rank, Status why) {
  if (why.culprits().empty()) why = std::move(why).blame({rank});
  // Others see a remote failure, whatever it was here.
  if (why.code() == Code::Aborted)
    why = Status(Code::RemoteError, std::string(why.message())).blame(why.culprits());
  fail(why);
}

void Job::leave(int rank) {
  if (!left_.insert(rank).second) return;
  locals_.erase(rank);
  Writer writer;
  writer.put(static_cast<std::int32_t>(rank));
  send_others(Kind::leave, writer.take(), nullptr);
}

bool Job::finished() const {
  if (!locals_.empty()) return false;
  if (!is_root_) return roster_ != nullptr || failed() || !left_.empty();
  // The root stays until everybody has left, so that the others can go on without its ranks.
  if (size_ == 0) return false;
  const bool all_left = static_cast<int>(left_.size()) == size_;
  const bool all_gone = std::ranges::all_of(peers_, [](const auto& peer) { return peer->gone; });
  return all_left || (failed() && all_gone) || (roster_ != nullptr && all_gone);
}

bool Job::has_unsent() const {
  return std::ranges::any_of(peers_, [](const auto& peer) {
    return !peer->gone && (!peer->session->flushed() || !peer->session->established());
  });
}

void Job::tick(std::int64_t now_ns) {
  if (!is_root_ && !failed() && roster_ == nullptr && !locals_.empty()) {
    if (!peers_.empty() && peers_[0]->gone) {
      // What was queued for the lost session has to be said again.
      peers_.clear();
      fail(Status(
               Code::RemoteError,
               fmt::format("the process that made the id (as a rule rank 0's) refused or lost the "
                           "connection: {}",
                           last_attempt_))
               .blame({0}));
      return;
    }
    if (peers_.empty() && now_ns >= retry_ns_) {
      connect_root(now_ns);
      if (!peers_.empty())
        for (const auto& body : std::exchange(waiting_joins_, {}))
          send(*peers_[0], Kind::join, body);
    }
  }
  if (init_until_ns_ != 0 && now_ns >= init_until_ns_) {
    const std::string limit = fmt::format("within {} s", init_limit_ns_ / ns_per_s);
    if (is_root_)
      fail(Status(Code::Timeout,
                  fmt::format("{} of {} did not join {}", missing_ranks(), size_, limit))
               .blame(missing()));
    else if (peers_.empty())
      fail(Status(
               Code::Timeout,
               fmt::format("the process that made the id (as a rule rank 0's) could not be reached "
                           "at {} {} {}: {}",
                           id_.root_door, id_.root_address, limit, last_attempt_))
               .blame({0}));
    else if (now_ns >=
             init_until_ns_ + 2 * ns_per_s)  // the root's own deadline knows who is missing
      fail(Status(Code::Timeout, fmt::format("the ranks did not all join {}", limit)));
  }
  for (const auto& peer : peers_) {
    if (peer->gone || liveness_ns_ == 0) continue;
    const std::int64_t every = std::min(ns_per_s, liveness_ns_ / 3);
    if (now_ns - peer->pinged_ns >= every) {
      peer->pinged_ns = now_ns;
      send(*peer, Kind::ping, {});
    }
    if (now_ns - peer->heard_ns < liveness_ns_ || failed()) continue;
    if (!active_ranks(*peer).empty() || !is_root_)
      fail_for(*peer,
               fmt::format("does not answer: no sign of life for {} s", liveness_ns_ / ns_per_s));
  }
}

// ------------------------------------------------------------------------------ frames

Status Job::take(Peer& peer, const trust::Frame& frame) {
  switch (static_cast<Kind>(frame.type)) {
    case Kind::join:
      return take_join(peer, frame);
    case Kind::roster:
      return take_roster(frame);
    case Kind::letter:
      return take_letter(peer, frame);
    case Kind::failure:
      return take_failure(peer, frame);
    case Kind::leave:
      return take_leave(peer, frame);
    case Kind::ping:
      return {};
  }
  return Status(Code::RemoteError, fmt::format("it sent a frame of unknown kind {}", frame.type));
}

Status Job::take_join(Peer& peer, const trust::Frame& frame) {
  const Status malformed(Code::RemoteError, "it sent a malformed join");
  Reader reader(frame.body);
  std::int32_t size = 0, rank = 0;
  Letter note, encoded;
  if (!is_root_ || !reader.get(size) || !reader.get(rank) || !reader.get_block(note, 1 << 14) ||
      !reader.get_block(encoded, 1 << 14) || !reader.at_end())
    return malformed;
  GYRE_ASSIGN(const auto identity, trust::decode_identity(encoded));
  if (failed()) {
    const Status why = std::exchange(failure_, Status());
    fail(why);  // says it again, to the newcomer too
    return {};
  }
  std::uint32_t process = 0;
  while (process < processes_.size() && processes_[process].process != identity.process) ++process;
  if (process == processes_.size()) processes_.push_back(identity);
  peer.identity = identity;
  if (Status status = enter(size, rank, std::move(note), process); !status.ok()) {
    fail(status);
    return {};
  }
  peer.ranks.insert(rank);
  complete_if_all_came();
  return {};
}

Status Job::take_roster(const trust::Frame& frame) {
  auto roster = is_root_ || roster_ != nullptr ? nullptr : decode_roster(frame);
  if (roster == nullptr) return Status(Code::RemoteError, "it sent a malformed roster");
  roster_ = std::move(roster);
  init_until_ns_ = 0;
  peers_[0]->identity = roster_->processes[0];
  for (int rank = 0; rank < size_; ++rank)
    if (roster_->process_of_rank[static_cast<std::size_t>(rank)] == 0)
      peers_[0]->ranks.insert(rank);
  for (const auto& [rank, weak] : locals_)
    if (const auto member = weak.lock()) member->join(roster_);
  return {};
}

void Job::send_letter(int from, int to, std::uint64_t key, Letter letter) {
  if (const auto local = locals_.find(to); local != locals_.end()) {
    if (const auto member = local->second.lock()) member->deliver(from, key, std::move(letter));
    return;
  }
  if (peers_.empty() || roster_ == nullptr) return;
  Writer writer;
  writer.put(static_cast<std::int32_t>(from));
  writer.put(static_cast<std::int32_t>(to));
  writer.put(key);
  writer.put_rest(letter);
  Peer* next = is_root_ ? nullptr : peers_[0].get();
  for (const auto& peer : peers_)
    if (is_root_ && peer->ranks.contains(to)) next = peer.get();
  if (next != nullptr) send(*next, Kind::letter, writer.take());
}

Status Job::take_letter(Peer& peer, const trust::Frame& frame) {
  Reader reader(frame.body);
  std::int32_t from = 0, to = 0;
  std::uint64_t key = 0;
  if (!reader.get(from) || !reader.get(to) || !reader.get(key) || from < 0 || from >= size_ ||
      to < 0 || to >= size_)
    return Status(Code::RemoteError, "it sent a malformed letter");
  if (is_root_ && !peer.ranks.contains(from))
    return Status(Code::RemoteError, fmt::format("it wrote in the name of rank {}", from));
  const auto rest = reader.rest();
  send_letter(from, to, key, {rest.begin(), rest.end()});
  return {};
}

Status Job::take_failure(Peer& peer, const trust::Frame& frame) {
  Reader reader(frame.body);
  std::uint8_t code = 0;
  std::string message;
  std::uint32_t count = 0;
  if (!reader.get(code) || !reader.get_text(message, 2000) || !reader.get(count) || count > 1000 ||
      code == 0 || code > static_cast<std::uint8_t>(Code::Aborted))
    return Status(Code::RemoteError, "it sent a malformed failure");
  std::vector<int> culprits;
  for (std::uint32_t i = 0; i < count; ++i) {
    std::int32_t rank = 0;
    if (!reader.get(rank) || rank < 0 || rank >= std::max(size_, 1)) break;
    culprits.push_back(rank);
  }
  fail(Status(static_cast<Code>(code), message).blame(culprits), &peer);
  return {};
}

Status Job::take_leave(Peer& peer, const trust::Frame& frame) {
  Reader reader(frame.body);
  std::int32_t rank = 0;
  if (!reader.get(rank) || rank < 0 || rank >= size_)
    return Status(Code::RemoteError, "it sent a malformed leave");
  if (is_root_ && !peer.ranks.contains(rank))
    return Status(Code::RemoteError, fmt::format("it left in the name of rank {}", rank));
  left_.insert(rank);
  if (is_root_) send_others(Kind::leave, frame.body, &peer);
  return {};
}

}  // namespace gyre::bootstrap
