// Parts of messages that come over several tcp sockets, from a peer that may lie. Each is taken
// exactly if it fits what has come of its message. A message is committed once all of it is there,
// after those before it, with the bytes of its parts. Input: pieces of five bytes:
//   u8 message, counted from the first that is not committed     u8 offset     u8 bytes
//   u8 flags: 1: the last part; 2: of another call               u8 what is read meanwhile: 1: the
//   first of the parts that have begun is there; 2: the rank takes a message
#include "lib/transport/mapped.h"
#include "lib/transport/slots.h"
#include "tests/fuzz/input.h"
#include "transports/tcp/inbound.h"

#include <array>
#include <bitset>
#include <deque>
#include <map>

namespace tcp_parts_fuzz {

using namespace gyre;
using namespace gyre::transport;

namespace {

constexpr FifoShape shape = {.slot_count = 4, .line_count = 4, .slot_bytes = 256};
constexpr std::size_t none = 1000;

// What a message is by the simplest reading.
struct ReadMessage {
  std::bitset<256> begun, landed;
  std::size_t parts = 0;
  std::size_t end = none;
  std::uint64_t signature = 0;

  bool is_whole() const { return end != none && landed.count() == end; }
};

class PartsTrial {
 public:
  void offer(std::uint8_t message, std::uint8_t offset, std::uint8_t bytes, std::uint8_t flags);
  void land_one();
  void take_one();
  void land_all() {
    while (!open_.empty()) land_one();
  }

 private:
  bool is_right(const WireHeader& part) const;
  void check_committed();
  static std::byte byte_at(std::uint64_t number, std::size_t place) {
    return static_cast<std::byte>(number * 31 + place);
  }

  const std::shared_ptr<FifoMemory> memory_ = std::move(private_fifo(shape)).value();
  InboundMessages inbound_{memory_->view};
  SlotReader in_{memory_->view};
  std::map<std::uint64_t, ReadMessage> messages_;  // that are not taken
  std::deque<WireHeader> open_;                    // parts that have begun
};

bool PartsTrial::is_right(const WireHeader& part) const {
  const std::size_t end = std::size_t{part.offset} + part.bytes;
  const auto found = messages_.find(part.sequence);
  if (found == messages_.end()) return true;
  const ReadMessage& message = found->second;
  for (std::size_t place = part.offset; place < end; ++place)
    if (message.begun[place]) return false;
  const bool is_last = (part.flags & wire_flag::more) == 0;
  if (is_last) {
    for (std::size_t place = end; place < shape.slot_bytes; ++place)
      if (message.begun[place]) return false;
  }
  return message.parts < max_rails && part.signature == message.signature &&
         (message.end == none || (!is_last && end <= message.end));
}

// As wire_fault lets parts pass: within a slot, and not empty but for a message that is whole.
void PartsTrial::offer(std::uint8_t message, std::uint8_t offset, std::uint8_t bytes,
                       std::uint8_t flags) {
  WireHeader part;
  part.sequence = inbound_.next() + message % 6;
  const bool is_empty = bytes == 0;
  part.offset = is_empty ? 0 : offset;
  part.bytes = bytes;
  part.flags = (flags & 1) != 0 || is_empty ? 0 : wire_flag::more;
  part.signature = message_flag(part.sequence + 1, (flags & 2) != 0 ? 6 : 5);
  const std::size_t end = std::size_t{part.offset} + part.bytes;
  if (end > shape.slot_bytes || !inbound_.has_room(part.sequence)) return;
  const bool is_right_part = is_right(part);
  const Result<std::byte*> place = inbound_.claim(part);
  GYRE_DEMAND(place.ok() == is_right_part);
  if (!place.ok()) return;
  GYRE_DEMAND(*place == memory_->view.slot(part.sequence) + part.offset);
  ReadMessage& read = messages_[part.sequence];
  if (read.parts++ == 0) read.signature = part.signature;
  for (std::size_t at = part.offset; at < end; ++at) read.begun.set(at);
  if ((part.flags & wire_flag::more) == 0) read.end = end;
  open_.push_back(part);
}

void PartsTrial::land_one() {
  if (open_.empty()) return;
  const WireHeader part = open_.front();
  open_.pop_front();
  for (std::size_t at = part.offset; at < std::size_t{part.offset} + part.bytes; ++at) {
    memory_->view.slot(part.sequence)[at] = byte_at(part.sequence, at);
    messages_[part.sequence].landed.set(at);
  }
  inbound_.take(part);
  check_committed();
}

void PartsTrial::check_committed() {
  std::uint64_t expected = in_.head();
  for (auto at = messages_.find(expected); at != messages_.end() && at->second.is_whole();
       at = messages_.find(expected))
    ++expected;
  GYRE_DEMAND(inbound_.next() == expected);
  GYRE_DEMAND(inbound_.has_gap() == (messages_.size() > expected - in_.head()));
}

void PartsTrial::take_one() {
  if (!in_.has_message()) return;
  const ReadMessage& message = messages_.at(in_.head());
  GYRE_DEMAND(message.is_whole() && in_.note().bytes == message.end);
  GYRE_DEMAND(in_.note().flag == message.signature);
  for (std::size_t at = 0; at < message.end; ++at)
    GYRE_DEMAND(in_.place()[at] == byte_at(in_.head(), at));
  messages_.erase(in_.head());
  in_.release();
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  PartsTrial trial;
  while (!input.empty()) {
    std::array<std::uint8_t, 5> piece{};
    for (std::uint8_t& one : piece) one = input.take<std::uint8_t>();
    trial.offer(piece[0], piece[1], piece[2], piece[3]);
    if ((piece[4] & 1) != 0) trial.land_one();
    if ((piece[4] & 2) != 0) trial.take_one();
  }
  trial.land_all();
  return 0;
}

GYRE_FUZZ_TARGET(tcp_parts)

}  // namespace tcp_parts_fuzz
