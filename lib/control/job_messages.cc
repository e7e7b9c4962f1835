// How a job handles messages: it forwards those of others, and keeps its own until they are
// acknowledged.
#include "lib/control/cause.h"
#include "lib/control/job.h"
#include "lib/control/tree.h"

#include <fmt/core.h>

#include <algorithm>

namespace gyre::control {

void Job::send_rank_message(int from, int to, std::uint64_t key, const MessageBytes& rank_message) {
  if (failed() || phase_ != Phase::joined) return;
  const RankMessageHead head{static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to), key,
                             0};
  const std::uint32_t process = group_->roster.process_of_rank[head.to];
  if (process == index_) return deliver(head, rank_message);
  if (departures_.is_gone(process)) return;
  const Post::FrameBytes& frame = post_.add(process, head, rank_message);
  if (ControlLink* link = way_to(process)) return link->send(Kind::rank_message, frame);
  reach(process);
}

// A link of its own, or the next one on the tree's way where that stands. Null: there is none yet.
// One that the other end has not taken is none: what waits for that would be overtaken on it.
ControlLink* Job::way_to(std::uint32_t process) const {
  const auto link_to = [this](std::uint32_t next) -> ControlLink* {
    const auto found = std::ranges::find_if(links_, [&](const auto& link) {
      return is_neighbour(*link) && link->welcome && link->process == next;
    });
    return found != links_.end() ? found->get() : nullptr;
  };
  if (ControlLink* link = link_to(process)) return link;
  const bool stands = departures_.way_stands(index_, process);
  return stands ? link_to(tree_next(index_, process)) : nullptr;
}

void Job::send_unacknowledged(std::uint32_t process) {
  ControlLink* link = way_to(process);
  if (link == nullptr || failed()) return;
  for (const Post::FrameBytes* frame : post_.unacknowledged(process))
    link->send(Kind::rank_message, *frame);
}

// Whether what comes over the link may be of that process: its own, or from behind it in the tree.
bool Job::speaks_for(const ControlLink& link, std::uint32_t process) const {
  return process != index_ &&
         (process == link.process || tree_next(index_, process) == link.process);
}

void Job::on_rank_message(ControlLink& link, const trust::Frame& frame) {
  std::span<const std::uint8_t> text;
  const std::optional<RankMessageHead> head = decode_rank_message(frame.body, &text);
  const auto ranks = static_cast<std::uint32_t>(size_);
  if (!head || !is_neighbour(link) || phase_ != Phase::joined || head->from >= ranks ||
      head->to >= ranks)
    return protocol_error(link, Kind::rank_message);
  const auto& process_of_rank = group_->roster.process_of_rank;
  const std::uint32_t source = process_of_rank[head->from], target = process_of_rank[head->to];
  if (!speaks_for(link, source)) return protocol_error(link, Kind::rank_message);
  if (target == index_) return take_rank_message(source, *head, text);
  // Where the way has ended meanwhile, the sender learns of it and opens a link of its own.
  if (ControlLink* next = neighbour(tree_next(index_, target)))
    next->send(Kind::rank_message, frame.body);
}

void Job::take_rank_message(std::uint32_t source, const RankMessageHead& head,
                            std::span<const std::uint8_t> text) {
  auto due = post_.take(source, head, text);
  if (!due) return fail_process(source, "broke the control protocol (rank message)");
  for (Post::ReceivedMessage& rank_message : *due)
    deliver(rank_message.head, std::move(rank_message.text));
  // Without a way there is no need: the sender has none either, opens a link, and sends it again.
  if (ControlLink* link = way_to(source))
    link->send(Kind::ack, encode(AckMessage{index_, source, post_.taken(source)}));
}

void Job::deliver(const RankMessageHead& head, MessageBytes text) {
  const int from = static_cast<int>(head.from), to = static_cast<int>(head.to);
  const auto found = members_.find(to);
  if (found == members_.end()) return;  // it has left
  if (!found->second->deliver(from, head.key, std::move(text)))
    fail(Status(Code::RemoteError, fmt::format("rank {} does not read its messages", to))
             .blame({to}));
}

void Job::on_ack(ControlLink& link, const trust::Frame& frame) {
  const std::optional<AckMessage> message = decode_ack(frame.body);
  if (failed()) return;
  const bool known = message && phase_ == Phase::joined &&
                     std::max(message->from, message->to) < group_->roster.processes.size();
  if (!known || !is_neighbour(link) || !speaks_for(link, message->from))
    return protocol_error(link, Kind::ack);
  if (message->to == index_) {
    post_.acknowledge(message->from, message->number);
    return services_.thread.due_at(0);
  }
  if (ControlLink* next = neighbour(tree_next(index_, message->to)))
    next->send(Kind::ack, frame.body);
}

}  // namespace gyre::control
