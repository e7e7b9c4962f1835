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
  Acts& note(std::uint32_t bytes, std::uint16_t delivery, std::uint16_t place = 0) {
    script_.number(std::uint8_t{1}).number(std::uint64_t{1}).number(bytes);
    script_.number(delivery).number(place);
    return *this;
  }
  // A scribble; then the peer gives a slot back, and this end sends.
  Acts& give_back(std::int8_t head, std::uint16_t place) {
    scribble(2, 300);
    script_.number(std::uint8_t{0}).number(head).number(place);
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

// Of links whose slots change hands.
void add_pooled_slots(Seeds& seeds) {
  constexpr std::uint8_t look = 3, commit = 3, drain = 2;
  constexpr std::uint8_t pooled = 0x2a, in_parts = 0x40 | pooled;
  seeds.add("slots", "receive_places",
            Acts(receive, 0, pooled)
                .note(128, 0, 3)
                .near(1)
                .plain(look)
                .note(128, 0, 7)
                .near(1)
                .plain(look)
                .give_back(0, 2)
                .give_back(1, 9)
                .note(128, 0, 0xffff)
                .near(2)
                .plain(look)
                .plain(look));
  seeds.add("slots", "receive_parts",
            Acts(receive, 0, in_parts)
                .note(8192, 0, 3 | 8 << 8)
                .near(1)
                .plain(look)
                .note(8192, 0, 3 | 25 << 8)
                .near(1)
                .plain(look)
                .note(32768, 0, 0xffff)
                .near(1)
                .plain(look));
  seeds.add("slots", "send_parts",
            Acts(send, 0, in_parts)
                .plain(commit)
                .plain(commit)
                .near(2)
                .plain(drain)
                .plain(commit)
                .plain(commit));
  seeds.add("slots", "send_places",
            Acts(send, 0, pooled)
                .plain(commit)
                .plain(commit)
                .scribble(1, 200)
                .near(2)
                .plain(drain)
                .plain(commit)
                .plain(commit)
                .plain(commit)
                .plain(commit)
                .plain(commit));
}

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
  constexpr const char* protocols[] = {"line", "simple", "direct", "short_run"};
  enum : std::uint8_t { oneshot, twoshot, ring, doubling };
  enum : std::uint8_t { line, simple, direct, short_run };
  for (std::uint8_t a = 0; a < 5; ++a)
    for (std::uint8_t p = 0; p < 4; ++p)
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
  add("lie_short_run_bytes", two(short_run).lie(note_bytes, 0, 0, U32{1 << 20}).advance(1));
  add("lie_short_run_delivery", two(short_run).lie(note_delivery, 0, 0, U32{2}).advance(1));
  add("lie_short_run_flag", two(short_run).lie(note_flag, 0, 0, U64{1}).advance(1));
  add("lie_short_run_tail", two(short_run).lie(tail, 0, 1000).advance(1));
  add("lie_head", two(simple).lie(head, 0, 1000).advance(0));
  add("lie_line", two(line).lie(anything, 0, 0, U64{1}).advance(1));
  add("lie_lent_input", shared().lie(offset_of_input, 0, 4096).advance(1));
  add("lie_lent_input_far", shared().lie(offset_of_input, 0, U64{1} << 62).advance(1));
  add("lie_lent_output", shared().lie(offset_of_output, 1, 4096).advance(1).advance(0));
  add("lie_region", shared().lie(region_of_input, 0, 77, std::uint8_t{0}).advance(1));
  add("lie_same_process", shared().lie(region_of_input, 0, 1, std::uint8_t{0}).advance(1));
  add("lie_nothing_lent", shared().lie(region_of_output, 1, 0, std::uint8_t{0}).advance(1));
}

// Acts of `mailbox`.
class Mail {
 public:
  explicit Mail(std::uint8_t flags) : script_(flags) {}
  Mail& send(std::uint16_t bytes, std::uint8_t tag = 0, std::uint8_t type = 1) {
    script_.number(std::uint8_t{0}).number(bytes).number(tag).number(type);
    return *this;
  }
  Mail& receive(std::uint16_t bytes, std::uint8_t tag = 0, std::uint8_t type = 1,
                std::uint8_t from_anyone = 0) {
    script_.number(std::uint8_t{2}).number(bytes).number(tag).number(type).number(from_anyone);
    return *this;
  }
  // The sender ships what it can and the receiver takes it, so often.
  Mail& pump(int times) {
    for (; times > 0; --times) script_.number(std::uint8_t{1}).number(std::uint8_t{3});
    return *this;
  }
  Mail& ship() {
    script_.number(std::uint8_t{1});
    return *this;
  }
  Mail& lie(std::uint32_t bytes, std::uint8_t delivery, std::uint64_t flag, Bytes content) {
    script_.number(std::uint8_t{4}).number(bytes).number(delivery).number(flag).block(content);
    return *this;
  }
  Mail& scribble(std::uint16_t offset) {
    script_.number(std::uint8_t{5}).number(offset).number(std::uint8_t{0xff});
    return *this;
  }
  // Of the grant's sequence, region, offset, bytes and descriptor.
  Mail& lie_in_grant(std::uint8_t word, std::uint64_t change) {
    script_.number(std::uint8_t{6}).number(word).number(change);
    return *this;
  }
  operator Bytes() { return script_; }

 private:
  Script script_;
};

void add_mail(Seeds& seeds) {
  const auto add = [&](const char* name, Bytes bytes) {
    seeds.add("mailbox", name, std::move(bytes));
  };
  const auto head = [](std::uint64_t bytes, std::int32_t tag, std::uint8_t type) {
    return Bytes(Script()
                     .number(bytes)
                     .number(tag)
                     .number(type)
                     .number(std::uint16_t{0})
                     .number(std::uint8_t{0}));
  };
  add("honest", Mail(2).receive(100).send(100).pump(2));
  add("honest_empty", Mail(2).receive(0).send(0).pump(1));
  add("honest_long", Mail(0).receive(1400, 3, 1, 1).send(1400).pump(20));
  add("honest_at_the_end", Mail(9).receive(1000).send(1000).pump(12).receive(3).send(3).pump(2));
  add("honest_unasked",
      Mail(2).receive(8, 1).send(900, 2).send(8, 1).pump(6).receive(900, 3).pump(1));
  add("honest_twice", Mail(2).send(5).send(6, 1).send(7).receive(7, 1).receive(5).pump(3));
  add("other_count", Mail(2).receive(100, 0, 7).send(96, 0, 7).pump(1));
  add("other_type_tagged", Mail(2).receive(8, 2, 7).send(8, 2, 6).pump(1));
  add("lie_short", Mail(2).receive(8).lie(8, 0, 0, {}).pump(1));
  add("lie_type", Mail(2).receive(8).lie(24, 0, 0, head(8, 0, 99)).pump(1));
  add("lie_tag", Mail(2).receive(8).lie(24, 0, 0, head(8, -1, 1)).pump(1));
  add("lie_more", Mail(2).receive(300).lie(256, 0, 0, head(300, 0, 1)).lie(256, 0, 0, {}).pump(2));
  add("lie_huge", Mail(2).receive(8).lie(16, 0, 0, head(1ULL << 46, 2, 1)).pump(1));
  add("lie_absurd", Mail(2).receive(8).lie(16, 0, 0, head(1ULL << 60, 0, 1)).pump(1));
  add("lie_flag", Mail(2).receive(8).lie(24, 0, 1, head(8, 0, 1)).pump(1));
  add("lie_delivery", Mail(2).receive(8).lie(24, 1, 0, head(8, 0, 1)).pump(1));
  add("lie_length", Mail(2).receive(8).lie(257, 0, 0, head(8, 0, 1)).pump(1));
  add("scribbled", Mail(2).receive(8).send(8).pump(1).scribble(0).send(8).receive(8).pump(1));
  // Messages in lines; a lie whose delivery is even is a line. A receive of kind 2 is at once.
  constexpr std::uint8_t lines = 16, now = 2;
  add("lines", Mail(lines).receive(8).send(8).pump(1).receive(544).send(544).pump(1));
  add("lines_at_the_end",
      Mail(lines | 8).receive(100).send(100).pump(1).receive(8).send(8).pump(1));
  add("lines_long", Mail(lines).receive(1400).receive(433).send(1400).send(433).pump(20));
  add("lines_unasked",
      Mail(lines).receive(8, 1).send(900, 2).send(8, 1).pump(6).receive(900, 3).pump(1));
  add("lines_now", Mail(lines).send(8).send(100, 1).send(0).pump(1).receive(8, 0, 1, now));
  add("lines_now_all", Mail(lines)
                           .send(40)
                           .send(41, 1)
                           .send(0)
                           .pump(1)
                           .receive(40, 0, 1, now)
                           .receive(41, 3, 1, now)
                           .receive(0, 0, 1, now)
                           .receive(8, 0, 1, now));
  add("lines_now_other", Mail(lines).send(8, 1).pump(1).receive(8, 0, 1, now).receive(8).pump(1));
  add("lines_lie_type", Mail(lines).receive(8).lie(0, 0, 0, head(8, 0, 99)).pump(1));
  add("lines_lie_flag", Mail(lines).receive(8).lie(0, 0, 1, head(8, 0, 1)).pump(1));
  add("lines_lie_absurd", Mail(lines).receive(8).lie(0, 0, 0, head(1ULL << 60, 0, 1)).pump(1));
  add("lines_lie_part",
      Mail(lines).receive(100).lie(0, 0, 0, head(100, 0, 1)).pump(1).lie(0, 0, 1, {}).pump(1));
  add("lines_lie_slot",
      Mail(lines).receive(900).lie(0, 0, 0, head(900, 0, 1)).lie(300, 1, 0, {}).pump(1));
  add("lines_lie_now", Mail(lines).lie(0, 0, 0, head(8, -1, 1)).receive(8, 3, 1, now));
  add("lines_lie_flag_now", Mail(lines).lie(0, 0, 1, head(8, 0, 1)).receive(8, 0, 1, now));
  add("lines_lie_part_now", Mail(lines)
                                .lie(0, 0, 0, head(100, 0, 1))
                                .receive(100, 0, 1, now)
                                .lie(0, 0, 1, {})
                                .receive(100, 0, 1, now));
}

// The first one is lent, then every third one.
void add_lent_mail(Seeds& seeds) {
  constexpr std::uint8_t lines = 16;
  const auto add = [&](const std::string& name, Bytes bytes) {
    seeds.add("mailbox", name.c_str(), std::move(bytes));
  };
  add("lent", Mail(lines).receive(1400).receive(1400).send(1400).send(1400).pump(20));
  add("lent_unasked", Mail(lines).receive(8, 1).send(900).send(8, 1).pump(6).receive(900).pump(1));
  add("lent_at_the_end", Mail(lines | 8).receive(700).send(700).pump(3));
  for (std::uint8_t word = 0; word < 5; ++word)
    add("lent_lie_" + std::to_string(word),
        Mail(lines).send(900).ship().receive(900).lie_in_grant(word, 1).pump(2));
  add("lent_plain", Mail(lines).send(900).ship().receive(900).lie_in_grant(1, ~0ULL).pump(2));
}

// Acts of `call_history`.
class Calls {
 public:
  explicit Calls(std::uint8_t rank) : script_(rank) {}
  Calls& own(std::uint8_t function, std::uint8_t type, std::uint16_t count) {
    script_.number(std::uint8_t{0});
    return call(function, type, count);
  }
  Calls& hear(std::uint8_t from, Bytes message) {
    script_.number(std::uint8_t{2}).number(from).block(message);
    return *this;
  }
  Calls& told(std::uint8_t from, std::uint8_t count) {
    script_.number(std::uint8_t{3}).number(from).number(count);
    return *this;
  }
  Calls& record(std::int8_t distance, std::uint8_t function, std::uint8_t type,
                std::uint16_t count) {
    script_.number(distance);
    return call(function, type, count);
  }
  operator Bytes() { return script_; }

 private:
  Calls& call(std::uint8_t function, std::uint8_t type, std::uint16_t count) {
    script_.number(function).number(type).number(std::uint8_t{0}).number(std::uint8_t{1});
    script_.number(count).number(static_cast<std::uint8_t>(function == 8));
    return *this;
  }
  Script script_;
};

void add_calls(Seeds& seeds) {
  const auto add = [&](const char* name, Bytes bytes) {
    seeds.add("call_history", name, std::move(bytes));
  };
  for (std::uint8_t function = 0; function < 15; ++function)
    seeds.add("call_history", "function_" + std::to_string(function),
              Calls(2).own(function, 7, 10).told(0, 1).record(0, function, 7, 11));
  add("agrees", Calls(0).own(0, 7, 10).told(0, 1).record(0, 0, 7, 10));
  add("ahead_agrees", Calls(0).told(0, 1).record(1, 0, 7, 10).own(0, 7, 10).own(1, 7, 10));
  add("ahead_differs", Calls(0).told(0, 1).record(2, 0, 7, 10).own(0, 7, 10).own(1, 7, 10));
  add("never_called", Calls(3).told(0, 1).record(0, 0, 7, 10));
  add("before_all", Calls(3).own(0, 7, 10).told(0, 1).record(-1, 0, 7, 10).told(0, 0));
  Calls many(1);
  for (int i = 0; i < 140; ++i) many.own(0, 7, 10);
  add("many", many.told(0, 2).record(-127, 0, 7, 10).record(-128, 0, 6, 10).told(1, 33));
  add("letter_odd", Calls(1).own(0, 7, 10).hear(0, Bytes(33, 1)));
  add("letter_unknown", Calls(1).hear(0, Bytes(32, 0xff)).own(0, 7, 10));
  add("letter_long", Calls(1).hear(0, Bytes(33 * 32, 0)));
}

}  // namespace

void add_memory_seeds(Seeds& seeds) {
  add_mail(seeds);
  add_lent_mail(seeds);
  add_calls(seeds);
  add_slots(seeds);
  add_pooled_slots(seeds);
  add_launches(seeds);
}

}  // namespace gyre::fuzz
