// What ucx peers say: places, hellos, and notices in any order, to either end, over a fake. Input:
// u8 which of these. Then the bytes of a place or a hello; or steps: u8 kind and
//   0: u8 notice, u64 number, u32 offset, u32 bytes of the whole message, u8 whether its bytes are
//      promised, block: a notice for the end
//   1: block: the header of a message for nobody in particular
//   2: u8 messages that the receiving rank takes, or the sending rank commits
#include "lib/transport/mapped.h"
#include "tests/fuzz/input.h"
#include "tests/support/fake_ucx/fake_ucp.h"
#include "tests/support/transports/ucx_stranger.h"
#include "transports/ucx/receiver.h"
#include "transports/ucx/sender.h"

#include <memory>

namespace ucx_notice_fuzz {

using namespace gyre;
using namespace gyre::transport;

namespace {

constexpr FifoShape shape = {.slot_count = 2, .line_count = 4, .slot_bytes = 512};

void check_place(std::span<const std::uint8_t> bytes) {
  const auto place = decode_ucp_place(bytes);
  if (!place) return;
  const auto again = encode(*place);
  GYRE_DEMAND(std::vector<std::uint8_t>(bytes.begin(), bytes.end()) == again);
  GYRE_DEMAND(!place->worker.empty() && place->worker.size() <= max_ucp_address);
}

void check_hello(std::span<const std::uint8_t> bytes) {
  const auto hello = decode_ucp_hello(bytes);
  if (!hello) return;
  GYRE_DEMAND(std::vector<std::uint8_t>(bytes.begin(), bytes.end()) == encode(*hello));
}

// The peer's part of the steps. `take` is the rank's.
template <typename Take>
void run_steps(fuzz::Input& input, tests::UcxStranger& peer, Connection& end, const Take& take) {
  Status status;
  for (int step = 0; step < 64 && !input.empty(); ++step) {
    const std::uint8_t kind = input.take<std::uint8_t>() % 3;
    if (kind == 0) {
      const auto said = static_cast<UcpNoticeKind>(input.take<std::uint8_t>() % ucp_notice_kinds);
      UcpNotice notice = peer.notice(said, input.take<std::uint64_t>());
      notice.offset = input.take<std::uint32_t>();
      notice.whole = input.take<std::uint32_t>();
      const bool is_promised = input.take_flag();
      peer.send_as_is(notice, input.take_vector(), is_promised);
    } else if (kind == 1) {
      peer.send_raw(input.take_block());
    } else {
      take(input.take<std::uint8_t>());
    }
    const Status now = end.progress();
    // An error is for good, and the peer's.
    if (!status.ok()) GYRE_DEMAND(now.message() == status.message());
    if (!now.ok()) GYRE_DEMAND(now.code() == Code::RemoteError && now.culprits().size() == 1);
    status = now;
    peer.progress();
  }
}

void lie_to_receiver(fuzz::Input& input) {
  const tests::FakeUcp fake;
  trust::TicketBook tickets;
  auto engine = UcpEngine::make(*loaded::UcpSharedContext::make(fake.table(), ns_per_s)).value();
  const trust::Ticket ticket = *tickets.issue([](FileDescriptor) {});
  auto receiver = UcpReceiver::make({.peer = 1}, engine, UcpEngine::Distance::another_host,
                                    *private_fifo(shape), IssuedTicket({&tickets, ticket}),
                                    std::make_shared<HostLine>(), {}, [] {})
                      .value();
  tests::UcxStranger peer(fake.table());
  peer.ticket = ticket;
  {
    const auto held = engine->hold();
    peer.aim_at({receiver->link(), {}, *engine->address(UcpEngine::Distance::another_host)});
  }
  if (input.take_flag()) peer.say_hello();
  (void)receiver->progress();
  SlotReader in(receiver->fifo());
  run_steps(input, peer, *receiver, [&](std::uint8_t count) {
    for (; count > 0 && in.has_message(); --count) {
      GYRE_DEMAND(in.note().bytes <= shape.slot_bytes);
      GYRE_DEMAND(in.note().delivery == DeliveryMode::staged);
      in.release();
    }
  });
}

void lie_to_sender(fuzz::Input& input) {
  const tests::FakeUcp fake;
  auto engine = UcpEngine::make(*loaded::UcpSharedContext::make(fake.table(), ns_per_s)).value();
  tests::UcxStranger peer(fake.table());
  std::shared_ptr<UcpPeer> there;
  std::string own_address;
  {
    const auto held = engine->hold();
    there = *engine->reach(peer.place(1).worker, UcpEngine::Distance::another_host);
    own_address = *engine->address(UcpEngine::Distance::another_host);
  }
  auto sender = UcpSender::make({.peer = 1}, engine, there, *private_fifo(shape),
                                {{7, {}, {}}, {}, {}, own_address}, [] { return false; })
                    .value();
  (void)sender->progress();
  peer.progress();
  GYRE_DEMAND(peer.heard.has_value());
  peer.aim_at(peer.heard->sender);
  if (input.take_flag()) peer.send(peer.notice(UcpNoticeKind::credit, 0));
  (void)sender->progress();
  SlotWriter out(sender->fifo());
  run_steps(input, peer, *sender, [&](std::uint8_t count) {
    for (; count > 0 && out.has_credit(); --count)
      out.commit(count * 2U, message_flag(1, 1), DeliveryMode::staged);
  });
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  switch (input.take<std::uint8_t>() % 4) {
    case 0:
      check_place(input.rest());
      break;
    case 1:
      check_hello(input.rest());
      break;
    case 2:
      lie_to_receiver(input);
      break;
    default:
      lie_to_sender(input);
  }
  return 0;
}

GYRE_FUZZ_TARGET(ucx_notice)

}  // namespace ucx_notice_fuzz
