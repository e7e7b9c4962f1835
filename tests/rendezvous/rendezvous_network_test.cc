// Rendezvous at an address: under TLS, with the bytes of a secret file as the proof.
#include "lib/rendezvous/id_server.h"
#include "lib/trust/derive.h"
#include "tests/support/base/descriptor_limit.h"
#include "tests/support/base/log_file.h"
#include "tests/support/rendezvous/small_plane.h"

#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <netinet/in.h>
#include <sys/stat.h>

namespace rendezvous_network_test {

using namespace gyre;
using namespace gyre::control;
using namespace gyre::rendezvous;
using namespace gyre::rendezvous::test;

namespace {

const SystemClock clock_of_this_test;

// A secret file that is removed again, with `content` and `mode`.
struct SecretFile {
  explicit SecretFile(const std::string& content, mode_t mode = 0600) {
    const FileDescriptor file(mkostemp(path.data(), O_CLOEXEC));
    REQUIRE(file.has_value());
    REQUIRE(write(file.get(), content.data(), content.size()) ==
            static_cast<ssize_t>(content.size()));
    REQUIRE(fchmod(file.get(), mode) == 0);
  }
  ~SecretFile() { unlink(path.c_str()); }
  std::string path = "/tmp/gyre-secret-XXXXXX";
};

Settings at_address(const std::string& address, const std::string& secret_file, int seconds) {
  Settings settings = with_timeout(seconds);
  settings.rendezvous_address = address;
  settings.rendezvous_secret_file = secret_file;
  return settings;
}

LaunchPlace on_two_hosts(int rank) {
  LaunchPlace place = place_of(rank, 3, "network");
  place.several_hosts = true;
  place.local_size = 2;
  return place;
}

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

FileDescriptor tcp_to(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (int i = 0; i < 5000; ++i) {
    FileDescriptor made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(made.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0)
      return made;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  FAIL("nobody listens at port " << port);
  return {};
}

// A meeting of three ranks at a free port, which the test serves by itself.
struct OpenMeeting {
  explicit OpenMeeting(std::uint32_t number) {
    const SecretFile secret(std::string(32, 's'));
    Wait wait(clock_of_this_test, {0, 0, ns_per_ms}, 10 * ns_per_s);
    port = free_port();
    const Settings settings = at_address(fmt::format("127.0.0.1:{}", port), secret.path, 20);
    point = std::move(network_rendezvous(settings, trust::Secret{7}, wait)).value();
    server = *IdServer::start(std::move(listen_at_address(point, wait)).value(), point,
                              {*trust::id_on_this_host(trust::Secret{8}), 3, number,
                               SystemClock::read() + 20 * ns_per_s});
  }
  IdConnection visit() const {
    FileDescriptor socket = tcp_to(port);
    REQUIRE(fcntl(socket.get(), F_SETFL, O_NONBLOCK) == 0);
    return std::move(
               IdConnection::make(IdConnection::Side::asking, std::move(socket), point.network))
        .value();
  }
  // Until `line` has its message, or has ended; its status then.
  Status serve_until_heard(IdConnection& line) const {
    for (int turn = 0; turn < 10000; ++turn) {
      server->serve();
      const auto message = line.receive();
      if (!message.ok()) return message.status();
      if (message->has_value()) return decode_answer(**message).status();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return Status(Code::Timeout, "no answer");
  }
  void serve_a_while() const {
    for (int turn = 0; turn < 50; ++turn) {
      server->serve();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  int port = 0;
  RendezvousAddress point;
  std::shared_ptr<IdServer> server;
};

}  // namespace

TEST_CASE("an answer that was sent is sent, also when who asked has read it and gone",
          "[rendezvous]") {
  const OpenMeeting meeting(0);
  int ends[2] = {-1, -1};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  FileDescriptor near(ends[0]), far(ends[1]);
  auto answering =
      IdConnection::make(IdConnection::Side::answering, std::move(near), meeting.point.network);
  std::optional<IdMessage> question;
  {
    auto asking =
        IdConnection::make(IdConnection::Side::asking, std::move(far), meeting.point.network);
    REQUIRE(asking->send(encode(IdRequest{1, 3, 0, {1}})).ok());
    for (int turn = 0; turn < 10 && !question; ++turn) {
      question = *answering->receive();
      (void)asking->receive();
    }
    REQUIRE(question);
  }
  CHECK(answering->send({'i', 'd'}).ok());
  CHECK_FALSE(answering->departed());
  CHECK_FALSE(answering->receive().ok());
  CHECK(answering->departed());
}

TEST_CASE("ranks that are ahead, or go before they have the id, are no strangers", "[rendezvous]") {
  gyre::test::LogFile log;
  const OpenMeeting meeting(1);
  {
    IdConnection ahead = meeting.visit();
    REQUIRE(ahead.send(encode(IdRequest{1, 3, 2, {1}})).ok());
    CHECK_FALSE(meeting.serve_until_heard(ahead).ok());
    IdConnection killed = meeting.visit();  // as the answer comes
    REQUIRE(killed.send(encode(IdRequest{1, 3, 1, {1}})).ok());
    for (int turn = 0; turn < 3; ++turn) meeting.server->serve(), (void)killed.receive();
  }
  meeting.serve_a_while();
  IdConnection again = meeting.visit();
  REQUIRE(again.send(encode(IdRequest{1, 3, 1, {1}})).ok());
  CHECK(meeting.serve_until_heard(again).ok());
  CHECK(log.lines() == std::vector<std::string>{});
  const FileDescriptor web = tcp_to(meeting.port);
  say(web.get(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  meeting.serve_a_while();
  REQUIRE(log.lines().size() == 1);
  CHECK(contains(log.lines()[0], "turned an unauthenticated client away"));
}

TEST_CASE("however many connect at once, few are let in at a time", "[rendezvous]") {
  gyre::test::LogFile log;
  const OpenMeeting meeting(0);
  constexpr int crowd = 400, max_accepts = 64;
  std::vector<FileDescriptor> strangers;
  for (int i = 0; i < crowd; ++i) strangers.push_back(tcp_to(meeting.port));
  const std::ptrdiff_t before = open_descriptors();
  meeting.server->serve();
  const auto is_closed = [](const FileDescriptor& socket) {
    char byte = 0;
    return recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0;
  };
  const std::ptrdiff_t held = open_descriptors() - before;
  CHECK(held + std::ranges::count_if(strangers, is_closed) <= max_accepts);
  meeting.serve_a_while();
  CHECK(open_descriptors() - before <= 2 * 3 + 64);
}

TEST_CASE("a rank that has asked is not pushed out by those who say nothing", "[rendezvous]") {
  gyre::test::LogFile log;
  const OpenMeeting meeting(0);
  IdConnection rank = meeting.visit();
  REQUIRE(rank.send(encode(IdRequest{1, 3, 0, {1}})).ok());
  meeting.server->serve();
  std::vector<FileDescriptor> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(tcp_to(meeting.port));
  for (int turn = 0; turn < 10; ++turn) meeting.server->serve();
  CHECK(meeting.serve_until_heard(rank).ok());
}

TEST_CASE("the last descriptor that is left is enough to hand out the id", "[rendezvous]") {
  const OpenMeeting meeting(0);
  IdConnection rank = meeting.visit();
  const gyre::test::DescriptorLimit limit(1);
  meeting.server->serve();
  REQUIRE(rank.send(encode(IdRequest{1, 3, 0, {1}})).ok());
  CHECK(meeting.serve_until_heard(rank).ok());
}

TEST_CASE("only a whole hello with our key's name gets a session", "[rendezvous]") {
  const OpenMeeting meeting(0);
  Wait wait(clock_of_this_test, {0, 0, ns_per_ms}, 10 * ns_per_s);
  const Settings settings = at_address("127.0.0.1:4000", "", 1);
  const auto hello_of = [&](const trust::Secret& secret) {
    const auto point = network_rendezvous(settings, secret, wait);
    int ends[2] = {-1, -1};
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    const FileDescriptor far(ends[1]);
    auto line =
        IdConnection::make(IdConnection::Side::asking, FileDescriptor(ends[0]), point->network);
    REQUIRE(line->flush().ok());
    char bytes[2048];
    const ssize_t length = recv(far.get(), bytes, sizeof bytes, 0);
    REQUIRE(length > 0);
    return std::string(bytes, static_cast<std::size_t>(length));
  };
  const std::string ours = hello_of(trust::Secret{7}), other = hello_of(trust::Secret{9});
  struct Row {
    std::string words;
    bool heard_on, named;
  };
  const std::vector<Row> rows = {{"", true, false},
                                 {"\x16", true, false},
                                 {ours.substr(0, ours.size() - 1), true, false},
                                 {other, false, false},
                                 {"GET / HTTP/1.1\r\n\r\n", false, false},
                                 {ours, true, true}};
  for (const Row& row : rows) {
    int ends[2] = {-1, -1};
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    const FileDescriptor far(ends[1]);
    auto line = IdConnection::make(IdConnection::Side::answering, FileDescriptor(ends[0]),
                                   meeting.point.network);
    say(far.get(), row.words);
    CHECK(line->receive().ok() == row.heard_on);
    CHECK(line->is_unnamed() != row.named);
  }
}

TEST_CASE("ranks of several hosts meet at an address with a shared secret", "[rendezvous]") {
  const SecretFile secret(std::string(32, 's'));
  const std::string address = fmt::format("127.0.0.1:{}", free_port());
  for (int job = 0; job < 2; ++job)  // the port is free again at once
    check_same_id(run_job(3, [&](int rank) {
      return meet_and_stay(at_address(address, secret.path, 20), on_two_hosts(rank));
    }));
}

TEST_CASE("a name for the address is resolved, and IPv6 is understood", "[rendezvous]") {
  const SecretFile secret(std::string(32, 's'));
  // A lookup in this process must not be in the way of those of its children.
  Wait wait(clock_of_this_test, {0, 0, ns_per_ms}, 10 * ns_per_s);
  REQUIRE(network_rendezvous(at_address("localhost:4000", "", 1), trust::Secret{1}, wait).ok());
  for (const char* host : {"localhost", "[::1]"}) {
    const std::string address = fmt::format("{}:{}", host, free_port());
    if (host[0] == '[') {
      const FileDescriptor probe(socket(AF_INET6, SOCK_STREAM, 0));
      sockaddr_in6 loopback{};
      loopback.sin6_family = AF_INET6;
      loopback.sin6_addr = in6addr_loopback;
      if (bind(probe.get(), reinterpret_cast<sockaddr*>(&loopback), sizeof loopback) != 0) continue;
    }
    check_same_id(run_job(3, [&](int rank) {
      return meet_and_stay(at_address(address, secret.path, 20), on_two_hosts(rank));
    }));
  }
}

TEST_CASE("a rank with another secret gets nothing, and the job meets", "[rendezvous]") {
  const SecretFile secret(std::string(40, 's')), other(std::string(40, 't'));
  const std::string address = fmt::format("127.0.0.1:{}", free_port());
  Child root =
      start([&] { return meet_and_stay(at_address(address, secret.path, 20), on_two_hosts(0)); });
  SmallPlane plane;
  const Status status = meet(plane, at_address(address, other.path, 1), on_two_hosts(1)).status();
  INFO(status.message());
  CHECK(status.code() == Code::Timeout);
  CHECK(contains(status.message(), "rank 0 has not answered at GYRE_RENDEZVOUS_ADDRESS=127.0.0.1"));
  CHECK(contains(status.message(), "with the same secret file?"));
  const auto others = run_job(2, [&](int rank) {
    return meet_and_stay(at_address(address, secret.path, 20), on_two_hosts(rank + 1));
  });
  CHECK(others[0] == others[1]);
  CHECK(finish(std::move(root)) == others[0]);
}

TEST_CASE("who knows the name of the secret but not the secret gets nothing", "[rendezvous]") {
  const SecretFile secret(std::string(32, 's'));
  const int port = free_port();
  Child root = start([&] {
    return meet_and_stay(at_address(fmt::format("127.0.0.1:{}", port), secret.path, 2),
                         on_two_hosts(0));
  });
  // The name is what an eavesdropper sees.
  Wait wait(clock_of_this_test, {0, 0, ns_per_ms}, 10 * ns_per_s);
  trust::Secret derived{};
  const std::vector<std::uint8_t> bytes(32, 's');
  REQUIRE(trust::derive(bytes, "secret file", derived).ok());
  Settings settings = at_address(fmt::format("127.0.0.1:{}", port), secret.path, 2);
  const auto point = network_rendezvous(settings, derived, wait);
  REQUIRE(point.ok());
  const auto ask = [&](std::uint8_t flip) -> std::string {
    auto key = std::make_shared<trust::SessionKey>();
    key->identity = point->network->key->identity;
    key->psk = point->network->key->psk;
    key->psk[0] ^= flip;
    auto tls = trust::Tls::create();
    auto line = IdConnection::make(
        IdConnection::Side::asking, tcp_to(port),
        std::shared_ptr<const NetworkProof>(new NetworkProof{key, std::move(*tls)}));
    Status status = line->send(encode(IdRequest{1, 3, 0, {1}}));
    while (status.ok() && rest(wait)) {
      const auto message = line->receive();
      status = message.status();
      if (status.ok() && message->has_value()) return "answered";
    }
    return status.ok() ? "timeout" : "refused";
  };
  CHECK(ask(1) == "refused");
  CHECK(ask(0) == "answered");
  CHECK(finish(std::move(root)).substr(0, 3) == "id ");
}

TEST_CASE("the key of the address depends on the secret", "[rendezvous]") {
  Wait wait(clock_of_this_test, {0, 0, ns_per_ms}, 10 * ns_per_s);
  const Settings settings = at_address("127.0.0.1:4000", "", 1);
  const auto one = network_rendezvous(settings, trust::Secret{1}, wait);
  const auto other = network_rendezvous(settings, trust::Secret{2}, wait);
  REQUIRE((one.ok() && other.ok()));
  CHECK(one->network->key->psk != other->network->key->psk);
  CHECK(one->network->key->identity != other->network->key->identity);
}

TEST_CASE("strangers at the address are dropped without an answer, and the job meets",
          "[rendezvous]") {
  const SecretFile secret(std::string(32, 's'));
  const int port = free_port();
  const std::string address = fmt::format("127.0.0.1:{}", port);
  Child root =
      start([&] { return meet_and_stay(at_address(address, secret.path, 20), on_two_hosts(0)); });
  std::vector<FileDescriptor> holders;
  for (int i = 0; i < 80; ++i) holders.push_back(tcp_to(port));
  const FileDescriptor plain = tcp_to(port);
  say(plain.get(), as_text(encode(IdRequest{1, 3, 0, {1}})));  // the protocol of the local socket
  CHECK(hear(plain.get()).empty());
  const FileDescriptor web = tcp_to(port);
  say(web.get(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(hear(web.get()).empty());
  const FileDescriptor half = tcp_to(port);  // the head of a ClientHello of 16 KiB, and no more
  say(half.get(), std::string("\x16\x03\x01\x40\x00\x01", 6));
  const std::int64_t start_ns = SystemClock::read();
  CHECK(hear(half.get()).empty());
  CHECK(SystemClock::read() - start_ns < 3 * 2250 * ns_per_ms);
  const auto others = run_job(2, [&](int rank) {
    return meet_and_stay(at_address(address, secret.path, 20), on_two_hosts(rank + 1));
  });
  CHECK(others[0].substr(0, 3) == "id ");
  CHECK(others[0] == others[1]);
  CHECK(finish(std::move(root)) == others[0]);
}

TEST_CASE("an address or a secret file that cannot be used is refused", "[rendezvous]") {
  const SecretFile secret(std::string(32, 's')), open_to_all(std::string(32, 's'), 0644),
      short_one(std::string(31, 's')), long_one(std::string(5000, 's')),
      read_only(std::string(32, 's'), 0400);
  const int port = free_port();
  const std::string good = fmt::format("127.0.0.1:{}", port);
  const FileDescriptor taken(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  own.sin_port = htons(static_cast<std::uint16_t>(port));
  REQUIRE(bind(taken.get(), reinterpret_cast<sockaddr*>(&own), sizeof own) == 0);
  REQUIRE(listen(taken.get(), 1) == 0);
  struct Row {
    std::string address, secret_file;
    const char* text;
  };
  const std::vector<Row> rows = {
      {good, "", "GYRE_RENDEZVOUS_ADDRESS needs GYRE_RENDEZVOUS_SECRET_FILE"},
      {good, "/no/such/file", "/no/such/file does not exist"},
      {good, open_to_all.path, "has mode 0644 and must have 0600"},
      {good, short_one.path, "must have 32 to 4096 bytes"},
      {good, long_one.path, "must have 32 to 4096 bytes"},
      {good, read_only.path, "another program or job does"},
      {good, secret.path, "another program or job does"},
      {"127.0.0.1", secret.path, "give host:port"},
      {"127.0.0.1:", secret.path, "give host:port"},
      {"127.0.0.1:0", secret.path, "give host:port"},
      {"127.0.0.1:65536", secret.path, "give host:port"},
      {"127.0.0.1:80x", secret.path, "give host:port"},
      {":80", secret.path, "give host:port"},
      {"::1:80", secret.path, "give host:port"},
      {"[]:80", secret.path, "give host:port"},
      // TEST-NET-1, RFC 5737: nobody's.
      {"192.0.2.77:4000", secret.path, "is not an address of this host, where rank 0 runs"},
  };
  for (const Row& row : rows) {
    SmallPlane plane;
    const Status status =
        meet(plane, at_address(row.address, row.secret_file, 1), on_two_hosts(0)).status();
    INFO(row.address << " " << row.secret_file << ": " << status.message());
    CHECK(status.code() == Code::InvalidUsage);
    CHECK(contains(status.message(), row.text));
  }
}

TEST_CASE("a name that does not resolve is an error within the deadline", "[rendezvous]") {
  const SecretFile secret(std::string(32, 's'));
  SmallPlane plane;
  // RFC 6761: .invalid never resolves.
  const std::int64_t start_ns = SystemClock::read();
  const Status status =
      meet(plane, at_address("rank0.invalid:4000", secret.path, 1), on_two_hosts(1)).status();
  INFO(status.message());
  CHECK(status.code() == Code::Timeout);
  CHECK(contains(status.message(), "\"rank0.invalid\" did not resolve"));
  CHECK(SystemClock::read() - start_ns < 3 * ns_per_s);
}

TEST_CASE("an address where nobody listens is named with the deadline", "[rendezvous]") {
  const SecretFile secret(std::string(32, 's'));
  SmallPlane plane;
  const std::string address = fmt::format("127.0.0.1:{}", free_port());
  const Status status = meet(plane, at_address(address, secret.path, 1), on_two_hosts(1)).status();
  INFO(status.message());
  CHECK(status.code() == Code::Timeout);
  CHECK(contains(status.message(), "rank 0 has not opened the meeting at GYRE_RENDEZVOUS_ADDRESS=" +
                                       address + " within 1 s (last attempt: ECONNREFUSED)"));
}

TEST_CASE("a name that stands for loopback where rank 0 listens is warned of", "[rendezvous]") {
  const auto warnings_of = [](std::string_view address, bool was_looked_up) {
    const gyre::test::LogFile log;
    RendezvousAddress point;
    point.addresses = {*trust::parse_address(address)};
    point.text = "GYRE_RENDEZVOUS_ADDRESS=head:0";
    point.was_looked_up = was_looked_up;
    const WaitPolicy policy;
    Wait wait(system_clock, policy, 10 * ns_per_s);
    REQUIRE(listen_at_address(point, wait).ok());
    return log.lines();
  };
  const std::vector<std::string> lines = warnings_of("127.0.1.1:0", true);
  REQUIRE(lines.size() == 1);
  CHECK(contains(lines[0], "WARN"));
  CHECK(contains(lines[0], "head:0: on this host the name stands for 127.0.1.1:"));
  CHECK(warnings_of("127.0.1.1:0", false).empty());
  CHECK(warnings_of("0.0.0.0:0", true).empty());
}

}  // namespace rendezvous_network_test
