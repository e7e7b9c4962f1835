#include "lib/control/post.h"

namespace gyre::control {

const Post::FrameBytes& Post::add(std::uint32_t to, RankMessageHead head,
                                  std::span<const std::uint8_t> text) {
  SentMessages& outgoing = outgoing_[to];
  head.number = ++outgoing.last;
  return outgoing.kept.emplace_back(UnacknowledgedMessage{head.number, encode(head, text)}).frame;
}

std::vector<const Post::FrameBytes*> Post::unacknowledged(std::uint32_t to) const {
  std::vector<const FrameBytes*> frames;
  const auto found = outgoing_.find(to);
  if (found == outgoing_.end()) return frames;
  for (const UnacknowledgedMessage& kept : found->second.kept) frames.push_back(&kept.frame);
  return frames;
}

std::vector<std::uint32_t> Post::addressees() const {
  std::vector<std::uint32_t> processes;
  for (const auto& [process, outgoing] : outgoing_)
    if (!outgoing.kept.empty()) processes.push_back(process);
  return processes;
}

void Post::acknowledge(std::uint32_t from, std::uint64_t number) {
  const auto found = outgoing_.find(from);
  if (found == outgoing_.end()) return;
  std::deque<UnacknowledgedMessage>& kept = found->second.kept;
  while (!kept.empty() && kept.front().number <= number) kept.pop_front();
}

std::optional<std::vector<Post::ReceivedMessage>> Post::take(std::uint32_t from,
                                                             const RankMessageHead& head,
                                                             std::span<const std::uint8_t> text) {
  IncomingMessages& incoming = incoming_[from];
  std::vector<ReceivedMessage> due;
  if (head.number <= incoming.taken) return due;
  if (head.number - incoming.taken > max_ahead) return std::nullopt;
  incoming.early.try_emplace(head.number,
                             ReceivedMessage{head, MessageBytes(text.begin(), text.end())});
  for (auto next = incoming.early.begin();
       next != incoming.early.end() && next->first == incoming.taken + 1;
       next = incoming.early.erase(next)) {
    ++incoming.taken;
    due.push_back(std::move(next->second));
  }
  return due;
}

std::uint64_t Post::taken(std::uint32_t from) const {
  const auto found = incoming_.find(from);
  return found == incoming_.end() ? 0 : found->second.taken;
}

}  // namespace gyre::control
