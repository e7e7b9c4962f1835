// lib/transport/slots: both protocols between two threads, across the wrap-around of counters, and
// with words that the other end could have written wrongly.
#include "lib/transport/slots.h"

#include "lib/transport/mapped.h"
#include "tests/support/catch.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace slots_test {

using namespace gyre;
using namespace gyre::transport;

namespace {

constexpr std::uint64_t signature = 0x123456789abcdef;

std::shared_ptr<FifoMemory> make_fifo(const FifoShape& shape, std::uint64_t first = 0) {
  auto memory = private_fifo(shape);
  REQUIRE(memory.ok());
  FifoControl& control = *(*memory)->view.control;
  control.tail.value = first;
  control.head.value = first;
  control.line_head.value = first;
  return *memory;
}

void fill(std::byte* place, std::size_t bytes, std::uint64_t number) {
  for (std::size_t i = 0; i < bytes; ++i)
    place[i] = static_cast<std::byte>((number * 131 + i * 7) & 0xff);
}

bool is_filled(const std::byte* place, std::size_t bytes, std::uint64_t number) {
  std::vector<std::byte> wanted(bytes);
  fill(wanted.data(), bytes, number);
  return bytes == 0 || std::memcmp(place, wanted.data(), bytes) == 0;
}

// The sizes of a run, the same at both ends.
std::vector<std::uint32_t> sizes_of(std::uint64_t seed, std::size_t count, std::uint64_t most) {
  std::mt19937_64 random(seed);
  std::vector<std::uint32_t> sizes(count);
  for (std::uint32_t& size : sizes) {
    const std::uint64_t drawn = random();
    const std::uint64_t small = drawn % 4 == 0 ? std::min<std::uint64_t>(40, most) : most;
    size = static_cast<std::uint32_t>(drawn % 16 == 1 ? most : (drawn >> 8) % (small + 1));
  }
  return sizes;
}

int exchange_slots(const FifoShape& shape, std::uint64_t seed, std::uint64_t first) {
  const auto memory = make_fifo(shape, first);
  const std::vector<std::uint32_t> sizes = sizes_of(seed, 2000, shape.slot_bytes);
  std::thread sender([&] {
    SlotWriter writer(memory->view, first);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      while (!writer.has_credit()) std::this_thread::yield();
      fill(writer.place(), sizes[i], i);
      const std::uint64_t flag = message_flag(writer.tail() + 1, signature);
      writer.commit(sizes[i], flag, DeliveryMode::staged);
    }
  });
  int wrong = 0;
  SlotReader reader(memory->view, first);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    // Now by the flag, now by the counter.
    const auto is_here = [&] {
      return sizes[i] % 2 == 0 ? reader.look(signature) == MessageState::here
                               : reader.has_message();
    };
    while (!is_here()) std::this_thread::yield();
    const SlotHeader note = reader.note();
    wrong += note.bytes != sizes[i] || note.flag != message_flag(reader.head() + 1, signature) ||
             note.delivery != DeliveryMode::staged || !is_filled(reader.place(), sizes[i], i);
    reader.release();
  }
  sender.join();
  return wrong + reader.has_message();
}

int exchange_lines(const FifoShape& shape, std::uint64_t seed, std::uint64_t first) {
  const auto memory = make_fifo(shape, first);
  const std::uint64_t most = max_line_message_bytes(shape);
  const std::vector<std::uint32_t> sizes = sizes_of(seed, 2000, most);
  std::thread sender([&] {
    LineWriter writer(memory->view, first);
    std::vector<std::byte> message(most);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      fill(message.data(), sizes[i], i);
      while (!writer.has_credit(lines_for(sizes[i]))) std::this_thread::yield();
      writer.write(message.data(), sizes[i], signature);
    }
  });
  int wrong = 0;
  LineReader reader(memory->view, first);
  std::vector<std::byte> staging(most);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    MessageState state = MessageState::waiting;
    while ((state = reader.poll(sizes[i], signature)) == MessageState::waiting)
      std::this_thread::yield();
    wrong += state != MessageState::here ||
             !is_filled(reader.read(sizes[i], staging.data()), sizes[i], i);
    reader.release(sizes[i]);
  }
  sender.join();
  return wrong;
}

// One end of a link whose slots change hands.
struct PooledEnd {
  PooledEnd(const FifoView& out, const FifoView& in)
      : pool(out.slots, in.slots, out.shape.slot_count, {out.shape.slot_bytes, true}),
        writer(out, &pool),
        reader(in) {
    reader.trade_with(&writer);
  }
  PooledEnd(const PooledEnd&) = delete;
  PooledEnd& operator=(const PooledEnd&) = delete;

  void send(std::uint32_t bytes, std::uint64_t number) {
    fill(writer.place(bytes), bytes, number);
    writer.commit(bytes, message_flag(writer.tail() + 1, signature), DeliveryMode::staged);
  }
  bool takes(std::uint32_t bytes, std::uint64_t number) {
    const SlotHeader note = reader.note();
    const bool is_right = note.bytes == bytes && is_filled(reader.place(bytes), bytes, number);
    reader.release();
    return is_right;
  }

  SlotPool pool;
  SlotWriter writer;
  SlotReader reader;
};

// Both ends send all sizes, in bursts of at most `burst`, and take what is here in between.
int exchange_pooled(const FifoShape& shape, std::uint64_t seed, std::size_t burst) {
  const auto there = make_fifo(shape), back = make_fifo(shape);
  const std::vector<std::uint32_t> sizes = sizes_of(seed, 3000, shape.slot_bytes);
  const auto run = [&](const FifoView& out, const FifoView& in) {
    PooledEnd end(out, in);
    std::size_t sent = 0, taken = 0;
    int wrong = 0;
    while (sent < sizes.size() || taken < sizes.size()) {
      for (std::size_t i = 0; i < burst && sent < sizes.size() && end.writer.has_credit(); ++i)
        end.send(sizes[sent], sent), ++sent;
      for (; taken < sizes.size() && end.reader.has_message(); ++taken)
        wrong += !end.takes(sizes[taken], taken);
      std::this_thread::yield();
    }
    return wrong;
  };
  int wrong_there = 0;
  std::thread peer([&] { wrong_there = run(back->view, there->view); });
  const int wrong = run(there->view, back->view);
  peer.join();
  return wrong + wrong_there;
}

}  // namespace

TEST_CASE("slots that change hands carry every message both ways", "[slots]") {
  const std::uint64_t seed = GENERATE(1, 2);
  const std::uint32_t count = GENERATE(1U, 2U, 4U, 16U);
  const std::size_t burst = GENERATE(std::size_t{1}, std::size_t{3}, std::size_t{16});
  CAPTURE(seed, count, burst);
  const std::uint64_t slot_bytes = GENERATE(1024, 4 * min_spread_bytes);
  CHECK(exchange_pooled({count, 2, slot_bytes}, seed, burst) == 0);
}

TEST_CASE("an end writes its next message where it has read the last one", "[slots]") {
  const FifoShape shape{4, 2, 1024};
  const auto there = make_fifo(shape), back = make_fifo(shape);
  PooledEnd a(there->view, back->view), b(back->view, there->view);
  for (std::uint64_t round = 0; round < 20; ++round) {
    CAPTURE(round);
    REQUIRE((a.writer.has_credit() && b.writer.has_credit()));
    a.send(700, 2 * round);
    b.send(900, 2 * round + 1);
    REQUIRE((a.reader.has_message() && b.reader.has_message()));
    const std::byte* const read_by_a = a.reader.place(900);
    const std::byte* const read_by_b = b.reader.place(700);
    CHECK(a.takes(900, 2 * round + 1));
    CHECK(b.takes(700, 2 * round));
    CHECK(a.writer.place(700) == read_by_a);
    CHECK(b.writer.place(900) == read_by_b);
  }
}

TEST_CASE("messages of one way lie at all parts of their slots before a place comes again",
          "[slots]") {
  constexpr std::uint32_t bytes = min_spread_bytes;
  const FifoShape shape{4, 2, 4 * bytes};
  const auto there = make_fifo(shape), back = make_fifo(shape);
  PooledEnd a(there->view, back->view), b(back->view, there->view);
  std::vector<const std::byte*> places;
  // A slot a message and four parts each, as the other direction's slots come to be used too.
  constexpr std::uint64_t distinct = 4 * 4;
  for (std::uint64_t number = 0; number < 4 * distinct; ++number) {
    CAPTURE(number);
    REQUIRE(a.writer.has_credit());
    places.push_back(a.writer.place(bytes));
    a.send(bytes, number);
    REQUIRE(b.reader.has_message());
    CHECK(b.takes(bytes, number));
    const std::size_t before = std::min<std::size_t>(number, distinct - 1);
    CHECK(std::count(places.end() - 1 - static_cast<std::ptrdiff_t>(before), places.end() - 1,
                     places.back()) == 0);
  }
}

TEST_CASE("an end that reads a part of a slot writes its next message there", "[slots]") {
  constexpr std::uint32_t bytes = min_spread_bytes;
  const FifoShape shape{2, 2, 4 * bytes};
  const auto there = make_fifo(shape), back = make_fifo(shape);
  PooledEnd a(there->view, back->view), b(back->view, there->view);
  for (std::uint64_t number = 0; number < 9; ++number) {
    REQUIRE(a.writer.has_credit());
    a.send(bytes, number);
    REQUIRE(b.reader.has_message());
    const std::byte* const read = b.reader.place(bytes);
    CHECK(b.takes(bytes, number));
    REQUIRE(b.writer.has_credit());
    CHECK(b.writer.place(bytes) == read);
    b.send(bytes, number);
    REQUIRE(a.reader.has_message());
    CHECK(a.takes(bytes, number));
  }
}

TEST_CASE("slots of one way come back in any number", "[slots]") {
  const FifoShape shape{4, 2, 1024};
  const auto there = make_fifo(shape), back = make_fifo(shape);
  PooledEnd a(there->view, back->view), b(back->view, there->view);
  for (std::uint64_t round = 0; round < 20; ++round) {
    for (std::uint64_t i = 0; i < 4; ++i) {
      REQUIRE(a.writer.has_credit());
      a.send(1000, 4 * round + i);
    }
    CHECK_FALSE(a.writer.has_credit());
    for (std::uint64_t i = 0; i < 4; ++i) {
      REQUIRE(b.reader.has_message());
      CHECK(b.takes(1000, 4 * round + i));
    }
  }
}

TEST_CASE("slots carry every message whole and in order between two threads", "[slots]") {
  const std::uint64_t seed = GENERATE(1, 2, 3);
  const std::uint32_t count = GENERATE(1U, 2U, 8U);
  CAPTURE(seed, count);
  CHECK(exchange_slots({count, 2, 1024}, seed, 0) == 0);
}

TEST_CASE("lines carry every message whole and in order between two threads", "[slots]") {
  const std::uint64_t seed = GENERATE(1, 2, 3);
  const std::uint32_t count = GENERATE(1U, 2U, 4U, 64U);
  CAPTURE(seed, count);
  CHECK(exchange_lines({2, count, 128}, seed, 0) == 0);
}

TEST_CASE("counters pass the end of their numbers", "[slots]") {
  const std::uint64_t before_64_bits = ~std::uint64_t{0} - 500;
  CHECK(exchange_slots({4, 2, 512}, 5, before_64_bits) == 0);
  CHECK(exchange_lines({2, 16, 128}, 6, before_64_bits) == 0);
  // A flag keeps 40 bits of a line's number.
  CHECK(exchange_lines({2, 16, 128}, 7, (std::uint64_t{1} << 40) - 500) == 0);
}

TEST_CASE("a sender has exactly as much credit as there are slots", "[slots]") {
  const auto memory = make_fifo({4, 2, 128});
  SlotWriter writer(memory->view);
  SlotReader reader(memory->view);
  for (int i = 0; i < 4; ++i) {
    REQUIRE(writer.has_credit());
    writer.commit(0, message_flag(1, signature), DeliveryMode::staged);
  }
  CHECK_FALSE(writer.has_credit());
  CHECK_FALSE(writer.drained());
  REQUIRE(reader.has_message());
  reader.release();
  REQUIRE(writer.has_credit());
  writer.commit(0, message_flag(2, signature), DeliveryMode::staged);
  CHECK_FALSE(writer.has_credit());
  while (reader.has_message()) reader.release();
  CHECK(writer.drained());
}

TEST_CASE("a sleeper is rung once, however many messages come before it runs", "[slots]") {
  const FifoShape shape{4, 16, 4096};
  const auto memory = make_fifo(shape);
  Bell& bell = memory->view.control->receiver_bell;
  SlotWriter slots(memory->view);
  LineWriter lines(memory->view);
  const auto send_all = [&] {
    slots.commit(1, message_flag(slots.tail() + 1, signature), DeliveryMode::staged);
    for (int i = 0; i < 3; ++i) lines.write(nullptr, 0, signature);
  };
  send_all();
  CHECK(bell.rung == 0);  // nobody sleeps
  for (const std::uint32_t sleeps : {1U, 2U}) {
    WaitSet set;
    arm_bell(bell, set);
    if (sleeps == 1) send_all();
    lines.write(nullptr, 0, signature);
    CHECK(bell.rung == sleeps);
    disarm_bell(bell);
  }
}

TEST_CASE("the longest line message finds credit wherever the fifo stands", "[slots]") {
  for (const std::uint32_t count : {1U, 2U, 4U, 8U, 128U}) {
    const FifoShape shape{2, count, 128};
    for (std::uint32_t before = 0; before < 2 * count; ++before) {
      const auto memory = make_fifo(shape);
      LineWriter writer(memory->view);
      LineReader reader(memory->view);
      for (std::uint32_t i = 0; i < before; ++i) {
        REQUIRE(writer.has_credit(1));
        writer.write(nullptr, 0, signature);
        REQUIRE(reader.poll(0, signature) == MessageState::here);
        reader.release(0);
      }
      CAPTURE(count, before);
      CHECK(writer.has_credit(max_lines(shape)));
    }
  }
}

TEST_CASE("a line of another call is told from one that has not come", "[slots]") {
  const auto memory = make_fifo({2, 4, 128});
  LineWriter writer(memory->view);
  LineReader reader(memory->view);
  CHECK(reader.poll(8, signature) == MessageState::waiting);
  const std::byte message[8] = {};
  writer.write(message, sizeof message, signature);
  CHECK(reader.poll(8, signature + 1) == MessageState::other_call);
  CHECK(reader.poll(8, signature) == MessageState::here);
  // What an earlier lap left behind is no message.
  reader.release(8);
  for (int i = 0; i < 3; ++i) {
    writer.write(message, sizeof message, signature);
    REQUIRE(reader.poll(8, signature) == MessageState::here);
    reader.release(8);
  }
  CHECK(reader.poll(8, signature) == MessageState::waiting);
}

TEST_CASE("no word in the memory leads an end out of its fifo", "[slots]") {
  const FifoShape shape{4, 8, 128};
  const auto memory = make_fifo(shape);
  FifoControl& control = *memory->view.control;
  SlotWriter writer(memory->view);
  SlotReader reader(memory->view);
  LineWriter lines(memory->view);
  for (int i = 0; i < 2; ++i) writer.commit(1, 0, DeliveryMode::staged);
  const std::byte* begin = memory->view.slots;
  const std::byte* end = begin + shape.slot_count * shape.slot_bytes;
  std::mt19937_64 random(9);
  int committed = 2, released = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t lie = random() >> random() % 64;
    if (i % 2 == 0) control.tail.value = lie;
    if (i % 3 == 0) control.head.value = lie;
    control.line_head.value = random();
    memory->view.note(reader.head()).bytes = static_cast<std::uint32_t>(random());
    if (reader.has_message() && i % 5 == 0) reader.release(), ++released;
    if (writer.has_credit() && i % 7 == 0) writer.commit(1, 0, DeliveryMode::staged), ++committed;
    REQUIRE(reader.place() >= begin);
    REQUIRE(reader.place() + shape.slot_bytes <= end);
    REQUIRE(writer.place() + shape.slot_bytes <= end);
    REQUIRE(note_fits(reader.note(), shape) == (reader.note().bytes <= shape.slot_bytes));
    if (lines.has_credit(1)) lines.write(nullptr, 0, signature);
  }
  // The lies within the window were believed, so the case did something.
  CHECK(committed > 4);
  CHECK(released > 4);
}

TEST_CASE("no word in the memory leads an end out of the slots of its link", "[slots]") {
  const FifoShape shape{
      .slot_count = 4, .line_count = 8, .slot_bytes = 4 * min_spread_bytes, .spreads = true};
  const auto there = make_fifo(shape), back = make_fifo(shape);
  PooledEnd end(there->view, back->view);
  SlotReader early(back->view);  // its end cannot send yet
  const auto is_within = [&](const std::byte* place, std::uint64_t bytes) {
    return std::ranges::any_of(
        std::array{there->view.slots, back->view.slots}, [&](const std::byte* slots) {
          return place >= slots && place + bytes <= slots + 4 * shape.slot_bytes &&
                 static_cast<std::uint64_t>(place - slots) % shape.slot_bytes + bytes <=
                     shape.slot_bytes;
        });
  };
  std::mt19937_64 random(10);
  int committed = 0, released = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t lie = random() >> random() % 64;
    if (i % 2 == 0) back->view.control->tail.value = lie;
    if (i % 3 == 0) there->view.control->head.value = lie;
    there->view.released(random()).store(static_cast<SlotPlace>(random()));
    back->view.note(end.reader.head()).place = static_cast<SlotPlace>(random());
    const std::uint64_t bytes = random() % (shape.slot_bytes + 1);
    REQUIRE(is_within(early.place(bytes), bytes));
    if (end.reader.has_message()) {
      REQUIRE(is_within(end.reader.place(bytes), bytes));
      if (i % 5 == 0) end.reader.release(), ++released;
    }
    if (!end.writer.has_credit()) continue;
    REQUIRE(is_within(end.writer.place(bytes), bytes));
    if (i % 7 == 0)
      end.writer.commit(static_cast<std::uint32_t>(bytes), 0, DeliveryMode::staged), ++committed;
  }
  CHECK(committed > 4);
  CHECK(released > 4);
}

TEST_CASE("a counter beyond what was sent is not believed", "[slots]") {
  const auto memory = make_fifo({4, 8, 128});
  FifoControl& control = *memory->view.control;
  SlotReader reader(memory->view);
  for (const std::uint64_t tail : {std::uint64_t{5}, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    control.tail.value = tail;
    CHECK_FALSE(reader.has_message());
  }
  control.tail.value = 0;
  SlotWriter writer(memory->view);
  for (int i = 0; i < 4; ++i) writer.commit(0, 0, DeliveryMode::staged);
  for (const std::uint64_t head : {std::uint64_t{5}, ~std::uint64_t{0}}) {
    control.head.value = head;
    CHECK_FALSE(writer.has_credit());
  }
  LineWriter lines(memory->view);
  for (int i = 0; i < 8; ++i) lines.write(nullptr, 0, signature);
  control.line_head.value = 9;
  CHECK_FALSE(lines.has_credit(1));
  control.line_head.value = 8;
  CHECK(lines.has_credit(1));
}

TEST_CASE("a shape that no fifo can have is refused", "[slots]") {
  for (const FifoShape& shape :
       {FifoShape{0, 2, 128}, FifoShape{3, 2, 128}, FifoShape{4, 0, 128}, FifoShape{4, 2, 0},
        FifoShape{4, 2, 100}, FifoShape{4, 2, std::uint64_t{1} << 33},
        FifoShape{1 << 20, 2, std::uint64_t{1} << 31}, FifoShape{1U << 31, 2, 128}})
    CHECK(private_fifo(shape).status().code() == Code::InvalidArgument);
  CHECK(private_fifo({1, 1, 128}).ok());
}

}  // namespace slots_test
