// SlotPool: the slots that one end of a link may write, where both ends see both of the link's
// fifos. A message's slot changes hands with it. The end that has read a slot keeps it, writes its
// own next message there, and gives one of its other slots back.
//
// The reason is what caches do. On AMD's Zen a line that another core has written becomes the
// reader's own when it is read. To write it again is then cheap for the reader, and costs the
// writer a second way between the caches (docs/decisions/46-slots-change-hands.md has the times).
#pragma once

#include "lib/base/units.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace gyre::transport {

// A slot by its place: below slot_count in the fifo of the message, from there on in the one that
// leads back. A pool has places of the fifo that its end sends by.
using SlotPlace = std::uint16_t;
inline constexpr std::uint32_t max_pooled_slots = 16;

// A message of a pool's link begins at one of so many parts of its slot.
inline constexpr std::uint32_t slot_parts = 32;
// A shorter one begins where its slot does: what is read and written there stays in a few pages.
inline constexpr std::uint64_t min_spread_bytes = 8192;
// Where they are: none, if messages do not spread.
class SlotParts {
 public:
  constexpr SlotParts(std::uint64_t slot_bytes, bool spreads)
      : slot_bytes_(slot_bytes), part_bytes_(spreads ? slot_bytes / slot_parts / 64 * 64 : 0) {}

  std::uint64_t slot_bytes() const { return slot_bytes_; }
  // From the slot's begin on; 0 if a message of so many bytes would not fit there.
  std::uint64_t offset(std::uint32_t part, std::uint64_t bytes) const {
    const std::uint64_t offset = part * part_bytes_;
    return offset + bytes <= slot_bytes_ ? offset : 0;
  }
  // Whether a message of so many bytes may begin at any of them.
  bool spread(std::uint64_t bytes) const { return bytes >= min_spread_bytes && part_bytes_ > 0; }
  // The part behind such a message that begins at `part`.
  std::uint8_t behind(std::uint32_t part, std::uint64_t bytes) const {
    return static_cast<std::uint8_t>((part + divide_up(bytes, part_bytes_)) % slot_parts);
  }

 private:
  std::uint64_t slot_bytes_, part_bytes_;
};

struct MessagePlace {
  SlotPlace slot = 0;
  std::uint8_t part = 0;

  static MessagePlace from(std::uint16_t word, std::uint32_t slot_count) {
    return {static_cast<SlotPlace>(word & (2 * slot_count - 1)),
            static_cast<std::uint8_t>(word >> 8 & (slot_parts - 1))};
  }
  std::uint16_t word() const { return static_cast<std::uint16_t>(slot | part << 8); }
};
static_assert(2 * max_pooled_slots <= 1 << 8);

// Used by one thread at a time, with the SlotWriter and the SlotReader of its end. Slots that this
// end has read are written first, the last one before others. Of slots that the peer used last, the
// one that came back first is written first, behind its last message if there is room: those bytes
// have most likely left the peer's own caches, which would have to give their lines up.
class SlotPool {
 public:
  // Of slot_count slots each way, at most max_pooled_slots; the end begins with those of `sent`.
  SlotPool(std::byte* sent, std::byte* received, std::uint32_t slot_count, const SlotParts& parts)
      : sent_(sent), received_(received), slot_parts_(parts), slot_count_(slot_count) {
    for (std::uint32_t i = 0; i < slot_count; ++i) others_.push(static_cast<SlotPlace>(i));
  }

  // Of a message of so many bytes, at most a slot's. Whatever part the peer says, it stays inside.
  std::byte* at(MessagePlace place, std::uint64_t bytes) const {
    std::byte* const fifo = (place.slot & slot_count_) == 0 ? sent_ : received_;
    const std::uint64_t offset = slot_parts_.offset(place.part, bytes);
    return fifo + (place.slot & (slot_count_ - 1)) * slot_parts_.slot_bytes() + offset;
  }
  // Whether the next message goes where the peer was last.
  bool goes_one_way() const { return read_.count == 0; }
  // Where the next message goes, if there is credit for one.
  MessagePlace next(std::uint64_t bytes) const {
    const SlotPlace slot = read_.count > 0 ? read_.top() : others_.front();
    if (!slot_parts_.spread(bytes)) return {slot, 0};
    const std::uint8_t part = parts_[slot & places_mask];
    return {slot, slot_parts_.offset(part, bytes) > 0 ? part : std::uint8_t{0}};
  }
  MessagePlace take(std::uint64_t bytes) {
    const MessagePlace place = next(bytes);
    if (read_.count > 0)
      (void)read_.pop();
    else
      (void)others_.pop();
    if (slot_parts_.spread(bytes))
      parts_[place.slot & places_mask] = slot_parts_.behind(place.part, bytes);
    return place;
  }
  // One that the peer has given back. Never more than were taken.
  void add(SlotPlace place) { others_.push(place); }
  // Whether it has one to give back for a slot that this end has read.
  bool may_keep() const { return others_.count > 0; }
  // What is given back for it: the slot itself if there is no other one.
  SlotPlace trade(MessagePlace read) {
    if (others_.count == 0) return read.slot;
    parts_[read.slot & places_mask] = read.part;
    read_.push(read.slot);
    return others_.pop();
  }
  // As the peer's end calls it, or the other way round.
  SlotPlace seen_from_peer(SlotPlace place) const {
    return static_cast<SlotPlace>(place ^ slot_count_);
  }

 private:
  static constexpr std::uint32_t places_mask = 2 * max_pooled_slots - 1;
  struct Stack {
    std::array<SlotPlace, max_pooled_slots> places{};
    std::uint32_t count = 0;
    SlotPlace top() const { return places[(count - 1) & (max_pooled_slots - 1)]; }
    SlotPlace pop() { return places[--count]; }
    void push(SlotPlace place) { places[count++] = place; }
  };
  struct Queue {
    std::array<SlotPlace, max_pooled_slots> places{};
    std::uint32_t first = 0, count = 0;
    SlotPlace front() const { return places[first & (max_pooled_slots - 1)]; }
    SlotPlace pop() {
      --count;
      return places[first++ & (max_pooled_slots - 1)];
    }
    void push(SlotPlace place) { places[(first + count++) & (max_pooled_slots - 1)] = place; }
  };

  std::byte* const sent_;
  std::byte* const received_;
  const SlotParts slot_parts_;
  const std::uint32_t slot_count_;
  // Of each slot: where the message lay that this end has read there, or behind the last one that
  // it has written.
  std::array<std::uint8_t, 2 * max_pooled_slots> parts_{};
  Stack read_;
  Queue others_;
};

}  // namespace gyre::transport
