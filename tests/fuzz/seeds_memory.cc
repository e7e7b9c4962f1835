// Seeds of shared memory: slots and lines of a lying peer, and whole launches among such peers.
#include "lib/transport/slots.h"
#include "tests/fuzz/seeds.h"

namespace gyre::fuzz {
namespace {

enum End : std::uint8_t { receive, send, receive_lines, send_lines };
constexpr std::uint64_t near_the_end = ~std::uint64_t{0} - 2;

// Acts of `slots`; what each takes is in the target.
class Acts {
 public:
  explicit Acts(End end, std::uint64_t first = 0, std::uint8_t shape = 0x0a) : script_(end) {
    script_.number(shape).number(first);
  }
  Acts& near(std::int8_t distance) {
    script_.number(std::uint8_t{0}).number(std::uint8_t{0}).number(distance);
    return *this;
  }
  Acts& any(std::uint64_t number) {
    script_.number(std::uint8_t{0}).number(std::uint8_t{1}).number(number);
    return *this;
  }
  Acts& note(std::uint32_t bytes, std::uint32_t delivery) {
    script_.number(std::uint8_t{1}).number(std::uint64_t{1}).number(bytes).number(delivery);
    return *this;
  }
  Acts& line(std::uint8_t index, std::uint64_t flag) {
    script_.number(std::uint8_t{0}).number(index).number(std::uint8_t{1}).number(flag);
    return *this;
  }
  Acts& scribble(std::uint8_t kind, std::uint32_t offset) {
    script_.number(kind).number(offset).number(std::uint8_t{0xff});
    return *this;
  }
  Acts& plain(std::uint8_t kind) {
    script_.number(kind);
    return *this;
  }
  Acts& message(std::uint8_t kind, std::uint16_t bytes) {
    script_.number(kind).number(bytes);
    return *this;
  }
  Acts& next_bytes(std::uint16_t bytes) {
    script_.number(bytes);
    return *this;
  }
  operator Bytes() { return script_; }

 private:
  Script script_;
};

void add_slots(Seeds& seeds) {
  const auto add = [&](const char* name, Bytes bytes) {
    seeds.add("slots", name, std::move(bytes));
  };
  constexpr std::uint8_t look = 3, commit = 3, drain = 2, tell = 2, write = 2;
  add("receive_honest", Acts(receive).note(128, 0).near(1).plain(look).near(2).plain(look));
  add("receive_at_the_end",
      Acts(receive, near_the_end).near(2).plain(look).plain(look).near(4).plain(look));
  add("receive_tail_back", Acts(receive).near(-1).plain(look).near(1).plain(look));
  add("receive_tail_beyond", Acts(receive).near(5).plain(look).any(~0ULL).plain(look));
  add("receive_long_note", Acts(receive).note(129, 0).near(1).plain(look));
  add("receive_other_delivery", Acts(receive).note(~0u, 77).near(4).plain(look).scribble(2, 300));
  Acts sender(send);
  for (int i = 0; i < 6; ++i) sender.plain(commit);
  add("send_honest", sender.near(2).plain(drain).plain(commit).plain(commit).near(6).plain(drain));
  add("send_at_the_end",
      Acts(send, near_the_end).plain(commit).plain(commit).near(1).plain(commit).plain(commit));
  add("send_head_beyond", Acts(send).plain(commit).near(5).plain(drain).any(~0ULL).plain(commit));
  add("send_head_back",
      Acts(send).plain(commit).near(1).plain(drain).near(-1).plain(commit).scribble(1, 130));
  add("lines_received", Acts(receive_lines)
                            .next_bytes(8)
                            .plain(tell)
                            .message(3, 100)
                            .plain(tell)
                            .message(3, 0)
                            .plain(tell)
                            .message(3, 9));
  add("lines_at_the_end", Acts(receive_lines, near_the_end, 0x18)
                              .next_bytes(200)
                              .plain(tell)
                              .message(3, 200)
                              .plain(tell)
                              .message(3, 200)
                              .plain(tell)
                              .plain(3));
  add("lines_of_another_call",
      Acts(receive_lines).next_bytes(8).line(0, transport::message_flag(1, 5)).plain(3));
  add("lines_half_there",
      Acts(receive_lines).next_bytes(100).line(0, transport::message_flag(1, 0xabcdef)).plain(3));
  Acts writer(send_lines);
  for (int i = 0; i < 6; ++i) writer.message(write, 50);
  add("lines_sent", writer.near(2).message(write, 100).message(write, 0));
  add("lines_head_beyond", Acts(send_lines)
                               .message(write, 100)
                               .near(9)
                               .message(write, 170)
                               .any(~0ULL)
                               .message(write, 170)
                               .scribble(1, 200));
}

// Acts of `launch`.
class Call {
 public:
  Call(std::uint8_t algorithm, std::uint8_t protocol, std::uint8_t ranks, std::uint16_t elements)
      : script_(algorithm) {
    script_.number(protocol).number(static_cast<std::uint8_t>(ranks - 1)).number(elements);
  }
  Call& advance(std::uint8_t rank) {
    script_.number(std::uint8_t{0}).number(rank);
    return *this;
  }
  // kind: see the target. A lie about `number` in the fifo of that place.
  template <typename... More>
  Call& lie(std::uint8_t kind, std::uint8_t fifo, std::uint64_t number, More... more) {
    script_.number(kind).number(fifo).number(number);
    (script_.number(more), ...);
    return *this;
  }
  operator Bytes() { return script_; }

 private:
  Script script_;
};

enum Lie : std::uint8_t {
  note_bytes = 6,
  note_delivery,
  note_flag,
  tail,
  head,
  offset_of_input,
  offset_of_output,
  region_of_input,
  region_of_output,
  anything,
};

void add_launches(Seeds& seeds) {
  constexpr const char* algorithms[] = {"oneshot", "twoshot", "ring", "doubling", "tree"};
  constexpr const char* protocols[] = {"line", "simple", "direct"};
  enum : std::uint8_t { oneshot, twoshot, ring, doubling };
  enum : std::uint8_t { line, simple, direct };
  for (std::uint8_t a = 0; a < 5; ++a)
    for (std::uint8_t p = 0; p < 3; ++p)
      seeds.add("launch", std::string("honest_") + algorithms[a] + "_" + protocols[p],
                Call(a, p, static_cast<std::uint8_t>(2 + (a + p) % 3), 300).advance(1).advance(0));
  const auto add = [&](const char* name, Bytes bytes) {
    seeds.add("launch", name, std::move(bytes));
  };
  const auto two = [](std::uint8_t protocol) { return Call(oneshot, protocol, 2, 40).advance(0); };
  const auto shared = [] { return Call(twoshot, direct, 2, 300).advance(0); };
  using U32 = std::uint32_t;
  using U64 = std::uint64_t;
  add("honest_alone", Call(ring, simple, 1, 100));
  add("honest_empty", Call(ring, simple, 3, 0));
  add("lie_bytes", two(simple).lie(note_bytes, 0, 0, U32{1 << 20}).advance(1));
  add("lie_delivery_pull", two(simple).lie(note_delivery, 0, 0, U32{1}).advance(1));
  add("lie_delivery_push", two(simple).lie(note_delivery, 0, 0, U32{2}).advance(1));
  add("lie_flag", two(simple).lie(note_flag, 0, 0, U64{1}).advance(1));
  add("lie_sequence", two(simple).lie(note_flag, 0, 0, U64{1} << 30).advance(1));
  add("lie_tail", two(simple).lie(tail, 0, 3).advance(1));
  add("lie_tail_beyond", two(simple).lie(tail, 0, 1000).advance(1));
  add("lie_head", two(simple).lie(head, 0, 1000).advance(0));
  add("lie_line", two(line).lie(anything, 0, 0, U64{1}).advance(1));
  add("lie_lent_input", shared().lie(offset_of_input, 0, 4096).advance(1));
  add("lie_lent_input_far", shared().lie(offset_of_input, 0, U64{1} << 62).advance(1));
  add("lie_lent_output", shared().lie(offset_of_output, 1, 4096).advance(1).advance(0));
  add("lie_region", shared().lie(region_of_input, 0, 77, std::uint8_t{0}).advance(1));
  add("lie_same_process", shared().lie(region_of_input, 0, 1, std::uint8_t{0}).advance(1));
  add("lie_nothing_lent", shared().lie(region_of_output, 1, 0, std::uint8_t{0}).advance(1));
}

}  // namespace

void add_memory_seeds(Seeds& seeds) {
  add_slots(seeds);
  add_launches(seeds);
}

}  // namespace gyre::fuzz
