// Connections of rdma over fake devices: a network of them that a test may break, a joined pair
// that the test moves by hand, and streams of messages between the two ends of run_pair.
#pragma once

#include "lib/transport/slots.h"
#include "tests/support/fake_verbs/fake_verbs.h"
#include "tests/support/fake_verbs/pair_verbs.h"
#include "tests/support/transports/transport_pair.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace gyre::tests {

inline constexpr transport::FifoShape small_shape{4, 2, 4096};

// A fake that the Sides made meanwhile use.
struct Network {
  explicit Network(const FakeVerbsOptions& machine = {}, const transport::RdmaOptions& options = {})
      : fake(machine) {
    use_pair_verbs(&fake.table());
    pair_rdma_options() = options;
  }
  ~Network() {
    use_pair_verbs(nullptr);
    pair_rdma_options() = {};
  }
  FakeVerbs fake;
};

struct JoinedPair {
  explicit JoinedPair(const transport::FifoShape& shape = small_shape, const LinkPorts& ports = {})
      : link(open_link(receiving, sending, shape, ports)) {
    if (!link.status.ok()) return;
    out = transport::SlotWriter(link.sender->fifo());
    in = transport::SlotReader(link.receiver->fifo());
  }
  Side receiving{Kind::rdma}, sending{Kind::rdma};
  Link link;
  transport::SlotWriter out;
  transport::SlotReader in;

  void send(std::uint32_t bytes, std::uint64_t number) {
    fill(out.place(), bytes, number);
    out.commit(bytes, transport::message_flag(number + 1, 1), transport::DeliveryMode::staged);
  }
  // Both ends, once.
  Status turn() {
    GYRE_TRY(link.sender->progress());
    return link.receiver->progress();
  }
  bool arrives(std::uint32_t bytes, std::uint64_t number) {
    if (!pump(link, [&] { return in.has_message(); })) return false;
    const bool good = in.note().bytes == bytes && is_filled(in.place(), bytes, number);
    in.release();
    return good;
  }
};

inline std::string text_of(const Status& status) { return std::string(status.message()); }

inline bool contains(const Status& status, std::string_view part) {
  return status.message().find(part) != std::string_view::npos;
}

// Opens a link, moves messages of all kinds over it, looks and sleeps, and closes it.
inline Status live_through(const LinkPorts& ports = {}) {
  JoinedPair pair({4, 2, 128 << 10}, ports);
  GYRE_TRY(pair.link.status);
  std::uint64_t number = 0;
  for (const std::uint32_t bytes : {0U, 8U, 232U, 233U, 70'000U, 128U << 10, 5U, 40'000U}) {
    pair.send(bytes, number);
    if (!pair.arrives(bytes, number)) {
      GYRE_TRY(pair.link.status);
      return internal_error("a message came wrong");
    }
    ++number;
    WaitSet set;
    for (const auto& end : {pair.link.sender.get(), pair.link.receiver.get()}) {
      end->arm(set);
      end->disarm();
      GYRE_TRY(end->look_at_peer(static_cast<std::int64_t>(number) * ns_per_s, ns_per_s));
    }
  }
  return pump(pair.link, [&] { return pair.link.sender->flushed(); }) ? Status() : pair.link.status;
}

// Sends so many messages of random sizes; `meanwhile` is called with the number of messages begun
// whenever it waits. The receiver of them draws the same sizes.
inline std::string send_stream(End& end, std::uint64_t messages, std::uint32_t max_bytes,
                               const std::function<void(std::uint64_t)>& meanwhile = {}) {
  GYRE_EXPECT(end.join());
  std::uint64_t begun = 0;
  const auto until = [&](auto&& holds) {
    return end.until([&] {
      if (meanwhile) meanwhile(begun);
      return holds();
    });
  };
  transport::SlotWriter out(end.connection->fifo());
  for (; begun < messages; ++begun) {
    const auto bytes = static_cast<std::uint32_t>(end.random() % max_bytes);
    GYRE_EXPECT(until([&] { return out.has_credit(); }));
    fill(out.place(), bytes, begun);
    out.commit(bytes, transport::message_flag(begun + 1, 1), transport::DeliveryMode::staged);
  }
  GYRE_EXPECT(until([&] { return end.connection->flushed(); }));
  return "";
}

inline std::string receive_stream(End& end, std::uint64_t messages, std::uint32_t max_bytes) {
  transport::SlotReader in(end.connection->fifo());
  for (std::uint64_t i = 0; i < messages; ++i) {
    const auto bytes = static_cast<std::uint32_t>(end.random() % max_bytes);
    GYRE_EXPECT(end.until([&] { return in.has_message(); }));
    GYRE_EXPECT(in.note().bytes == bytes);
    GYRE_EXPECT(in.note().flag == transport::message_flag(i + 1, 1));
    GYRE_EXPECT(is_filled(in.place(), bytes, i));
    in.release();
  }
  return "";
}

}  // namespace gyre::tests
