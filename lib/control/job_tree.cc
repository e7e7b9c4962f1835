// How a job links up as a tree.
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/control/cause.h"
#include "lib/control/job.h"
#include "lib/control/tree.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

namespace gyre::control {

// ------------------------------------------------------------------------------------- linking up

void Job::begin_linking() {
  phase_ = Phase::linking;
  for (const auto& link : links_) {
    const bool known = link->process != ControlLink::unknown;
    if (is_root_ && known && tree_parent(link->process) == 0) link->role = ControlLink::Role::child;
  }
  if (is_root_) {
    parent_stands_ = true;
  } else if (tree_parent(index_) == 0) {
    parent_stands_ = true;
    for (const auto& link : links_)
      if (link->role == ControlLink::Role::root) link->role = ControlLink::Role::parent;
  }
  for (ControlLink* link : early_guests())
    if (!failed() && is_child(*link->early_hello)) let_in(*link);
  check_ready();
}

// Those that came too soon to be placed.
std::vector<ControlLink*> Job::early_guests() const {
  std::vector<ControlLink*> early;
  for (const auto& link : links_)
    if (link->early_hello) early.push_back(link.get());
  return early;
}

void Job::on_place(ControlLink& link, const trust::Frame& frame) {
  std::optional<PlaceMessage> place = decode_place(frame.body);
  const bool due = link.role == ControlLink::Role::root && phase_ == Phase::gathering && !place_ &&
                   intake_.empty() && place && place->process > tree_arity &&
                   place->process <= static_cast<std::uint32_t>(size_);
  if (!due) return protocol_error(link, Kind::place);
  index_ = place->process;
  place_ = std::move(place);
  dial_parent();
}

bool Job::is_at_its_place(const Roster& roster) const {
  if (!place_) return is_root_ || tree_parent(index_) == 0;
  return index_ == place_->process &&
         roster.processes[tree_parent(index_)].process == place_->parent.process;
}

void Job::dial_parent() {
  Destination parent = Destination::of(place_->parent, services_.self);
  parent.is_up = true;
  dial(parent, &Job::parent_reached);
}

void Job::parent_reached(std::unique_ptr<ControlLink> reached) {
  services_.thread.retire(std::move(dialer_));
  ControlLink& link = add_link(std::move(reached), ControlLink::Role::parent);
  link.process = tree_parent(index_);
  link.send(Kind::hello, encode(HelloMessage{index_, services_.self.process}));
}

void Job::on_hello(ControlLink& link, const trust::Frame& frame) {
  const std::optional<HelloMessage> hello = decode_hello(frame.body);
  if (!hello || link.role != ControlLink::Role::guest || link.process != ControlLink::unknown)
    return protocol_error(link, Kind::hello);
  if (phase_ == Phase::joined) return meet_peer(link, *hello);
  if (failed()) return tell_state(link);
  if (phase_ == Phase::gathering || !is_child(*hello)) {
    link.early_hello = *hello;
    link.hold();
  } else {
    place_child(link, *hello);
  }
  check_ready();
}

// It may have said more since, even that it leaves, and have ended.
void Job::let_in(ControlLink& early_guest) {
  const HelloMessage hello = *std::exchange(early_guest.early_hello, std::nullopt);
  if (phase_ == Phase::joined)
    meet_peer(early_guest, hello);
  else
    place_child(early_guest, hello);
  early_guest.release();
}

bool Job::is_child(const HelloMessage& hello) const {
  return hello.process > 0 && tree_parent(hello.process) == index_;
}

void Job::place_child(ControlLink& link, const HelloMessage& hello) {
  const auto& processes = group_->roster.processes;
  const bool ours = is_child(hello) && hello.process < processes.size() &&
                    processes[hello.process].process == hello.token;
  if (!ours || neighbour(hello.process) != nullptr) {
    log_warn("a process that knows the secret claims a place in the tree that is not its own");
    return drop(link);
  }
  link.role = ControlLink::Role::child;
  link.process = hello.process;
  link.send(Kind::welcome, encode(HelloMessage{index_, services_.self.process}));
  for (const auto& part : roster_parts_) link.send(Kind::roster, part);
}

// The answer comes from the process we meant, not from ourselves or another that the connection was
// turned to.
void Job::on_welcome(ControlLink& link, const trust::Frame& frame) {
  const std::optional<HelloMessage> welcome = decode_hello(frame.body);
  if (welcome && link.role == ControlLink::Role::peer) return on_peer_welcome(link, *welcome);
  const bool due = link.role == ControlLink::Role::parent && !parent_stands_ && welcome &&
                   welcome->process == link.process &&
                   welcome->token == identity_of(link.process).process;
  if (!due || failed()) return protocol_error(link, Kind::welcome);
  parent_stands_ = true;
  for (const auto& other : links_) {
    if (other->role != ControlLink::Role::root) continue;
    other->send(Kind::moved, {});
    other->role = ControlLink::Role::leaving;
  }
  check_ready();
}

// The root closes its end; ours follows.
void Job::on_moved(ControlLink& link) {
  if (!is_root_ || link.role != ControlLink::Role::guest) return protocol_error(link, Kind::moved);
  drop(link);
}

void Job::on_ready(ControlLink& link) {
  if (link.role != ControlLink::Role::child || phase_ != Phase::linking)
    return protocol_error(link, Kind::ready);
  ready_children_.insert(link.process);
  check_ready();
}

void Job::check_ready() {
  if (failed() || phase_ != Phase::linking || !parent_stands_ || ready_sent_) return;
  if (ready_children_.size() < children().size()) return;
  ready_sent_ = true;
  if (is_root_) return go();
  for (const auto& link : links_)
    if (link->role == ControlLink::Role::parent) link->send(Kind::ready, {});
}

void Job::on_go(ControlLink& link) {
  if (link.role != ControlLink::Role::parent || phase_ != Phase::linking || !ready_sent_)
    return protocol_error(link, Kind::go);
  go();
}

// Those below hear it before any message that a rank here may send.
void Job::go() {
  phase_ = Phase::joined;
  init_until_ns_ = never_ns;
  roster_parts_.clear();
  for (const auto& link : links_)
    if (link->role == ControlLink::Role::child) link->send(Kind::go, {});
  for (const auto& link : links_)
    if (is_neighbour(*link)) met_.insert(link->process);
  for (const auto& [rank, member] : members_) member->become_joined(group_);
  for (ControlLink* link : early_guests()) let_in(*link);
}

// Neighbours in the tree to whom no link leads yet.
Job::Processes Job::unlinked() const {
  Processes missing;
  if (!parent_stands_) missing.push_back(tree_parent(index_));
  for (const std::uint32_t child : children())
    if (neighbour(child) == nullptr) missing.push_back(child);
  return missing;
}

// The same; where there are none, those below whom somebody lacks a link.
Job::Processes Job::late_neighbours() const {
  Processes late = unlinked();
  if (!late.empty()) return late;
  for (const std::uint32_t child : children())
    if (!ready_children_.contains(child)) late.push_back(child);
  return late;
}

Job::Processes Job::children() const {
  const auto processes = static_cast<std::uint32_t>(group_->roster.processes.size());
  Processes below(tree_children(index_, processes));
  std::iota(below.begin(), below.end(), tree_first_child(index_));
  return below;
}

}  // namespace gyre::control
