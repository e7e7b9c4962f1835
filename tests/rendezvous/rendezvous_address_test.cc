// A name with several addresses: at which of them rank 0 listens, and which ones the others try.
#include "tests/support/rendezvous/small_plane.h"

#include <sys/socket.h>

namespace rendezvous_address_test {

using namespace gyre;
using namespace gyre::rendezvous;
using namespace gyre::rendezvous::test;

namespace {

const SystemClock clock_of_addresses;

// Whatever a kernel has, it has not this one.
trust::SocketAddress of_no_family() {
  trust::SocketAddress address;
  address.storage.ss_family = AF_MAX;
  address.length = sizeof address.storage;
  return address;
}

trust::SocketAddress of_ipv4(std::string_view host, int port) {
  return *trust::parse_address(fmt::format("{}:{}", host, port));
}

RendezvousAddress name_of(std::vector<trust::SocketAddress> addresses) {
  RendezvousAddress point;
  point.addresses = std::move(addresses);
  point.text = "GYRE_RENDEZVOUS_ADDRESS=head";
  point.network = std::make_shared<const NetworkProof>();
  return point;
}

Wait short_wait() { return Wait(clock_of_addresses, {0, 0, ns_per_ms}, 10 * ns_per_s); }

Result<FileDescriptor> listen_for_others(const std::vector<trust::SocketAddress>& addresses) {
  Wait wait = short_wait();
  return listen_at_address(name_of(addresses), wait);
}

}  // namespace

TEST_CASE("a family that the kernel lacks does not keep ranks from the next address",
          "[rendezvous]") {
  const trust::SocketAddress here = of_ipv4("127.0.0.1", free_port());
  const auto listener = listen_for_others({of_no_family(), here});
  REQUIRE(listener.ok());
  Wait wait = short_wait();
  std::string reason;
  const auto socket = connect_to_address(name_of({of_no_family(), here}), wait, &reason);
  INFO(socket.status().message());
  REQUIRE(socket.ok());
  CHECK(socket->has_value());
}

TEST_CASE("that nobody listens yet is told of the address that can be used", "[rendezvous]") {
  const trust::SocketAddress nobody = of_ipv4("127.0.0.1", free_port());
  for (const auto& addresses :
       {std::vector{of_no_family(), nobody}, std::vector{nobody, of_no_family()}}) {
    Wait wait = short_wait();
    std::string reason;
    const auto socket = connect_to_address(name_of(addresses), wait, &reason);
    REQUIRE(socket.ok());
    CHECK_FALSE(socket->has_value());
    CHECK(reason == "ECONNREFUSED");
  }
}

TEST_CASE("addresses of families that the kernel lacks alone are an error", "[rendezvous]") {
  Wait wait = short_wait();
  std::string reason;
  const Status connecting = connect_to_address(name_of({of_no_family()}), wait, &reason).status();
  CHECK(connecting.code() == Code::SystemError);
  CHECK(contains(connecting.message(), "GYRE_RENDEZVOUS_ADDRESS=head: EAFNOSUPPORT"));
  const Status listening = listen_for_others({of_no_family()}).status();
  CHECK(listening.code() == Code::SystemError);
  CHECK(contains(listening.message(), "GYRE_RENDEZVOUS_ADDRESS=head: EAFNOSUPPORT"));
}

TEST_CASE("rank 0 goes round an address of another host, not round one in use", "[rendezvous]") {
  const int port = free_port();
  const auto loopback = of_ipv4("127.0.0.1", port), other = of_ipv4("127.0.0.2", port);
  const auto foreign = of_ipv4("192.0.2.77", port);  // TEST-NET-1, RFC 5737
  {
    const auto listener = listen_for_others({foreign, of_no_family(), loopback});
    INFO(listener.status().message());
    CHECK(listener.ok());
  }
  CHECK(contains(listen_for_others({foreign, of_no_family()}).status().message(),
                 "is not an address of this host"));
  // Where a stranger listens the others would meet it.
  const auto stranger = listen_for_others({loopback});
  REQUIRE(stranger.ok());
  const std::int64_t begun_ns = SystemClock::read();
  const Status refused = listen_for_others({loopback, other}).status();
  INFO(refused.message());
  CHECK(refused.code() == Code::InvalidUsage);
  CHECK(contains(refused.message(), "another program or job does. Choose another port"));
  CHECK(SystemClock::read() - begun_ns >= ns_per_s);  // it gave that one time to go
}

TEST_CASE("rank 0 gets its address when who held it goes", "[rendezvous]") {
  const int port = free_port();
  const auto loopback = of_ipv4("127.0.0.1", port), other = of_ipv4("127.0.0.2", port);
  auto stranger = listen_for_others({loopback});
  REQUIRE(stranger.ok());
  std::thread goes([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    stranger->reset();
  });
  const auto listener = listen_for_others({loopback, other});
  goes.join();
  REQUIRE(listener.ok());
  trust::SocketAddress bound;
  bound.length = sizeof bound.storage;
  REQUIRE(getsockname(listener->get(), bound.get(), &bound.length) == 0);
  CHECK(trust::format_address(bound) == fmt::format("127.0.0.1:{}", port));
}

}  // namespace rendezvous_address_test
