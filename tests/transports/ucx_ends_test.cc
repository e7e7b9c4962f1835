// How ends of ucx come and go, over a fake: receivers that are gone before anybody joined,
// processes that were forked, and what a transport says of itself.
#include "tests/support/catch.h"
#include "tests/support/transports/transport_pair.h"
#include "tests/support/transports/ucx_network.h"
#include "transports/ucx/ucx.h"

#include <memory>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace ucx_ends_test {

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;

TEST_CASE("a sender learns that its receiver went before it joined", "[ucx]") {
  UcxNetwork network;
  UnmovedUcxLink link;
  link.receiver.reset();
  Status status;
  for (int i = 0; i < 10 && status.ok(); ++i) status = link.sender->progress();
  CHECK(std::string(status.message()) ==
        "ucx to rank 0 (fake/device, other/device): the receiver has ended before it joined");
  CHECK(status.code() == Code::RemoteError);
  CHECK(status.culprits() == std::vector<int>{0});
}

TEST_CASE("a forked process leaves its parent's objects of UCX alone", "[ucx]") {
  UcxNetwork network({.is_slow = GENERATE(false, true)});
  struct Ends {
    Side receiving{Kind::ucx}, sending{Kind::ucx};
    Link link = open_link(receiving, sending, ucx_shape);
  };
  auto ends = std::make_unique<Ends>();
  REQUIRE(ends->link.status.ok());
  SlotWriter(ends->link.sender->fifo()).commit(100'000, message_flag(1, 1), DeliveryMode::staged);
  REQUIRE(ends->link.sender->progress().ok());
  const int open = network.fake.open_objects();
  const auto calls = [&] {
    return network.fake.calls_of("ucp_am_send_nbx") + network.fake.calls_of("ucp_ep_close_nbx");
  };
  const int calls_before = calls();
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(30);
    // The threads of the listeners are the parent's alone.
    (void)ends->receiving.listener.release();
    (void)ends->sending.listener.release();
    ends.reset();
    _exit(network.fake.open_objects() == open && calls() == calls_before ? 0 : 1);
  }
  int state = 0;
  REQUIRE(waitpid(child, &state, 0) == child);
  CHECK(state == 0);
  ends.reset();
  CHECK(network.fake.open_objects() == 0);
}

TEST_CASE("ucx says which release it has, or nothing", "[ucx]") {
  UcxNetwork network({.minor = 15, .release = 2});
  const Side side(Kind::ucx);
  CHECK(side.transport->announcement().value() == "ucx=1.15");
  const trust::ProcessIdentity self;
  trust::TicketBook tickets;
  const auto encrypted = make_ucx_transport(
      {.self = self, .tickets = tickets, .tcp_encrypted = true, .ucp = pair_ucp()});
  CHECK(encrypted->announcement().value().empty());
  const auto refused =
      encrypted->listen({.peer = 1, .direction = Direction::receive}, ucx_shape, self);
  CHECK(std::string(refused.status().message()) ==
        "there is no ucx: GYRE_TCP_SECURITY=tls asks for encryption, and UCX has none");
  const auto mute = make_ucx_transport({.self = self, .tickets = tickets, .ucp = pair_ucp()});
  const auto unheard = mute->listen({.peer = 1, .direction = Direction::receive}, ucx_shape, self);
  CHECK(std::string(unheard.status().message()) == "ucx does not reach rank 1");
}

}  // namespace ucx_ends_test
