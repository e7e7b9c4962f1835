// Slots: the memory that two ends of a link share, with one layout for threads, processes and the
// staging side of a network link. A Fifo carries messages one way, from one sender to one receiver.
//
//   line    64 bytes: 56 of payload and a flag, written payload first, then the flag (release)
//   slot    bulk bytes; the tail counter says how many were committed, the head how many released.
//           A note says where its slot lies, and each release which slot it gives back: see
//           slot_pool.h
//   grant   where a user buffer lies that the other end may read (sender's) or write (receiver's)
//   part    where a message lies in memory that its sender lends to the wire (carrier.h)
//   bell    futex word of a sleeping end
//
// Counters are 64-bit, only grow, have one writer each and lie 128 bytes apart (two lines: the
// adjacent-line prefetcher moves pairs). The other end's writes are input. FifoView is made from
// this end's own shape, never from numbers found in the memory, and a counter outside its window is
// rejected. The reader must check a note's length (see note_fits).
#pragma once

#include "lib/transport/slot_pool.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace gyre::transport {

inline constexpr std::size_t line_payload_bytes = 56;
inline constexpr std::size_t counter_spacing = 128;

struct alignas(64) Line {
  std::byte payload[line_payload_bytes];
  std::atomic<std::uint64_t> flag;  // line_flag of what it holds; 0 = never written
};
static_assert(sizeof(Line) == 64);

struct alignas(counter_spacing) Counter {
  std::atomic<std::uint64_t> value;
};

// How many slots the receiver has released, and where the last of them lie. `places` is written
// before `value`, and only if there are so few slots.
struct alignas(counter_spacing) ReleaseCounter {
  std::atomic<std::uint64_t> value;
  std::atomic<SlotPlace> places[max_pooled_slots];
};

// `rung` changes at each wake-up, and turns: a sleeper compares it with what it was a moment ago,
// and sleeps 1 ms at most, so 2^32 wake-ups do not pass unseen. `sleeping` is set by the one end
// that may sleep here, and taken back by whoever rings first.
struct alignas(counter_spacing) Bell {
  std::atomic<std::uint32_t> rung;
  std::atomic<std::uint32_t> sleeping;
};

// How a message's bytes travel; chosen by the sender, message by message.
enum class DeliveryMode : std::uint16_t {
  staged = 0,  // in the slot
  pull = 1,    // they stay in the sender's user buffer; the receiver reads them there
  push = 2,    // they are in the receiver's output already
};

// What the sender says of one slot. The flag is written last, but for the tail.
struct SlotHeader {
  std::uint64_t flag;   // message_flag: sequence and signature of the call
  std::uint32_t bytes;  // length of the message
  DeliveryMode delivery;
  SlotPlace place;  // of the slot, or a MessagePlace; kernels have slots in order, and write 0
};
static_assert(sizeof(SlotHeader) == 16);

// What the place of the next message holds.
enum class MessageState : std::uint8_t { waiting, here, other_call };

// A copy of what the other end wrote, as it was at one time: the fence keeps the compiler from
// reading there again in place of the copy.
template <typename T>
T copied(const std::byte* from) {
  static_assert(std::is_trivially_copyable_v<T>);
  T copy;
  std::memcpy(&copy, from, sizeof copy);
  std::atomic_signal_fence(std::memory_order_acq_rel);
  return copy;
}

// Where a user buffer lies that one end lends to the other.
struct Loan {
  std::uint64_t region = 0;  // 0: staged, nothing is lent; 1 and 2: plain address; else an inode
  std::uint64_t offset = 0;  // plain address, or offset in the region
  std::uint64_t bytes = 0;
  std::uint64_t signature = 0;
  std::uint32_t descriptor = 0;  // of a region, in the lender's process
  std::uint32_t reach = 0;       // reach_by_...: how the lender reaches the other end's memory
  // By a wire: all that comes on this link is stored as it comes, whatever its step says.
  std::uint64_t stores_all = 0;
};

// A loan for one call, in memory that both ends write. `sequence` is stored last (release) and read
// first (acquire). What it says is the other end's word, which may change between a check and a
// use: so whoever borrows takes a copy, and checks and uses that.
struct alignas(counter_spacing) Grant {
  std::atomic<std::uint64_t> sequence;  // the call's sequence number + 1; 0: nothing is lent
  Loan loan;                            // the lender's to write; others `read` it

  // Each word once.
  Loan read() const {
    const auto word = [](const auto& value) {
      using Word = std::remove_cvref_t<decltype(value)>;
      return std::atomic_ref(const_cast<Word&>(value)).load(std::memory_order_relaxed);
    };
    return {word(loan.region),     word(loan.offset), word(loan.bytes),     word(loan.signature),
            word(loan.descriptor), word(loan.reach),  word(loan.stores_all)};
  }
};
inline constexpr std::uint64_t region_staged = 0;
inline constexpr std::uint64_t region_same_process = 1;
inline constexpr std::uint64_t region_copied = 2;  // the kernel copies from there: PeerMemory::copy
inline constexpr std::uint32_t reach_by_mapping = 1;
inline constexpr std::uint32_t reach_by_copying = 2;

// Sizes that both ends derive from what all ranks know.
struct FifoShape {
  std::uint32_t slot_count = 4;         // a power of two
  std::uint32_t line_count = 128;       // a power of two
  std::uint64_t slot_bytes = 64 << 10;  // a multiple of 128
  // What the counters begin at: zero, but in tests of their ends. One message a nanosecond takes
  // 584 years to turn 64 bits; a line's number loses all but 40 in its flag, which a line each 10
  // ns turns in 3 hours.
  std::uint64_t first = 0;
  // Messages of one way begin at all parts of their slots in turn. See SlotPool.
  bool spreads = false;
  SlotParts parts() const { return {slot_bytes, spreads && slot_count <= max_pooled_slots}; }
  friend bool operator==(const FifoShape&, const FifoShape&) = default;
};

struct FifoControl {
  Counter tail;          // slots committed; written by the sender
  ReleaseCounter head;   // slots released; written by the receiver
  Counter line_head;     // lines released, lazily; written by the receiver
  Bell sender_bell;      // the sender sleeps here for credit
  Bell receiver_bell;    // the receiver sleeps here for data
  Grant sender_grant;    // the sender's input
  Grant receiver_grant;  // the receiver's output
  // 1 while an end reads or writes what the other one lends. Who takes a grant back, by storing 0
  // to its sequence, then waits for the mark; who borrows sets the mark, then looks at the sequence
  // again. All four are sequentially consistent, so that one of the two sees the other.
  Counter receiver_borrows;  // the sender's input
  Counter sender_borrows;    // the receiver's output
  // Of the pieces that the sender is to reduce in a call: which end takes which, written by both;
  // and how many the receiver has done, written by it. See lib/exec/work_stealing.h.
  Counter pieces_taken;
  Counter pieces_done;
};

constexpr std::uint64_t fifo_notes_offset() { return sizeof(FifoControl); }
constexpr std::uint64_t fifo_lines_offset(const FifoShape& shape) {
  return (fifo_notes_offset() + shape.slot_count * sizeof(SlotHeader) + 127) / 128 * 128;
}
constexpr std::uint64_t fifo_slots_offset(const FifoShape& shape) {
  return (fifo_lines_offset(shape) + shape.line_count * sizeof(Line) + 4095) / 4096 * 4096;
}
constexpr std::uint64_t fifo_bytes(const FifoShape& shape) {
  return fifo_slots_offset(shape) + shape.slot_count * shape.slot_bytes;
}

// Whether a note that the peer wrote stays within this end's own slot.
constexpr bool note_fits(const SlotHeader& note, const FifoShape& shape) {
  return note.bytes <= shape.slot_bytes;
}

struct LentParts;  // carrier.h

// Pointers into one fifo's memory, which must be zeroed, 4096-aligned and fifo_bytes(shape) long.
struct FifoView {
  FifoControl* control = nullptr;
  SlotHeader* notes = nullptr;
  Line* lines = nullptr;
  std::byte* slots = nullptr;
  FifoShape shape;
  LentParts* lent = nullptr;  // where a wire moves lent memory: of each slot's message; one process

  static FifoView at(std::byte* memory, const FifoShape& shape) {
    return {reinterpret_cast<FifoControl*>(memory),
            reinterpret_cast<SlotHeader*>(memory + fifo_notes_offset()),
            reinterpret_cast<Line*>(memory + fifo_lines_offset(shape)),
            memory + fifo_slots_offset(shape),
            shape,
            nullptr};
  }
  SlotHeader& note(std::uint64_t index) const { return notes[index & (shape.slot_count - 1)]; }
  std::byte* slot(std::uint64_t index) const {
    return slots + (index & (shape.slot_count - 1)) * shape.slot_bytes;
  }
  // Where the release of a message says which slot it gives back.
  std::atomic<SlotPlace>& released(std::uint64_t index) const {
    return control->head.places[index & (shape.slot_count - 1)];
  }
  Line& line(std::uint64_t index) const { return lines[index & (shape.line_count - 1)]; }
  // Null of an end that is closed from the beginning, and has no memory.
  Line* place_of_line(std::uint64_t index) const {
    return lines == nullptr ? nullptr : &line(index);
  }
  Line* lines_end() const { return lines == nullptr ? nullptr : lines + shape.line_count; }
};

// Counters in fresh memory, before either end looks at them.
void start_counters(const FifoView& view);

// Sequence in the high 40 bits, 24 bits of the call's signature below. For lines the sequence is
// the line's running number + 1, so that what an earlier lap left behind never matches: that is one
// lap old, and 2^40 numbers are many laps, however often they turn.
class FlagSignature {
 public:
  FlagSignature() = default;
  constexpr explicit FlagSignature(std::uint64_t signature) : bits_(signature & 0xffffff) {}
  constexpr std::uint64_t flag(std::uint64_t sequence) const { return sequence << 24 | bits_; }

 private:
  std::uint64_t bits_ = 0;
};
constexpr std::uint64_t message_flag(std::uint64_t sequence, std::uint64_t signature) {
  return FlagSignature(signature).flag(sequence);
}
constexpr std::uint64_t flag_sequence(std::uint64_t flag) { return flag >> 24; }

// Wakes the end that sleeps at `bell`, if it does. The store that it waits for came before. Without
// a full fence a wake-up can be missed; the sleeper's 1 ms bound covers that.
void ring(Bell& bell);

inline void ring_if_sleeping(Bell& bell) {
  if (bell.sleeping.load(std::memory_order_relaxed) != 0) [[unlikely]]
    ring(bell);
}

// The sending end. Used by one thread at a time. `first` is what the counters in the memory stand
// at: what they began at, but for one that takes over a fifo in use.
class SlotWriter {
 public:
  SlotWriter() = default;
  explicit SlotWriter(const FifoView& view) : SlotWriter(view, view.shape.first) {}
  SlotWriter(const FifoView& view, std::uint64_t first)
      : view_(view), tail_(first), head_seen_(first) {}
  // At the beginning of a fifo. The pool outlives it.
  SlotWriter(const FifoView& view, SlotPool* pool) : SlotWriter(view) { pool_ = pool; }

  // Room for as many messages.
  bool has_credit(std::uint64_t messages = 1) {
    if (tail_ + messages - head_seen_ <= view_.shape.slot_count) return true;
    refresh();
    return tail_ + messages - head_seen_ <= view_.shape.slot_count;
  }
  // Where the next message goes: without a pool, and in any case one of so many bytes.
  std::byte* place() const { return view_.slot(tail_); }
  std::byte* place(std::uint64_t bytes) const {
    return pool_ == nullptr ? view_.slot(tail_) : pool_->at(pool_->next(bytes), bytes);
  }
  // Whether the peer used that place last; false without a pool.
  bool goes_one_way() const { return pool_ != nullptr && pool_->goes_one_way(); }
  std::uint64_t tail() const { return tail_; }
  void commit(std::uint32_t bytes, std::uint64_t flag, DeliveryMode delivery) {
    SlotHeader& note = view_.note(tail_);
    note.bytes = bytes;
    note.delivery = delivery;
    note.place = pool_ == nullptr ? static_cast<SlotPlace>(tail_ & (view_.shape.slot_count - 1))
                                  : pool_->take(bytes).word();
    // Pairs with the acquire in SlotReader::look.
    std::atomic_ref(note.flag).store(flag, std::memory_order_release);
    // Pairs with the acquire in SlotReader::has_message.
    view_.control->tail.value.store(++tail_, std::memory_order_release);
    ring_if_sleeping(view_.control->receiver_bell);
  }
  // Everything committed has been released by the receiver.
  bool drained() { return released(tail_); }
  // What was committed until the tail stood there has been.
  bool released(std::uint64_t tail) {
    if (tail_ - head_seen_ <= tail_ - tail) return true;
    refresh();
    return tail_ - head_seen_ <= tail_ - tail;
  }
  // For the slot of a message that this end has read: the one that it gives back. Both as the
  // message's fifo has them.
  SlotPlace trade(MessagePlace read) {
    if (!pool_->may_keep()) refresh();
    read.slot = pool_->seen_from_peer(read.slot);
    return pool_->seen_from_peer(pool_->trade(read));
  }
  std::byte* read_place(MessagePlace read, std::uint64_t bytes) const {
    read.slot = pool_->seen_from_peer(read.slot);
    return pool_->at(read, bytes);
  }
  const FifoView& view() const { return view_; }

 private:
  void refresh() {
    // Pairs with the release in SlotReader::release. A head beyond the tail is the peer's lie.
    const std::uint64_t head = view_.control->head.value.load(std::memory_order_acquire);
    if (head - head_seen_ > tail_ - head_seen_) return;
    if (pool_ == nullptr) {
      head_seen_ = head;
      return;
    }
    for (; head_seen_ != head; ++head_seen_)
      pool_->add(view_.released(head_seen_).load(std::memory_order_relaxed));
  }

  FifoView view_;
  SlotPool* pool_ = nullptr;
  std::uint64_t tail_ = 0;
  std::uint64_t head_seen_ = 0;
};

// The receiving end. Used by one thread at a time.
class SlotReader {
 public:
  SlotReader() = default;
  explicit SlotReader(const FifoView& view) : SlotReader(view, view.shape.first) {}
  SlotReader(const FifoView& view, std::uint64_t first)
      : view_(view), head_(first), tail_seen_(first) {}
  // Before this end sends anything, by the writer of the other direction, which has a pool. Until
  // then the peer, which may have one, has slots of this fifo alone.
  void trade_with(SlotWriter* back) { back_ = back; }

  bool has_message() { return has_messages(1); }
  bool has_messages(std::uint64_t count) {
    if (tail_seen_ - head_ >= count) return true;
    // Pairs with the release in SlotWriter::commit. A tail out of bounds is the peer's lie.
    const std::uint64_t tail = view_.control->tail.value.load(std::memory_order_acquire);
    if (tail - head_ <= view_.shape.slot_count) tail_seen_ = tail;
    return tail_seen_ - head_ >= count;
  }
  // The same of the next message and of a call, by the message's flag alone: the tail, which is not
  // in that cache line, need not come from the other end's cache.
  MessageState look(std::uint64_t signature) {
    const std::uint64_t wanted = message_flag(head_ + 1, signature);
    // Pairs with the release in SlotWriter::commit.
    const std::uint64_t flag =
        std::atomic_ref(view_.note(head_).flag).load(std::memory_order_acquire);
    if (flag != wanted)
      return flag_sequence(flag) == flag_sequence(wanted) ? MessageState::other_call
                                                          : MessageState::waiting;
    if (tail_seen_ == head_) ++tail_seen_;
    return MessageState::here;
  }
  // Of the next message: without a pool, and in any case one of so many bytes, a slot's at most.
  const std::byte* place() const { return view_.slot(message_place().slot); }
  const std::byte* place(std::uint64_t bytes) const {
    const MessagePlace place = message_place();
    if (back_ != nullptr) return back_->read_place(place, bytes);
    return view_.slot(place.slot) + view_.shape.parts().offset(place.part, bytes);
  }
  // A copy, read once: the peer may write it again at any time, also between a check and a use.
  // Of the next message, or of one that comes so much later.
  SlotHeader note(std::uint64_t later = 0) const {
    SlotHeader& note = view_.note(head_ + later);
    return {std::atomic_ref(note.flag).load(std::memory_order_relaxed),
            std::atomic_ref(note.bytes).load(std::memory_order_relaxed),
            std::atomic_ref(note.delivery).load(std::memory_order_relaxed),
            std::atomic_ref(note.place).load(std::memory_order_relaxed)};
  }
  std::uint64_t head() const { return head_; }
  void release() {
    if (view_.shape.slot_count <= max_pooled_slots)
      view_.released(head_).store(given_back(), std::memory_order_relaxed);
    // Pairs with the acquire in SlotWriter::refresh.
    view_.control->head.value.store(++head_, std::memory_order_release);
    ring_if_sleeping(view_.control->sender_bell);
  }
  const FifoView& view() const { return view_; }

 private:
  // Whatever the peer says, it is one of this link.
  MessagePlace message_place() const {
    const auto said = std::atomic_ref(view_.note(head_).place).load(std::memory_order_relaxed);
    return MessagePlace::from(said, view_.shape.slot_count);
  }
  SlotPlace given_back() {
    const MessagePlace place = message_place();
    return back_ == nullptr ? place.slot : back_->trade(place);
  }

  FifoView view_;
  SlotWriter* back_ = nullptr;
  std::uint64_t head_ = 0;
  std::uint64_t tail_seen_ = 0;
};

// How many lines a message of `bytes` takes; a token takes one.
constexpr std::uint32_t lines_for(std::uint64_t bytes) {
  return bytes == 0
             ? 1
             : static_cast<std::uint32_t>((bytes + line_payload_bytes - 1) / line_payload_bytes);
}

// What is at most as long as a line's payload: in whole words, as a load of words waits for what
// was stored in smaller parts.
[[gnu::always_inline]] inline void copy_within_line(std::byte* to, const std::byte* from,
                                                    std::uint32_t bytes) {
  constexpr std::uint32_t word = 8;
  const auto copy = [=](std::uint32_t at, auto value) {
    std::memcpy(&value, from + at, sizeof value);
    std::memcpy(to + at, &value, sizeof value);
  };
  if (bytes == word) return copy(0, std::uint64_t{});
  if (bytes < word) {
    for (std::uint32_t at = 0; at < bytes; ++at) copy(at, std::uint8_t{});
    return;
  }
  std::uint32_t at = 0;
  for (; at + word <= bytes; at += word) copy(at, std::uint64_t{});
  if (at < bytes) copy(bytes - word, std::uint64_t{});
}

// A part of a message of several lines. That of a whole line takes few wide stores: a store waits
// in the core until the line has come from the other core, and more stores than it has room for
// stop it.
[[gnu::always_inline]] inline void copy_part_of_lines(std::byte* to, const std::byte* from,
                                                      std::uint64_t bytes) {
  if (bytes == line_payload_bytes) [[likely]]
    std::memcpy(to, from, line_payload_bytes);
  else
    copy_within_line(to, from, static_cast<std::uint32_t>(bytes));
}

// The longest message that the line protocol carries: the reader returns credit in quarters, so the
// last quarter may be owed while the writer waits.
constexpr std::uint32_t max_lines(const FifoShape& shape) {
  return shape.line_count - std::max(shape.line_count / 4, 1U) + 1;
}
constexpr std::uint64_t max_line_message_bytes(const FifoShape& shape) {
  return std::uint64_t{max_lines(shape)} * line_payload_bytes;
}

// Of lines in a ring that begins at `first`.
inline Line* line_after(Line* line, Line* first, const Line* end) {
  return line + 1 != end ? line + 1 : first;
}

// The sending end of the line protocol. Used by one thread at a time.
class LineWriter {
 public:
  LineWriter() = default;
  explicit LineWriter(const FifoView& view) : LineWriter(view, view.shape.first) {}
  LineWriter(const FifoView& view, std::uint64_t first)
      : view_(view),
        line_(view.place_of_line(first)),
        lines_end_(view.lines_end()),
        next_(first),
        end_(first + view.shape.line_count) {}
  // Room for a message of `lines`, at most max_lines(shape).
  bool has_credit(std::uint32_t lines) {
    if (end_ - next_ >= lines) [[likely]]
      return true;
    refresh();
    return end_ - next_ >= lines;
  }
  // Copies the message out, line by line.
  void write(const std::byte* message, std::uint64_t bytes, std::uint64_t signature);
  // The same of a message of one line, which its maker has put in place.
  std::byte* place() const { return line_->payload; }
  void commit_line(FlagSignature signature) {
    Line& line = *line_;
    line_ = line_after(line_, view_.lines, lines_end_);
    // Pairs with the acquire in LineReader::poll_lines.
    line.flag.store(signature.flag(++next_), std::memory_order_release);
    ring_if_sleeping(view_.control->receiver_bell);
  }
  const FifoView& view() const { return view_; }

 private:
  void refresh() {
    const std::uint64_t lines = view_.shape.line_count;
    // Pairs with the release in LineReader::give_credit. What frees lines that were never written,
    // or fewer than before, is the peer's lie.
    const std::uint64_t end =
        view_.control->line_head.value.load(std::memory_order_acquire) + lines;
    if (end - end_ <= next_ + lines - end_) end_ = end;
  }

  FifoView view_;
  Line* line_ = nullptr;  // the next one
  const Line* lines_end_ = nullptr;
  std::uint64_t next_ = 0;
  std::uint64_t end_ = 0;  // of the lines that are free
};

// The receiving end of the line protocol. Used by one thread at a time.
class LineReader {
 public:
  LineReader() = default;
  explicit LineReader(const FifoView& view) : LineReader(view, view.shape.first) {}
  LineReader(const FifoView& view, std::uint64_t first)
      : view_(view),
        line_(view.place_of_line(first)),
        lines_end_(view.lines_end()),
        next_(first),
        max_owed_(view.shape.line_count / 4) {}
  // Whether all lines of a message of `bytes` are here and belong to the call of `signature`.
  MessageState poll(std::uint64_t bytes, std::uint64_t signature) {
    return poll_lines(lines_for(bytes), signature);
  }
  MessageState poll_lines(std::uint32_t lines, std::uint64_t signature) {
    while (here_ < lines) {
      // Pairs with the releases in LineWriter.
      const std::uint64_t flag = view_.line(next_ + here_).flag.load(std::memory_order_acquire);
      const std::uint64_t wanted = message_flag(next_ + here_ + 1, signature);
      if (flag != wanted)
        return flag_sequence(flag) == flag_sequence(wanted) ? MessageState::other_call
                                                            : MessageState::waiting;
      ++here_;
    }
    return MessageState::here;
  }
  // The same of a message of one line; false says nothing of why.
  bool has_line(FlagSignature signature) const {
    // Pairs with the releases in LineWriter.
    return line_->flag.load(std::memory_order_acquire) == signature.flag(next_ + 1);
  }
  // The message: in the line itself if it fits one, else copied to `staging`.
  const std::byte* read(std::uint64_t bytes, std::byte* staging) const;
  const std::byte* place() const { return line_->payload; }
  const std::byte* place(std::uint32_t line) const { return view_.line(next_ + line).payload; }
  void release(std::uint64_t bytes) { release_lines(lines_for(bytes)); }
  void release_lines(std::uint32_t lines) {
    next_ += lines;
    line_ = &view_.line(next_);
    end_release(lines);
  }
  // The same of a message of one line.
  void release_line() {
    ++next_;
    line_ = line_after(line_, view_.lines, lines_end_);
    end_release(1);
  }

 private:
  void end_release(std::uint32_t lines) {
    here_ = 0;
    // Credit goes back in quarters: a store to the shared counter for each message would cost the
    // sender a miss each time.
    owed_ += lines;
    if (owed_ >= max_owed_) [[unlikely]]
      give_credit();
  }
  [[gnu::noinline]] void give_credit() {
    owed_ = 0;
    // Pairs with the acquire in LineWriter::refresh.
    view_.control->line_head.value.store(next_, std::memory_order_release);
    ring_if_sleeping(view_.control->sender_bell);
  }

  FifoView view_;
  Line* line_ = nullptr;  // the next one
  const Line* lines_end_ = nullptr;
  std::uint64_t next_ = 0;
  std::uint32_t here_ = 0;  // lines of the next message already seen
  std::uint32_t owed_ = 0;  // lines read since line_head was written
  std::uint32_t max_owed_ = 0;
};

}  // namespace gyre::transport
