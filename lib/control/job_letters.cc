// What a job does with letters: passes those of others on, keeps its own until they were taken.
#include "lib/control/cause.h"
#include "lib/control/job.h"
#include "lib/control/tree.h"

#include <fmt/format.h>

#include <algorithm>

namespace gyre::control {

void Job::send_letter(int from, int to, std::uint64_t key, const Letter& letter) {
  if (failed() || phase_ != Phase::joined) return;
  const LetterHead head{static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to), key, 0};
  const std::uint32_t process = company_->roster.process_of_rank[head.to];
  if (process == index_) return deliver(head, letter);
  if (departures_.is_gone(process)) return;
  const Post::Frame& frame = post_.add(process, head, letter);
  if (Link* link = way_to(process)) return link->send(Kind::letter, frame);
  reach(process);
}

// A link of its own, or the next one on the tree's way where that stands. Null: there is none yet.
Link* Job::way_to(std::uint32_t process) const {
  if (Link* link = neighbour(process)) return link;
  const bool stands = departures_.way_stands(index_, process);
  return stands ? neighbour(tree_next(index_, process)) : nullptr;
}

void Job::send_unheard(std::uint32_t process) {
  Link* link = way_to(process);
  if (link == nullptr || failed()) return;
  for (const Post::Frame* frame : post_.unheard(process)) link->send(Kind::letter, *frame);
}

// Whether what comes over the link may be of that process: its own, or from behind it in the tree.
bool Job::speaks_for(const Link& link, std::uint32_t process) const {
  return process != index_ &&
         (process == link.process || tree_next(index_, process) == link.process);
}

void Job::on_letter(Link& link, const trust::Frame& frame) {
  std::span<const std::uint8_t> text;
  const std::optional<LetterHead> head = decode_letter(frame.body, &text);
  const auto ranks = static_cast<std::uint32_t>(size_);
  if (!head || !is_neighbour(link) || phase_ != Phase::joined || head->from >= ranks ||
      head->to >= ranks)
    return protocol_error(link, Kind::letter);
  const auto& process_of_rank = company_->roster.process_of_rank;
  const std::uint32_t source = process_of_rank[head->from], target = process_of_rank[head->to];
  if (!speaks_for(link, source)) return protocol_error(link, Kind::letter);
  if (target == index_) return take_letter(source, *head, text);
  // Where the way has ended meanwhile, the sender learns of it and opens a link of its own.
  if (Link* next = neighbour(tree_next(index_, target))) next->send(Kind::letter, frame.body);
}

void Job::take_letter(std::uint32_t source, const LetterHead& head,
                      std::span<const std::uint8_t> text) {
  auto due = post_.take(source, head, text);
  if (!due) return fail_process(source, "broke the control protocol (letter)");
  for (Post::Received& letter : *due) deliver(letter.head, std::move(letter.text));
  // Without a way there is no need: the sender has none either, opens a link, and sends it again.
  if (Link* link = way_to(source))
    link->send(Kind::heard, encode(HeardMessage{index_, source, post_.taken(source)}));
}

void Job::deliver(const LetterHead& head, Letter text) {
  const int from = static_cast<int>(head.from), to = static_cast<int>(head.to);
  const auto found = members_.find(to);
  if (found == members_.end()) return;  // it has left
  if (!found->second->deliver(from, head.key, std::move(text)))
    fail(Status(Code::RemoteError, fmt::format("rank {} does not read its letters", to))
             .blame({to}));
}

void Job::on_heard(Link& link, const trust::Frame& frame) {
  const std::optional<HeardMessage> message = decode_heard(frame.body);
  if (failed()) return;
  const bool known = message && phase_ == Phase::joined &&
                     std::max(message->from, message->to) < company_->roster.processes.size();
  if (!known || !is_neighbour(link) || !speaks_for(link, message->from))
    return protocol_error(link, Kind::heard);
  if (message->to == index_) return post_.heard(message->from, message->number);
  if (Link* next = neighbour(tree_next(index_, message->to))) next->send(Kind::heard, frame.body);
}

}  // namespace gyre::control
