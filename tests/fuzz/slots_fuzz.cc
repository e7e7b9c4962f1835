// A peer that lies in shared memory: counters, notes and flags take any value at any time. This end
// never accesses memory outside the slots, never has more in flight than there is room for, and
// accepts an honest peer's messages. Input: u8 which end, u8 shape, u64 first, then acts: u8 kind
// and what it needs. A bit of the shape says that the link's slots change hands.
#include "tests/fuzz/fifo.h"
#include "tests/fuzz/input.h"

#include <numeric>

namespace slots_fuzz {

using namespace gyre;
using namespace gyre::transport;

namespace {

constexpr std::uint64_t signature = 0xabcdef;

FifoShape shape_of(std::uint8_t choice) {
  return {.slot_count = 1u << (choice & 3),
          .line_count = 1u << (choice >> 2 & 7),
          .slot_bytes = (choice & 0x40) != 0   ? 4 * min_spread_bytes
                        : (choice & 0x80) != 0 ? std::uint64_t{256}
                                               : std::uint64_t{128},
          .spreads = true};
}

bool has_pool(std::uint8_t choice) { return (choice & 0x20) != 0; }

// Near the value that an honest peer would write, or anything.
std::uint64_t a_number(fuzz::Input& input, std::uint64_t near) {
  if (input.take_flag()) return input.take<std::uint64_t>();
  return near + static_cast<std::uint64_t>(static_cast<std::int64_t>(input.take<std::int8_t>()));
}

void scribble(fuzz::Input& input, fuzz::Fifo& fifo) {
  const auto offset = input.take<std::uint32_t>();
  fifo.scribble(offset, input.take<std::uint8_t>());
}

void receive(fuzz::Input& input, fuzz::Fifo& fifo, std::uint64_t first, bool pooled) {
  const FifoView& view = fifo.view;
  view.control->tail.value = view.control->head.value = first;
  SlotReader reader(view, first);
  // The other direction, for a link whose slots change hands.
  const fuzz::Fifo back(view.shape);
  SlotPool pool(back.view.slots, view.slots, view.shape.slot_count, view.shape.parts());
  SlotWriter writer(back.view, &pool);
  if (pooled) reader.trade_with(&writer);
  std::uint64_t sum = 0;
  while (!input.empty()) {
    switch (input.take<std::uint8_t>() % 4) {
      case 0:
        view.control->tail.value = a_number(input, reader.head());
        break;
      case 1:
        view.note(reader.head()) = {input.take<std::uint64_t>(), input.take<std::uint32_t>(),
                                    DeliveryMode{input.take<std::uint16_t>()},
                                    input.take<SlotPlace>()};
        break;
      case 2:
        scribble(input, fifo);
        if (!pooled) break;
        back.view.control->head.value = a_number(input, writer.tail());
        back.view.released(writer.tail()).store(input.take<SlotPlace>());
        if (writer.has_credit()) writer.commit(0, 1, DeliveryMode::staged);
        break;
      default: {
        const std::uint64_t claimed = view.control->tail.value - reader.head();
        const bool here = reader.has_message();
        if (claimed >= 1 && claimed <= view.shape.slot_count) GYRE_DEMAND(here);
        if (!here) break;
        const SlotHeader note = reader.note();
        if (note_fits(note, view.shape))
          sum += std::accumulate(
              reader.place(note.bytes), reader.place(note.bytes) + note.bytes, std::uint64_t{0},
              [](std::uint64_t a, std::byte b) { return a + std::to_integer<std::uint64_t>(b); });
        const std::uint64_t head = reader.head();
        reader.release();
        GYRE_DEMAND(reader.head() == head + 1 && view.control->head.value == head + 1);
      }
    }
  }
  GYRE_DEMAND(sum < UINT64_MAX);
}

void send(fuzz::Input& input, fuzz::Fifo& fifo, std::uint64_t first, bool pooled) {
  const FifoView& view = fifo.view;
  view.control->tail.value = view.control->head.value = first;
  const fuzz::Fifo back(view.shape);
  SlotPool pool(view.slots, back.view.slots, view.shape.slot_count, view.shape.parts());
  SlotWriter writer = pooled && first == 0 ? SlotWriter(view, &pool) : SlotWriter(view, first);
  std::uint64_t released = first;  // the furthest that the peer could have meant
  const auto look = [&](std::uint64_t head) {
    if (head - released <= writer.tail() - released) released = head;
  };
  while (!input.empty()) {
    switch (input.take<std::uint8_t>() % 4) {
      case 0:
        view.control->head.value = a_number(input, released);
        break;
      case 1:
        scribble(input, fifo);
        break;
      case 2:
        if (writer.tail() != released) look(view.control->head.value);
        GYRE_DEMAND(writer.drained() == (writer.tail() == released));
        break;
      default: {
        const std::uint64_t head = view.control->head.value;
        const bool credit = writer.has_credit();
        if (credit && writer.tail() - released >= view.shape.slot_count) look(head);
        GYRE_DEMAND(!credit || writer.tail() - released < view.shape.slot_count);
        if (!credit) break;
        // Of a pool's, shorter ones begin anywhere in their slots.
        const std::uint64_t bytes = view.shape.slot_bytes >> (writer.tail() % 8);
        std::memset(writer.place(bytes), 0x5a, bytes);
        const std::uint64_t tail = writer.tail();
        writer.commit(static_cast<std::uint32_t>(bytes), 1, DeliveryMode::staged);
        GYRE_DEMAND(writer.tail() == tail + 1 && view.control->tail.value == tail + 1);
        GYRE_DEMAND(view.note(tail).bytes == bytes);
      }
    }
  }
}

std::uint64_t message_bytes(fuzz::Input& input, const FifoShape& shape) {
  return input.take<std::uint16_t>() % (max_line_message_bytes(shape) + 1);
}

void receive_lines(fuzz::Input& input, fuzz::Fifo& fifo, std::uint64_t first, bool) {
  const FifoView& view = fifo.view;
  LineReader reader(view, first);
  std::uint64_t next = first;
  std::uint64_t bytes = message_bytes(input, view.shape);
  std::vector<std::byte> staging(bytes);
  while (!input.empty()) {
    const std::uint32_t lines = lines_for(bytes);
    switch (input.take<std::uint8_t>() % 4) {
      case 0: {
        Line& line = view.line(next + input.take<std::uint8_t>());
        line.flag = a_number(input, message_flag(next, 0));
        break;
      }
      case 1:
        scribble(input, fifo);
        break;
      case 2:  // an honest peer
        for (std::uint64_t i = 0; i < lines; ++i)
          view.line(next + i).flag = message_flag(next + i + 1, signature);
        break;
      default: {
        bool honest = true;
        for (std::uint64_t i = 0; i < lines; ++i)
          honest &= view.line(next + i).flag == message_flag(next + i + 1, signature);
        const bool has_line = reader.has_line(FlagSignature(signature));
        const auto state = reader.poll(bytes, signature);
        GYRE_DEMAND(lines > 1 || has_line == (state == transport::MessageState::here));
        if (honest) GYRE_DEMAND(state == transport::MessageState::here);
        if (state != transport::MessageState::here) break;
        const std::byte* message = reader.read(bytes, staging.data());
        GYRE_DEMAND(bytes == 0 || std::memcmp(message, view.line(next).payload,
                                              std::min<std::uint64_t>(bytes, 56)) == 0);
        reader.release(bytes);
        next += lines;
        bytes = message_bytes(input, view.shape);
        staging.assign(bytes, std::byte{});
      }
    }
  }
}

void send_lines(fuzz::Input& input, fuzz::Fifo& fifo, std::uint64_t first, bool) {
  const FifoView& view = fifo.view;
  view.control->line_head.value = first;
  LineWriter writer(view, first);
  std::uint64_t next = first, released = first;
  while (!input.empty()) {
    switch (input.take<std::uint8_t>() % 3) {
      case 0:
        view.control->line_head.value = a_number(input, released);
        break;
      case 1:
        scribble(input, fifo);
        break;
      default: {
        const std::uint64_t bytes = message_bytes(input, view.shape);
        const std::uint32_t lines = lines_for(bytes);
        const std::uint64_t head = view.control->line_head.value;
        const bool credit = writer.has_credit(lines);
        // It looks at the peer's word only when it must.
        if (next + lines - released > view.shape.line_count && head - released <= next - released)
          released = head;
        GYRE_DEMAND(credit == (next + lines - released <= view.shape.line_count));
        if (!credit) break;
        const std::vector<std::byte> message(bytes, std::byte{0x5a});
        if (lines > 1 || bytes % 2 == 0) {
          writer.write(message.data(), bytes, signature);
        } else {
          copy_within_line(writer.place(), message.data(), static_cast<std::uint32_t>(bytes));
          writer.commit_line(FlagSignature(signature));
        }
        for (std::uint64_t i = 0; i < lines; ++i)
          GYRE_DEMAND(view.line(next + i).flag == message_flag(next + i + 1, signature));
        next += lines;
      }
    }
  }
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  constexpr void (*ends[])(fuzz::Input&, fuzz::Fifo&, std::uint64_t, bool) = {
      receive, send, receive_lines, send_lines};
  const auto end = ends[input.take<std::uint8_t>() % std::size(ends)];
  const auto shape = input.take<std::uint8_t>();
  fuzz::Fifo fifo(shape_of(shape));
  const auto first = input.take<std::uint64_t>();
  end(input, fifo, first, has_pool(shape));
  return 0;
}

GYRE_FUZZ_TARGET(slots)

}  // namespace slots_fuzz
