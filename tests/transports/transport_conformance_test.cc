// One suite for every transport: the properties that the executor relies on hold over each
// transport of the registry, between threads and between processes.
#include "lib/links/transport_registry.h"
#include "lib/transport/slots.h"
#include "tests/support/catch.h"
#include "tests/support/transports/transport_pair.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

namespace transport_conformance_test {

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;

namespace {

constexpr std::uint64_t signature = 0x5eed5eed5eed;

void check_pair(Kind kind, const PairOptions& options, const Script& sender,
                const Script& receiver) {
  CAPTURE(kind_name(kind), options.seed);
  const PairResult result = run_pair(kind, options, sender, receiver);
  CHECK(result.sender == "");
  CHECK(result.receiver == "");
}

std::uint32_t draw_size(std::mt19937_64& random, std::uint64_t most) {
  const std::uint64_t drawn = random();
  if (drawn % 8 == 0) return 0;
  if (drawn % 8 == 1) return static_cast<std::uint32_t>(most);
  const std::uint64_t limit = drawn % 2 == 0 ? most : std::min<std::uint64_t>(most, 100);
  return static_cast<std::uint32_t>((drawn >> 8) % (limit + 1));
}

std::string send_slots(End& end, int count) {
  GYRE_EXPECT(end.join());
  SlotWriter out(end.connection->fifo());
  for (int i = 0; i < count; ++i) {
    const std::uint32_t size = draw_size(end.random, end.options.shape.slot_bytes);
    if (!out.has_credit() || i % 3 == 0) GYRE_EXPECT(end.until([&] { return out.has_credit(); }));
    const auto number = static_cast<std::uint64_t>(i);
    fill(out.place(), size, number);
    out.commit(size, message_flag(number + 1, signature), DeliveryMode::staged);
  }
  GYRE_EXPECT(end.flush());
  return "";
}

std::string receive_slots(End& end, int count) {
  GYRE_EXPECT(end.join());
  SlotReader in(end.connection->fifo());
  for (int i = 0; i < count; ++i) {
    const std::uint32_t size = draw_size(end.random, end.options.shape.slot_bytes);
    GYRE_EXPECT(end.until([&] { return in.has_message(); }));
    const SlotHeader note = in.note();
    const auto number = static_cast<std::uint64_t>(i);
    GYRE_EXPECT(note.bytes == size);
    GYRE_EXPECT(note.flag == message_flag(number + 1, signature));
    GYRE_EXPECT(note.delivery == DeliveryMode::staged);
    GYRE_EXPECT(is_filled(in.place(), size, number));
    in.release();
  }
  return "";
}

std::string receive_lines(End& end, int count) {
  LineReader in(end.connection->fifo());
  const std::uint64_t most = max_line_message_bytes(end.options.shape);
  std::vector<std::byte> staging(most);
  for (int i = 0; i < count; ++i) {
    const std::uint32_t size = draw_size(end.random, most);
    transport::MessageState state{};
    GYRE_EXPECT(end.until([&] {
      state = in.poll(size, signature);
      return state != transport::MessageState::waiting;
    }));
    GYRE_EXPECT(state == transport::MessageState::here);
    const std::byte* message = in.read(size, staging.data());
    GYRE_EXPECT(is_filled(message, size, static_cast<std::uint64_t>(i)));
    in.release(size);
  }
  return "";
}

std::string send_lines(End& end, int count) {
  GYRE_EXPECT(end.join());
  LineWriter out(end.connection->fifo());
  const std::uint64_t most = max_line_message_bytes(end.options.shape);
  std::vector<std::byte> message(most);
  for (int i = 0; i < count; ++i) {
    const std::uint32_t size = draw_size(end.random, most);
    fill(message.data(), size, static_cast<std::uint64_t>(i));
    GYRE_EXPECT(end.until([&] { return out.has_credit(lines_for(size)); }));
    out.write(message.data(), size, signature);
  }
  return "";
}

void rest(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

}  // namespace

TEST_CASE("every transport that has slots is in this suite", "[transport]") {
  std::set<std::string_view> tried = {"rdma"};  // or left out where the build has none
  for (const Kind kind : all_kinds()) tried.insert(Side(kind).transport->name());
  for (const comm::TransportRow& row : comm::transport_registry()) {
    CAPTURE(row.name);
    if (row.make != nullptr) CHECK(tried.contains(row.name));
  }
}

TEST_CASE("every byte arrives in order, whatever the sizes of the messages", "[transport]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  const std::uint64_t seed = GENERATE(1, 2, 3);
  const FifoShape shape =
      GENERATE(FifoShape{4, 16, 4096}, FifoShape{1, 2, 128}, FifoShape{8, 2, 256 << 10});
  const int count = shape.slot_bytes > 100'000 ? 60 : 400;
  check_pair(
      kind, {.shape = shape, .seed = seed}, [=](End& end) { return send_slots(end, count); },
      [=](End& end) { return receive_slots(end, count); });
}

TEST_CASE("the receiver can be the one in the new process", "[transport]") {
  const Kind kind = GENERATE(from_range(process_kinds()));
  check_pair(
      kind, {.processes = true, .receiver_in_child = true},
      [](End& end) { return send_slots(end, 200); },
      [](End& end) { return receive_slots(end, 200); });
}

TEST_CASE("lines pass many laps of the fifo", "[transport]") {
  const Kind kind = GENERATE(from_range(mapped_kinds()));
  const std::uint64_t seed = GENERATE(1, 2);
  check_pair(
      kind, {.seed = seed}, [](End& end) { return send_lines(end, 500); },
      [](End& end) { return receive_lines(end, 500); });
}

TEST_CASE("a link opens and carries, whichever end comes first", "[transport]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  const bool sender_first = GENERATE(true, false);
  const auto sender = [=](End& end) -> std::string {
    if (!sender_first) GYRE_EXPECT(end.messages.await_word());
    // Under TLS, over RDMA and by UCX the two ends have to meet before a byte passes; elsewhere all
    // may have left already.
    const bool meets = kind == Kind::tcp_tls || kind == Kind::rdma || kind == Kind::rdma_device ||
                       kind == Kind::ucx || kind == Kind::ucx_shm || kind == Kind::ucx_tcp;
    if (sender_first && meets) {
      GYRE_EXPECT(!end.until([&] { return end.connection->ready(); }, 100));
      end.messages.post_word("knocked");
    }
    std::string said = send_slots(end, 3);
    if (sender_first && !meets) end.messages.post_word("sent");
    return said;
  };
  const auto receiver = [=](End& end) -> std::string {
    if (sender_first) {
      GYRE_EXPECT(end.messages.await_word());
      return receive_slots(end, 3);
    }
    // It has looked, and slept, before there is a sender.
    SlotReader in(end.connection->fifo());
    GYRE_EXPECT(!end.until([&] { return end.connection->ready() && in.has_message(); }, 200));
    end.messages.post_word("waited");
    return receive_slots(end, 3);
  };
  check_pair(kind, {}, sender, receiver);
}

TEST_CASE("a mapped link gives back one credit for each slot that is released", "[transport]") {
  const Kind kind = GENERATE(from_range(mapped_kinds()));
  const auto sender = [](End& end) -> std::string {
    GYRE_EXPECT(end.join());
    SlotWriter out(end.connection->fifo());
    std::uint32_t sent = 0;
    for (; out.has_credit(); ++sent) out.commit(0, message_flag(1, 1), DeliveryMode::staged);
    GYRE_EXPECT(sent == end.options.shape.slot_count);
    for (int i = 0; i < 10; ++i) {
      end.messages.post_word("full");
      GYRE_EXPECT(end.until([&] { return out.has_credit(); }));
      out.commit(0, message_flag(1, 1), DeliveryMode::staged);
      GYRE_EXPECT(!out.has_credit());
    }
    end.messages.post_word("end");
    GYRE_EXPECT(end.until([&] { return out.drained(); }));
    return "";
  };
  const auto receiver = [](End& end) -> std::string {
    SlotReader in(end.connection->fifo());
    for (int i = 0; i < 10; ++i) {
      GYRE_EXPECT(end.messages.await_word());
      GYRE_EXPECT(end.until([&] { return in.has_message(); }));
      in.release();
    }
    GYRE_EXPECT(end.messages.await_word());
    std::uint32_t left = 0;
    for (; in.has_message(); ++left) in.release();
    GYRE_EXPECT(left == end.options.shape.slot_count);
    return "";
  };
  check_pair(kind, {}, sender, receiver);
}

TEST_CASE("a tcp receiver that does not read stops its sender, and loses nothing", "[transport]") {
  const Kind kind = GENERATE(Kind::tcp4, Kind::tcp6, Kind::tcp_tls);
  if (kind == Kind::tcp6 && !has_family(AF_INET6)) return;
  const PairOptions options{.shape = {2, 2, 1 << 20}};
  // Two fifos, and what the kernel's two buffers take at the most.
  constexpr int messages = 80;
  const auto sender = [](End& end) -> std::string {
    GYRE_EXPECT(end.join());
    SlotWriter out(end.connection->fifo());
    const auto send = [&](std::uint64_t number) {
      fill(out.place(), end.options.shape.slot_bytes, number);
      out.commit(1 << 20, message_flag(1, 1), DeliveryMode::staged);
    };
    std::uint64_t sent = 0;
    while (sent < messages && end.until([&] { return out.has_credit(); }, 300)) send(sent++);
    GYRE_EXPECT(sent < messages);
    GYRE_EXPECT(end.status.code() == Code::Timeout);
    end.messages.post_word("stuck");
    while (sent < messages) {
      GYRE_EXPECT(end.until([&] { return out.has_credit(); }));
      send(sent++);
    }
    GYRE_EXPECT(end.flush());
    return "";
  };
  const auto receiver = [](End& end) -> std::string {
    GYRE_EXPECT(end.join());
    GYRE_EXPECT(end.messages.await_word());
    SlotReader in(end.connection->fifo());
    FifoControl& control = *end.connection->fifo().control;
    for (std::uint64_t i = 0; i < messages; ++i) {
      GYRE_EXPECT(end.until([&] { return in.has_message(); }));
      GYRE_EXPECT(control.tail.value - control.head.value <= 2);
      GYRE_EXPECT(is_filled(in.place(), in.note().bytes, i));
      in.release();
    }
    return "";
  };
  check_pair(kind, options, sender, receiver);
}

TEST_CASE("the numbers of messages turn", "[transport]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  for (const std::uint64_t end : {std::uint64_t{0}, std::uint64_t{1} << 32}) {
    PairOptions options;
    options.shape.first = end - 20;
    check_pair(
        kind, options, [](End& one) { return send_slots(one, 60); },
        [](End& one) { return receive_slots(one, 60); });
  }
}

TEST_CASE("two ends that both sleep wake each other", "[transport]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  // Each message takes a sleep at either end; were none of them cut short, it would take 24 s.
  constexpr int rounds = 40;
  PairOptions options{.shape = {1, 2, 1 << 20},
                      .policy = {.spins = 0, .yields = 0, .max_sleep_ns = 300 * ns_per_ms}};
  const auto sender = [](End& end) -> std::string {
    GYRE_EXPECT(end.join());
    SlotWriter out(end.connection->fifo());
    for (int i = 0; i < rounds; ++i) {
      rest(2);
      out.commit(1 << 20, message_flag(1, 1), DeliveryMode::staged);
      GYRE_EXPECT(end.until([&] { return out.drained(); }));
    }
    GYRE_EXPECT(end.flush());
    return "";
  };
  const auto receiver = [](End& end) -> std::string {
    GYRE_EXPECT(end.join());
    SlotReader in(end.connection->fifo());
    for (int i = 0; i < rounds; ++i) {
      GYRE_EXPECT(end.until([&] { return in.has_message(); }));
      rest(2);
      in.release();
    }
    return "";
  };
  const std::int64_t start = SystemClock::read();
  check_pair(kind, options, sender, receiver);
  CHECK(SystemClock::read() - start < 8 * ns_per_s);
}

TEST_CASE("a sender that goes when all has left takes nothing with it", "[transport]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  const auto receiver = [](End& end) -> std::string {
    rest(50);
    std::string said = receive_slots(end, 4);
    if (!said.empty()) return said;
    for (int i = 0; i < 10; ++i, rest(1)) GYRE_EXPECT(end.connection->progress().ok());
    if (!end.connection->needs_progress()) return "";
    // To wait for more is another matter.
    SlotReader in(end.connection->fifo(), 4);
    GYRE_EXPECT(!end.until([&] { return in.has_message(); }));
    GYRE_EXPECT(end.status.code() == Code::RemoteError);
    GYRE_EXPECT(end.status.culprits() == std::vector<int>{1});
    return "";
  };
  check_pair(
      kind, {}, [](End& end) { return send_slots(end, 4); }, receiver);
}

TEST_CASE("a ticket opens one link only", "[transport]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  const auto sender = [](End& end) -> std::string {
    GYRE_EXPECT(end.join());
    auto second = end.side.transport->connect({.peer = 0, .direction = Direction::send},
                                              end.options.shape, end.endpoint);
    if (second.ok()) {
      std::swap(end.connection, *second);
      SlotWriter out(end.connection->fifo());
      const bool refused = !end.until([&] {
        if (end.connection->ready() && out.has_credit()) out.commit(8, 1, DeliveryMode::staged);
        return false;
      });
      std::swap(end.connection, *second);
      GYRE_EXPECT(refused);
      GYRE_EXPECT(end.status.code() == Code::RemoteError);
      GYRE_EXPECT(end.status.culprits() == std::vector<int>{0});
    } else {
      GYRE_EXPECT(second.status().code() == Code::RemoteError);
    }
    return send_slots(end, 5);
  };
  check_pair(kind, {}, sender, [](End& end) { return receive_slots(end, 5); });
}

}  // namespace transport_conformance_test
