// Sends over rdma whose bytes stay in the caller's memory until the NIC has read them.
#include "lib/sendrecv/mailbox.h"
#include "lib/sendrecv/outbox.h"
#include "tests/support/catch.h"
#include "tests/support/exec/rdma_job.h"

#include <array>
#include <cstring>
#include <vector>

namespace rdma_sends_test {

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;
using comm::Batch;
using comm::Transfer;

namespace {

constexpr FifoShape shape = {.slot_count = 4, .line_count = 4, .slot_bytes = 16 << 10};

// Rank 1 sends to rank 0.
struct Sends {
  Sends() {
    REQUIRE(text_of(link.status) == "");
    send.connection = std::move(link.sender);
    send.carrier = send.connection->carrier();
    send.slots = SlotWriter(send.connection->fifo());
    receive.connection = std::move(link.receiver);
    receive.slots = SlotReader(receive.connection->fifo());
  }
  void begin(Batch& batch, const std::vector<Transfer>& transfers) {
    batch.begin(transfers);
    for (const Transfer& one : transfers) {
      if (one.sends)
        outbox.add({&one, &batch});
      else
        receives.add({&one, &batch});
    }
  }
  Status turn() {
    bool moved = false;
    GYRE_TRY(outbox.advance(send, moved));
    GYRE_TRY(receive.connection->progress());
    return mailbox.advance(moved);
  }
  // What a thread does that waits for long.
  Status wait_long(std::int64_t now_ns) {
    for (transport::Connection* const end : {send.connection.get(), receive.connection.get()}) {
      WaitSet set;
      end->arm(set);
      end->disarm();
      GYRE_TRY(end->look_at_peer(now_ns, 2 * ns_per_s));
    }
    return {};
  }

  Side receiving{Kind::rdma}, sending{Kind::rdma};
  Link link = open_link(receiving, sending, shape);
  exec::SendPort send;
  exec::ReceivePort receive;
  transport::RegionTable regions;
  comm::Outbox outbox{regions};
  comm::Receives receives;
  std::uint64_t kept = 0;
  comm::Mailbox mailbox{1, receive, receives, kept};
};

}  // namespace

TEST_CASE("a long send of lent memory is read by the NIC where it lies", "[rdma]") {
  const bool is_lent = GENERATE(true, false);
  const bool is_awaited = GENERATE(true, false);
  CAPTURE(is_lent, is_awaited);
  const Network network;
  Sends sends;
  constexpr std::uint64_t bytes = 1'000'001;
  RankBuffer input(sends.sending, bytes, is_lent);
  fill(input.data(), bytes, 3);
  std::vector<std::byte> output(bytes);
  Batch sent, received;
  const std::vector<Transfer> outgoing = {{.sends = true, .input = input.data(), .bytes = bytes}};
  const std::vector<Transfer> incoming = {{.output = output.data(), .bytes = bytes, .peer = 1}};
  if (is_awaited) sends.begin(received, incoming);
  sends.begin(sent, outgoing);
  if (!is_awaited) sends.begin(received, incoming);
  for (int turns = 0; !sent.is_done() || !received.is_done(); ++turns) {
    REQUIRE(turns < 1000);
    REQUIRE(text_of(sends.turn()) == "");
  }
  CHECK(is_filled(output.data(), bytes, 3));
  // All but the last slot's rest, which is short.
  const std::uint64_t read = network.fake.bytes_from(input.data());
  CHECK(read == (is_lent ? bytes - (bytes + sizeof(comm::TransferHead)) % shape.slot_bytes : 0));
}

TEST_CASE("short sends, and those between long ones, arrive in order", "[rdma]") {
  const Network network;
  Sends sends;
  constexpr std::array<std::uint64_t, 6> lengths = {8, 200'000, 0, 70'000, 65'536, 1};
  std::vector<std::unique_ptr<RankBuffer>> inputs, outputs;
  std::vector<Transfer> outgoing, incoming;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    inputs.push_back(std::make_unique<RankBuffer>(sends.sending, lengths[i] + 1, i % 2 == 1));
    outputs.push_back(std::make_unique<RankBuffer>(sends.receiving, lengths[i] + 1, false));
    fill(inputs.back()->data(), lengths[i], i);
    outgoing.push_back({.sends = true, .input = inputs.back()->data(), .bytes = lengths[i]});
    incoming.push_back({.output = outputs.back()->data(), .bytes = lengths[i], .peer = 1});
  }
  Batch sent, received;
  sends.begin(received, incoming);
  sends.begin(sent, outgoing);
  for (int turns = 0; !sent.is_done() || !received.is_done(); ++turns) {
    REQUIRE(turns < 1000);
    REQUIRE(text_of(sends.turn()) == "");
  }
  for (std::size_t i = 0; i < lengths.size(); ++i)
    CHECK(is_filled(outputs[i]->data(), lengths[i], i));
}

TEST_CASE("every failure of a call ends a long send, or harms nothing, and leaves nothing behind",
          "[rdma]") {
  struct Machine {
    FakeVerbsOptions nics;
    int lost;  // the completion whose failure costs a port; 0: none
  };
  const Machine machine = GENERATE(Machine{{}, 0}, Machine{two_nics(), 0}, Machine{two_nics(), 4});
  constexpr std::uint64_t bytes = 200'001;
  int failures = 0;
  for (const std::string_view call : fallible_verbs())
    for (int k = 1;; k += 1 + k / 4) {
      CAPTURE(machine.nics.devices.size(), machine.lost, call, k);
      Network network(machine.nics);
      int uses = 0;
      {
        Sends sends;
        RankBuffer input(sends.sending, bytes, true);
        fill(input.data(), bytes, 3);
        std::vector<std::byte> output(bytes);
        const std::vector<Transfer> outgoing = {
            {.sends = true, .input = input.data(), .bytes = bytes}};
        const std::vector<Transfer> incoming = {
            {.output = output.data(), .bytes = bytes, .peer = 1}};
        Batch sent, received;
        if (machine.lost > 0) network.fake.fail_completion(IBV_WC_RETRY_EXC_ERR, machine.lost);
        uses = -network.fake.calls(call);
        network.fake.fail_call(call, k);
        sends.begin(received, incoming);
        sends.begin(sent, outgoing);
        Status status;
        for (std::int64_t turn = 0; status.ok() && !(sent.is_done() && received.is_done());
             ++turn) {
          REQUIRE(turn < 1000);
          status = sends.turn();
          if (status.ok()) status = sends.wait_long(turn * ns_per_s);
        }
        uses += network.fake.calls(call);
        CHECK(status.code() != Code::InternalError);
        if (status.ok()) CHECK(is_filled(output.data(), bytes, 3));
        failures += !status.ok();
        if (!status.ok() && sends.outbox.forget(sent)) sends.send.carrier->cut_off();
      }
      CHECK(network.fake.live() == "");
      if (uses < k) break;
    }
  CHECK(failures > 0);
}

TEST_CASE("a send that is given up is read no more", "[rdma]") {
  FakeVerbsOptions machine;
  machine.seed = GENERATE(1, 2, 3);
  const Network network(machine);
  Sends sends;
  constexpr std::uint64_t bytes = 1 << 20;
  RankBuffer input(sends.sending, bytes, true);
  std::memset(input.data(), 1, bytes);
  Batch sent;
  const std::vector<Transfer> outgoing = {{.sends = true, .input = input.data(), .bytes = bytes}};
  sends.begin(sent, outgoing);
  bool moved = false;
  REQUIRE(sends.outbox.advance(sends.send, moved).ok());
  REQUIRE(sends.outbox.forget(sent));
  sends.send.carrier->cut_off();
  const Status ended = sends.send.connection->progress();
  CHECK(ended.code() == Code::Aborted);
  CHECK(contains(ended, "the call that lent memory to it has failed"));
  // The memory is the caller's again.
  std::memset(input.data(), 2, bytes);
  const std::uint64_t read = network.fake.bytes_from(input.data());
  for (int turns = 0; turns < 20; ++turns) (void)sends.receive.connection->progress();
  CHECK(network.fake.bytes_from(input.data()) == read);
  for (; sends.receive.slots.has_message(); sends.receive.slots.release()) {
    const std::byte* const place = sends.receive.slots.place();
    for (std::size_t i = sizeof(comm::TransferHead); i < sends.receive.slots.note().bytes; ++i)
      if (place[i] != std::byte{1}) FAIL("byte " << i);
  }
}

}  // namespace rdma_sends_test
