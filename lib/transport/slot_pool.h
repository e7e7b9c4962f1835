// SlotPool: the slots that one end of a link may write, where both ends see both of the link's
// fifos. A message's slot changes hands with it. The end that has read a slot keeps it, writes its
// own next message there, and gives one of its other slots back.
//
// The reason is what caches do. On AMD's Zen a line that another core has written becomes the
// reader's own when it is read. To write it again is then cheap for the reader, and costs the
// writer a second way between the caches (docs/decisions/46-slots-change-hands.md has the times).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gyre::transport {

// A slot by its place: below slot_count in the fifo of the message, from there on in the one that
// leads back. A pool has places of the fifo that its end sends by.
using SlotPlace = std::uint16_t;
inline constexpr std::uint32_t max_pooled_slots = 16;

// Used by one thread at a time, with the SlotWriter and the SlotReader of its end. It has two
// stacks of places: of slots that this end has read, which it writes first, the last one before
// others; and of slots that the peer used last.
class SlotPool {
 public:
  // Of slot_count slots each way, at most max_pooled_slots; the end begins with those of `sent`.
  SlotPool(std::byte* sent, std::byte* received, std::uint32_t slot_count, std::uint64_t slot_bytes)
      : sent_(sent), received_(received), slot_bytes_(slot_bytes), slot_count_(slot_count) {
    for (std::uint32_t i = slot_count; i > 0; --i) others_.push(static_cast<SlotPlace>(i - 1));
  }

  std::byte* at(SlotPlace place) const {
    std::byte* const fifo = (place & slot_count_) == 0 ? sent_ : received_;
    return fifo + (place & (slot_count_ - 1)) * slot_bytes_;
  }
  // The slot of the next message, if there is credit for one.
  SlotPlace next() const { return read_.count > 0 ? read_.top() : others_.top(); }
  SlotPlace take() { return read_.count > 0 ? read_.pop() : others_.pop(); }
  // One that the peer has given back. Never more than were taken.
  void add(SlotPlace place) { others_.push(place); }
  // Whether it has one to give back for a slot that this end has read.
  bool may_keep() const { return others_.count > 0; }
  // What is given back for it: the slot itself if there is no other one.
  SlotPlace trade(SlotPlace read) {
    if (others_.count == 0) return read;
    read_.push(read);
    return others_.pop();
  }
  // As the peer's end calls it, or the other way round.
  SlotPlace seen_from_peer(SlotPlace place) const {
    return static_cast<SlotPlace>(place ^ slot_count_);
  }

 private:
  struct Stack {
    std::array<SlotPlace, max_pooled_slots> places{};
    std::uint32_t count = 0;
    SlotPlace top() const { return places[(count - 1) & (max_pooled_slots - 1)]; }
    SlotPlace pop() { return places[--count]; }
    void push(SlotPlace place) { places[count++] = place; }
  };

  std::byte* const sent_;
  std::byte* const received_;
  const std::uint64_t slot_bytes_;
  const std::uint32_t slot_count_;
  Stack read_, others_;
};

}  // namespace gyre::transport
