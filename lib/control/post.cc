#include "lib/control/post.h"

namespace gyre::control {

const Post::Frame& Post::add(std::uint32_t to, LetterHead head,
                             std::span<const std::uint8_t> text) {
  Outgoing& outgoing = outgoing_[to];
  head.number = ++outgoing.last;
  return outgoing.kept.emplace_back(Kept{head.number, encode(head, text)}).frame;
}

std::vector<const Post::Frame*> Post::unheard(std::uint32_t to) const {
  std::vector<const Frame*> frames;
  const auto found = outgoing_.find(to);
  if (found == outgoing_.end()) return frames;
  for (const Kept& kept : found->second.kept) frames.push_back(&kept.frame);
  return frames;
}

std::vector<std::uint32_t> Post::addressees() const {
  std::vector<std::uint32_t> processes;
  for (const auto& [process, outgoing] : outgoing_)
    if (!outgoing.kept.empty()) processes.push_back(process);
  return processes;
}

void Post::heard(std::uint32_t from, std::uint64_t number) {
  const auto found = outgoing_.find(from);
  if (found == outgoing_.end()) return;
  std::deque<Kept>& kept = found->second.kept;
  while (!kept.empty() && kept.front().number <= number) kept.pop_front();
}

std::optional<std::vector<Post::Received>> Post::take(std::uint32_t from, const LetterHead& head,
                                                      std::span<const std::uint8_t> text) {
  Incoming& incoming = incoming_[from];
  std::vector<Received> due;
  if (head.number <= incoming.taken) return due;
  if (head.number - incoming.taken > ahead_most) return std::nullopt;
  incoming.early.try_emplace(head.number, Received{head, Letter(text.begin(), text.end())});
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
