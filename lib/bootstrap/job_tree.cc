// What a job does in the tree: links up, passes letters on, sees ranks leave.
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/bootstrap/cause.h"
#include "lib/bootstrap/job.h"
#include "lib/bootstrap/tree.h"

#include <fmt/format.h>

#include <algorithm>

namespace gyre::bootstrap {
namespace {

Destination destination_of(const trust::ProcessIdentity& peer, const trust::ProcessIdentity& self) {
  Destination destination{peer.host, peer.door_name, {}};
  auto& ways = destination.ways;
  if (peer.host == self.host && peer.net_namespace == self.net_namespace) {
    const auto local = trust::abstract_address(peer.door_name);
    if (local.ok()) ways.push_back(*local);
  }
  for (const std::string& text : peer.addresses) {
    const auto address = trust::parse_address(text);
    if (address.ok()) ways.push_back(*address);
  }
  return destination;
}

}  // namespace

// ------------------------------------------------------------------------------------- linking up

void Job::begin_linking() {
  phase_ = Phase::linking;
  for (const auto& link : links_) {
    const bool known = link->process != Link::unknown;
    if (is_root_ && known && tree_parent(link->process) == 0) link->role = Link::Role::child;
  }
  if (is_root_) {
    parent_stands_ = true;
  } else if (tree_parent(index_) == 0) {
    parent_stands_ = true;
    for (const auto& link : links_)
      if (link->role == Link::Role::root) link->role = Link::Role::parent;
  } else {
    dial_parent();
  }
  std::vector<Link*> early;
  for (const auto& link : links_)
    if (link->early_hello) early.push_back(link.get());
  for (Link* link : early)
    if (!failed()) place_child(*link, *std::exchange(link->early_hello, std::nullopt));
  check_ready();
}

void Job::dial_parent() {
  const auto& parent = company_->roster.processes[tree_parent(index_)];
  dial_ = std::make_unique<Dial>(
      surroundings_.trunks, key_, destination_of(parent, surroundings_.self),
      [this](std::unique_ptr<Link> link) { parent_reached(std::move(link)); });
  surroundings_.thread.due_at(0);
}

void Job::parent_reached(std::unique_ptr<Link> reached) {
  surroundings_.thread.retire(std::move(dial_));
  Link& link = add_link(std::move(reached), Link::Role::parent);
  link.process = tree_parent(index_);
  link.send(Kind::hello, encode(HelloMessage{index_, surroundings_.self.process}));
}

void Job::on_hello(Link& link, const trust::Frame& frame) {
  const std::optional<HelloMessage> hello = decode_hello(frame.body);
  if (!hello || link.role != Link::Role::guest || link.process != Link::unknown)
    return protocol_error(link, Kind::hello);
  if (phase_ == Phase::gathering)
    link.early_hello = *hello;
  else
    place_child(link, *hello);
  check_ready();
}

void Job::place_child(Link& link, const HelloMessage& hello) {
  const auto& processes = company_->roster.processes;
  const bool ours = hello.process > 0 && hello.process < processes.size() &&
                    tree_parent(hello.process) == index_ &&
                    processes[hello.process].process == hello.token;
  if (!ours || neighbour(hello.process) != nullptr) {
    log_warn("a process that knows the secret claims a place in the tree that is not its own");
    return drop(link);
  }
  link.role = Link::Role::child;
  link.process = hello.process;
  link.send(Kind::welcome, encode(HelloMessage{index_, surroundings_.self.process}));
}

// The answer comes from the process we meant, not from ourselves or another that the connection was
// turned to.
void Job::on_welcome(Link& link, const trust::Frame& frame) {
  const std::optional<HelloMessage> welcome = decode_hello(frame.body);
  const bool due = link.role == Link::Role::parent && !parent_stands_ && welcome &&
                   welcome->process == link.process &&
                   welcome->token == identity_of(link.process).process;
  if (!due) return protocol_error(link, Kind::welcome);
  parent_stands_ = true;
  for (const auto& other : links_) {
    if (other->role != Link::Role::root) continue;
    other->send(Kind::moved, {});
    other->role = Link::Role::leaving;
  }
  check_ready();
}

// The root closes its end; ours follows.
void Job::on_moved(Link& link) {
  if (!is_root_ || link.role != Link::Role::guest) return protocol_error(link, Kind::moved);
  drop(link);
}

void Job::on_ready(Link& link) {
  if (link.role != Link::Role::child || phase_ != Phase::linking)
    return protocol_error(link, Kind::ready);
  ready_children_.insert(link.process);
  check_ready();
}

void Job::check_ready() {
  if (failed() || phase_ != Phase::linking || !parent_stands_ || ready_sent_) return;
  const auto processes = static_cast<std::uint32_t>(company_->roster.processes.size());
  if (ready_children_.size() < tree_children(index_, processes)) return;
  ready_sent_ = true;
  if (is_root_) return go();
  for (const auto& link : links_)
    if (link->role == Link::Role::parent) link->send(Kind::ready, {});
}

void Job::on_go(Link& link) {
  if (link.role != Link::Role::parent || phase_ != Phase::linking || !ready_sent_)
    return protocol_error(link, Kind::go);
  go();
}

// Those below hear it before any letter that a rank here may send.
void Job::go() {
  phase_ = Phase::joined;
  init_until_ns_ = never_ns;
  key_.reset();
  for (const auto& link : links_)
    if (link->role == Link::Role::child) link->send(Kind::go, {});
  for (const auto& [rank, member] : members_) member->become_joined(company_);
}

// Root: a child whose part of the tree is not up. Others: the parent that cannot be reached, or the
// children that have not come.
bool Job::is_late(std::uint32_t process) const {
  if (process == index_) return false;
  if (!is_root_ && process == tree_parent(index_)) return !parent_stands_;
  return process > 0 && tree_parent(process) == index_ && !ready_children_.contains(process);
}

// ---------------------------------------------------------------------------------------- letters

void Job::send_letter(int from, int to, std::uint64_t key, const Letter& letter) {
  if (failed() || phase_ != Phase::joined) return;
  const LetterHead head{static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to), key};
  const auto process = company_->roster.process_of_rank[static_cast<std::size_t>(to)];
  route(process, head, encode(head, letter), letter);
}

void Job::on_letter(Link& link, const trust::Frame& frame) {
  std::span<const std::uint8_t> text;
  const std::optional<LetterHead> head = decode_letter(frame.body, &text);
  const auto ranks = static_cast<std::uint32_t>(size_);
  if (!head || !is_neighbour(link) || phase_ != Phase::joined || head->from >= ranks ||
      head->to >= ranks)
    return protocol_error(link, Kind::letter);
  // Only what lies behind a link may speak through it.
  const auto& process_of_rank = company_->roster.process_of_rank;
  const std::uint32_t source = process_of_rank[head->from];
  if (source == index_ || tree_next(index_, source) != link.process)
    return protocol_error(link, Kind::letter);
  route(process_of_rank[head->to], *head, frame.body, text);
}

void Job::route(std::uint32_t process, const LetterHead& head, std::span<const std::uint8_t> frame,
                std::span<const std::uint8_t> text) {
  const int from = static_cast<int>(head.from), to = static_cast<int>(head.to);
  if (process == index_) {
    const auto found = members_.find(to);
    if (found == members_.end()) return;  // it has left
    if (!found->second->deliver(from, head.key, Letter(text.begin(), text.end())))
      fail(Status(Code::RemoteError, fmt::format("rank {} does not read its letters", to))
               .blame({to}));
    return;
  }
  const std::uint32_t next = tree_next(index_, process);
  if (Link* link = neighbour(next)) return link->send(Kind::letter, frame);
  if (process_left(process)) return;
  fail(Status(Code::RemoteError,
              fmt::format("the way from rank {} to rank {} went through {}, which has ended: keep "
                          "every process until all ranks are done",
                          from, to, process_text({}, identity_of(next)))));
}

// ---------------------------------------------------------------------------------------- leaving

void Job::leave(const Member& member) {
  const int rank = member.rank();
  const auto found = members_.find(rank);
  if (found == members_.end() || found->second.get() != &member) return;
  found->second->set_job(nullptr);
  members_.erase(found);
  if (failed()) return surroundings_.thread.due_at(0);
  if (phase_ != Phase::joined)
    return fail(Status(Code::RemoteError, process_text({rank}, surroundings_.self) +
                                              " left before all ranks had joined")
                    .blame({rank}));
  note_left(static_cast<std::uint32_t>(rank), nullptr);
}

void Job::leave_as_root() { note_left(no_rank, nullptr); }

void Job::on_leave(Link& link, const trust::Frame& frame) {
  const std::optional<std::uint32_t> rank = decode_leave(frame.body);
  if (!rank || !is_neighbour(link) || phase_ != Phase::joined)
    return protocol_error(link, Kind::leave);
  const bool known = *rank < static_cast<std::uint32_t>(size_);
  if (!known && *rank != no_rank) return protocol_error(link, Kind::leave);
  const std::uint32_t source = known ? company_->roster.process_of_rank[*rank] : 0;
  if (source == index_ || tree_next(index_, source) != link.process)
    return protocol_error(link, Kind::leave);
  note_left(*rank, &link);
}

void Job::note_left(std::uint32_t rank, const Link* told_by) {
  if (rank == no_rank) {
    root_left_ = true;
  } else if (!left_[rank]) {
    left_[rank] = true;
    ++left_count_;
    company_->left[rank].store(true, std::memory_order_release);  // pairs with has_left
  }
  send_neighbours(Kind::leave, encode_leave(rank), told_by);
  surroundings_.thread.due_at(0);
}

bool Job::process_left(std::uint32_t process) const {
  const auto& process_of_rank = company_->roster.process_of_rank;
  bool has_ranks = false;
  for (std::size_t rank = 0; rank < process_of_rank.size(); ++rank) {
    if (process_of_rank[rank] != process) continue;
    if (!left_[rank]) return false;
    has_ranks = true;
  }
  return has_ranks || root_left_;
}

// Those whom no link leads to any more count too: nothing of them can be heard here.
bool Job::everybody_left() const {
  if (left_count_ == left_.size()) return true;
  const auto& process_of_rank = company_->roster.process_of_rank;
  for (std::size_t rank = 0; rank < process_of_rank.size(); ++rank) {
    if (left_[rank]) continue;
    const std::uint32_t process = process_of_rank[rank];
    if (process == index_ || neighbour(tree_next(index_, process)) != nullptr) return false;
  }
  return true;
}

}  // namespace gyre::bootstrap
