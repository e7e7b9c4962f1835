// Ids, keys, sessions, tickets and addresses: which input they accept and, above all, refuse.
#include "lib/trust/address.h"
#include "lib/trust/derive.h"
#include "lib/trust/interfaces.h"
#include "lib/trust/secure_session.h"
#include "lib/trust/session_key.h"
#include "lib/trust/tickets.h"
#include "lib/trust/unique_id.h"
#include "lib/trust/wire.h"
#include "tests/support/catch.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <random>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace trust_test {

using namespace gyre;
using namespace gyre::trust;

namespace {

UniqueId some_id() {
  UniqueId id;
  id.secret = *random_secret();
  id.root_host.fill(7);
  id.root_listener = "gyre-0123456789abcdef01234567";
  id.root_address = "192.0.2.7:4711";
  id.epoch = 3;
  return id;
}

std::unique_ptr<SecureSession> start(const Tls& tls, int socket, SessionRole role,
                                     std::shared_ptr<const SessionKey> key) {
  auto session = SecureSession::start(tls, FileDescriptor(socket), role, std::move(key));
  REQUIRE(session.ok());
  return std::move(session).value();
}

// Two ends of one socket pair, and what lies between: bytes may be let through a few at a time.
struct Ends {
  Ends(const UniqueId& client_id, const UniqueId& server_id, bool relayed = false)
      : tls(std::move(Tls::create()).value()) {
    int near[2] = {}, far[2] = {};
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, near) == 0);
    int server_end = near[1];
    if (relayed) {
      REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, far) == 0);
      left = FileDescriptor(near[1]);
      right = FileDescriptor(far[0]);
      server_end = far[1];
    }
    client = start(*tls, near[0], SessionRole::client, *derive_control_key(client_id));
    server = start(*tls, server_end, SessionRole::server, *derive_control_key(server_id));
  }
  // Passes at most `most` bytes each way, and keeps what came from the client.
  void relay(std::size_t most) {
    char bytes[256];
    ssize_t got = recv(left.get(), bytes, std::min(most, sizeof bytes), 0);
    if (got > 0) {
      seen.append(bytes, static_cast<std::size_t>(got));
      REQUIRE(send(right.get(), bytes, static_cast<std::size_t>(got), MSG_NOSIGNAL) == got);
    }
    got = recv(right.get(), bytes, std::min(most, sizeof bytes), 0);
    if (got > 0)
      REQUIRE(send(left.get(), bytes, static_cast<std::size_t>(got), MSG_NOSIGNAL) == got);
  }
  // Until both stand, or one has failed.
  void shake_hands() {
    for (int i = 0; i < 10 && client_status.ok() && server_status.ok(); ++i) {
      client_status = client->advance();
      server_status = server->advance();
    }
  }

  std::unique_ptr<Tls> tls;
  FileDescriptor left, right;
  std::unique_ptr<SecureSession> client, server;
  Status client_status, server_status;
  std::string seen;
};

Interface interface_of(std::string name, std::string_view address, bool loopback = false) {
  return {std::move(name), *parse_address(address), loopback};
}

}  // namespace

TEST_CASE("an id survives its 128 bytes") {
  UniqueId id = some_id();
  id.root_address = GENERATE("192.0.2.7:4711", "[fd00::2]:65535", "");
  const UniqueId copy = *decode_unique_id(*encode(id));
  CHECK(copy.secret == id.secret);
  CHECK(copy.root_host == id.root_host);
  CHECK(copy.root_listener == id.root_listener);
  CHECK(copy.root_address == id.root_address);
  CHECK(copy.epoch == id.epoch);
}

TEST_CASE("a secret is overwritten when it goes, wherever it was copied to") {
  alignas(UniqueId) std::byte place[sizeof(UniqueId)];
  auto* id = new (place) UniqueId(some_id());
  id->secret.bytes.fill(0xa5);
  const auto encoded_bytes = [&] {
    alignas(EncodedId) std::byte there[sizeof(EncodedId)];
    auto* encoded = new (there) EncodedId(*encode(*id));
    const auto& secret = id->secret.bytes;
    const bool held = std::search(encoded->bytes.begin(), encoded->bytes.end(), secret.begin(),
                                  secret.end()) != encoded->bytes.end();
    encoded->~EncodedId();
    return held && std::ranges::all_of(there, [](std::byte byte) { return byte == std::byte{0}; });
  };
  CHECK(encoded_bytes());
  id->~UniqueId();
  CHECK(std::ranges::count(place, std::byte{0xa5}) < 32);
}

TEST_CASE("an id with any bit changed is refused") {
  const auto bytes = *encode(some_id());
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    auto damaged = bytes;
    damaged[bit / 8] = static_cast<std::uint8_t>(damaged[bit / 8] ^ (1u << bit % 8));
    const auto decoded = decode_unique_id(damaged);
    REQUIRE_FALSE(decoded.ok());
    CHECK(decoded.status().code() == Code::InvalidArgument);
  }
  CHECK_FALSE(decode_unique_id({}).ok());
}

TEST_CASE("an id of another version says both versions") {
  auto bytes = *encode(some_id());
  bytes[7] = 9;
  const auto decoded = decode_unique_id(bytes);
  REQUIRE_FALSE(decoded.ok());
  CHECK(decoded.status().message().find("version 9") != std::string_view::npos);
}

TEST_CASE("what names an id tells nothing of its secret and changes with its epoch") {
  UniqueId id = some_id();
  const auto key = *derive_control_key(id);
  const std::string secret = hexadecimal(id.secret);
  CHECK(key->identity.size() == identity_length);
  CHECK(key->identity.find(secret.substr(0, 8)) == std::string::npos);
  CHECK(short_name(id).size() == 8);
  CHECK(listener_name_of(id.secret)->size() <= 30);
  const std::string name = short_name(id), identity = key->identity;
  ++id.epoch;
  CHECK(short_name(id) != name);
  CHECK((*derive_control_key(id))->identity != identity);
  CHECK((*derive_control_key(id))->psk != key->psk);
}

TEST_CASE("a session carries frames although every byte travels alone") {
  const UniqueId id = some_id();
  Ends ends(id, id, true);
  std::mt19937 random(7);
  std::vector<std::vector<std::uint8_t>> sent, got;
  for (const std::size_t length : {0u, 1u, 300u, 4000u}) {
    sent.emplace_back(length);
    for (auto& byte : sent.back()) byte = static_cast<std::uint8_t>(random());
    REQUIRE(ends.client->send(9, sent.back()).ok());
  }
  for (int i = 0; i < 40'000 && got.size() < sent.size(); ++i) {
    REQUIRE(ends.client->advance().ok());
    ends.relay(1);
    REQUIRE(ends.server->advance().ok());
    while (auto frame = ends.server->receive()) {
      CHECK(frame->type == 9);
      got.push_back(std::move(frame->body));
    }
  }
  CHECK(got == sent);
  CHECK(ends.client->established());
  CHECK(ends.server->established());
}

TEST_CASE("both ends of a session, and of no other, can prove a further key") {
  const UniqueId id = some_id(), other_id = [] {
    UniqueId changed = some_id();
    ++changed.epoch;
    return changed;
  }();
  Ends ends(id, id), others(id, id);
  ends.shake_hands();
  others.shake_hands();
  const ChannelBinding binding = *ends.client->binding();
  CHECK(binding == *ends.server->binding());
  CHECK(binding != *others.client->binding());
  const auto key = *derive_control_key(other_id), first_key = *derive_control_key(id);
  const KeyProof proof = *prove(*key, binding, Prover::opener, 2);
  CHECK(is_same(proof, *prove(*key, binding, Prover::opener, 2)));
  CHECK_FALSE(is_same(proof, *prove(*key, binding, Prover::answerer, 2)));
  CHECK_FALSE(is_same(proof, *prove(*key, binding, Prover::opener, 4)));
  CHECK_FALSE(is_same(proof, *prove(*key, *others.client->binding(), Prover::opener, 2)));
  CHECK_FALSE(is_same(proof, *prove(*first_key, binding, Prover::opener, 2)));
}

TEST_CASE("neither the secret nor a frame can be read off the wire") {
  const UniqueId id = some_id();
  Ends ends(id, id, true);
  const std::string words = "these words are for the other end alone";
  REQUIRE(ends.client->send(1, {reinterpret_cast<const std::uint8_t*>(words.data()), words.size()})
              .ok());
  for (int i = 0; i < 200; ++i) {
    REQUIRE(ends.client->advance().ok());
    ends.relay(256);
    REQUIRE(ends.server->advance().ok());
  }
  REQUIRE(ends.server->receive().has_value());
  CHECK(ends.seen.size() > 300);
  CHECK(ends.seen.find(words.substr(0, 12)) == std::string::npos);
  CHECK(ends.seen.find(std::string(id.secret.begin(), id.secret.begin() + 8)) == std::string::npos);
}

TEST_CASE("a first hello offers two groups, whatever OpenSSL would offer") {
  const UniqueId id = some_id();
  Ends ends(id, id, true);
  REQUIRE(ends.client->advance().ok());
  for (int i = 0; i < 20; ++i) ends.relay(256);
  // The extension supported_groups, RFC 8446 section 4.2.7: x25519 and secp256r1.
  const std::string groups("\x00\x0a\x00\x06\x00\x04\x00\x1d\x00\x17", 10);
  CHECK(ends.seen.find(groups) != std::string::npos);
  CHECK(ends.seen.size() < 512);
}

TEST_CASE("whoever has another secret, or an older id, gets no session and no answer") {
  const UniqueId ours = some_id();
  UniqueId theirs = ours;
  if (GENERATE(false, true))
    theirs.secret[31] ^= 1;
  else
    --theirs.epoch;
  Ends ends(theirs, ours, true);
  for (int i = 0; i < 20 && ends.server_status.ok(); ++i) {
    (void)ends.client->advance();
    ends.relay(256);
    ends.server_status = ends.server->advance();
  }
  CHECK_FALSE(ends.server_status.ok());
  CHECK_FALSE(ends.server->established());
  CHECK_FALSE(ends.client->established());
  char byte = 0;
  CHECK(recv(ends.right.get(), &byte, 1, MSG_DONTWAIT) <= 0);  // no alert either
}

TEST_CASE("a peer that names the right key but does not know it gets no session") {
  const UniqueId ours = some_id();
  UniqueId theirs = ours;
  theirs.secret[0] ^= 1;
  const auto tls = std::move(Tls::create()).value();
  auto forged = std::make_shared<SessionKey>();
  forged->identity = (*derive_control_key(ours))->identity;
  forged->psk = (*derive_control_key(theirs))->psk;
  int pair[2] = {};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
  const auto client = start(*tls, pair[0], SessionRole::client, forged);
  const auto server = start(*tls, pair[1], SessionRole::server, *derive_control_key(ours));
  REQUIRE(client->advance().ok());
  CHECK_FALSE(server->advance().ok());
  CHECK_FALSE(server->established());
  char byte = 0;
  CHECK(recv(pair[0], &byte, 1, MSG_DONTWAIT) < 0);
}

TEST_CASE("garbage, an HTTP request and a truncated hello end a session without an answer") {
  const std::string bytes =
      GENERATE(std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string(600, '\xff'),
               std::string("\x16\x03\x01\xff\xff", 5) + std::string(600, 'a'));
  const auto tls = std::move(Tls::create()).value();
  int pair[2] = {};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
  const FileDescriptor stranger(pair[0]);
  const auto server = start(*tls, pair[1], SessionRole::server, *derive_control_key(some_id()));
  REQUIRE(send(pair[0], bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  CHECK_FALSE(server->advance().ok());
  CHECK_FALSE(server->advance().ok());  // and it stays so
  char byte = 0;
  CHECK(recv(stranger.get(), &byte, 1, MSG_DONTWAIT) < 0);
}

TEST_CASE("what a peer said before it closed is received, even if we were writing") {
  const UniqueId id = some_id();
  Ends ends(id, id);
  ends.shake_hands();
  REQUIRE(ends.server->established());
  const std::uint8_t word[] = {1, 2, 3};
  REQUIRE(ends.client->send(5, word).ok());
  REQUIRE(ends.client->advance().ok());
  ends.client.reset();
  REQUIRE(ends.server->send(6, word).ok());
  const Status status = ends.server->advance();  // no SIGPIPE, which would end this test
  CHECK_FALSE(status.ok());
  CHECK(ends.server->receive()->type == 5);
  CHECK_FALSE(ends.server->send(6, word).ok());
}

TEST_CASE("a frame longer than 1 MiB is refused, one of 1 MiB passes") {
  const UniqueId id = some_id();
  Ends ends(id, id);
  ends.shake_hands();
  REQUIRE(ends.client->send(1, std::vector<std::uint8_t>(max_frame_bytes - 1, 8)).ok());
  std::optional<Frame> frame;
  for (int i = 0; i < 1000 && !frame; ++i) {
    REQUIRE(ends.client->advance().ok());
    REQUIRE(ends.server->advance().ok());
    frame = ends.server->receive();
  }
  REQUIRE(frame.has_value());
  CHECK(frame->body.size() == max_frame_bytes - 1);
  CHECK_FALSE(ends.client->send(1, std::vector<std::uint8_t>(max_frame_bytes)).ok());
}

TEST_CASE("a bulk load goes on under a new key after so many records") {
  const auto tls = std::move(Tls::create()).value();
  int near[2] = {}, far[2] = {};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, near) == 0);
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, far) == 0);
  const FileDescriptor left(near[1]), right(far[0]);
  const auto key = *derive_control_key(some_id());
  const auto start_bulk = [&](int socket, SessionRole role) {
    return std::move(SecureSocket::start(*tls, FileDescriptor(socket), role, key, SecureLoad::bulk))
        .value();
  };
  const auto sender = start_bulk(near[0], SessionRole::client);
  const auto receiver = start_bulk(far[1], SessionRole::server);
  // Records of one letter have 23 bytes, and one that changes the key has 27 (RFC 8446, 4.6.3).
  std::size_t changes = 0;
  const auto pass = [&](const FileDescriptor& from, const FileDescriptor& to) {
    std::uint8_t bytes[4096];
    const ssize_t got = recv(from.get(), bytes, sizeof bytes, 0);
    for (ssize_t at = 0; sender->established() && receiver->established() && at + 5 < got;
         at += 5 + bytes[at + 4])
      changes += bytes[at + 4] == 22;
    if (got > 0) REQUIRE(send(to.get(), bytes, static_cast<std::size_t>(got), 0) == got);
  };
  for (int i = 0; i < 10 && !(sender->established() && receiver->established()); ++i) {
    REQUIRE(sender->shake_hands().ok());
    pass(left, right);
    REQUIRE(receiver->shake_hands().ok());
    pass(right, left);
  }
  REQUIRE(receiver->established());
  bool is_same = true;
  for (std::uint32_t i = 0; i < 2 * max_records_of_key + 10; ++i) {
    const auto letter = static_cast<std::uint8_t>(i * 7);
    const std::uint8_t sent[] = {letter};
    std::uint8_t got[2] = {};
    is_same &= sender->write(sent, false).ok();
    pass(left, right);
    receiver->look_again();
    const auto read = receiver->read(got);
    is_same &= read.ok() && *read == 1 && got[0] == letter;
  }
  CHECK(is_same);
  CHECK(changes == 2);
}

TEST_CASE("a peer that does not read cannot make a session grow without bound") {
  const UniqueId id = some_id();
  Ends ends(id, id);
  ends.shake_hands();
  const std::vector<std::uint8_t> body(64 << 10);
  Status status;
  int frames = 0;
  for (; status.ok() && frames < 4096; ++frames) status = ends.client->send(1, body);
  CHECK(frames < 1100);
}

TEST_CASE("a ticket opens once, and not after it was withdrawn") {
  TicketBook book;
  int arrivals = 0;
  const Ticket ticket = *book.issue([&](FileDescriptor) { ++arrivals; });
  const Ticket withdrawn = *book.issue([&](FileDescriptor) { ++arrivals; });
  CHECK(ticket != withdrawn);
  book.withdraw(withdrawn);
  using Redemption = TicketBook::Redemption;
  CHECK(book.redeem(ticket, {}) == Redemption::good);
  CHECK(book.redeem(ticket, {}) == Redemption::unknown);
  CHECK(book.redeem(withdrawn, {}) == Redemption::withdrawn);
  CHECK(book.redeem(Ticket{}, {}) == Redemption::unknown);
  CHECK(arrivals == 1);
  const Ticket local = *book.issue([](FileDescriptor) {}, std::make_shared<int>(5));
  CHECK(*std::static_pointer_cast<int>(book.redeem_local(local)) == 5);
  CHECK(book.redeem_local(local) == nullptr);
}

TEST_CASE("an identity survives its bytes, and a cut or longer one is refused") {
  ProcessIdentity identity = *describe_this_process();
  identity.listener_name = "gyre-x";
  identity.addresses = {"192.0.2.1:5", "[::1]:6"};
  const auto bytes = encode(identity);
  const auto copy = decode_identity(bytes);
  REQUIRE(copy.ok());
  CHECK(copy->process == identity.process);
  CHECK(copy->addresses == identity.addresses);
  CHECK(copy->pid == static_cast<std::uint32_t>(getpid()));
  CHECK(describe_this_process()->process != identity.process);
  CHECK(describe_this_process()->host == identity.host);
  for (std::size_t length = 0; length < bytes.size(); ++length)
    CHECK_FALSE(decode_identity({bytes.begin(), bytes.begin() + static_cast<long>(length)}).ok());
  auto longer = bytes;
  longer.push_back(0);
  CHECK_FALSE(decode_identity(longer).ok());
}

TEST_CASE("a reader takes no length on trust") {
  const std::vector<std::uint8_t> bytes = {0xff, 0xff, 0xff, 0xff, 1, 2, 3};
  std::vector<std::uint8_t> block;
  CHECK_FALSE(Reader(bytes).get_block(block, UINT32_MAX));
  std::string text;
  CHECK_FALSE(Reader(bytes).get_text(text, UINT16_MAX));
  std::uint64_t number = 0;
  Reader reader(bytes);
  CHECK_FALSE(reader.get(number));
}

TEST_CASE("addresses are parsed whole") {
  for (const char* good : {"1.2.3.4:80", "[::1]:0", "[fd00::2]:65535"})
    CHECK(format_address(*parse_address(good)) == good);
  for (const char* bad : {"", "1.2.3.4", "1.2.3.4:", "1.2.3.4:65536", "1.2.3:80", "::1:80",
                          "[::1]80", "[::1]:-1", "host:80", "1.2.3.4:80x", "[1.2.3.4]:80"})
    CHECK_FALSE(parse_address(bad).ok());
}

TEST_CASE("the interface is chosen by the settings' grammar") {
  const std::vector<Interface> machine = {
      interface_of("lo", "127.0.0.1:0", true), interface_of("docker0", "172.17.0.1:0"),
      interface_of("eth0", "192.0.2.2:0"),     interface_of("eth0", "[fd00::2]:0"),
      interface_of("eth1", "192.0.3.2:0"),     interface_of("ib0", "192.0.4.2:0")};
  const auto chosen = [&](std::string_view wanted, std::string_view family = "ANY") {
    const auto result = choose_interface(machine, wanted, family);
    return result.ok() ? result->name + " " + format_address(result->address) : "none";
  };
  CHECK(chosen("") == "eth0 192.0.2.2:0");
  CHECK(chosen("", "AF_INET6") == "eth0 [fd00::2]:0");
  CHECK(chosen("eth1,ib") == "eth1 192.0.3.2:0");
  CHECK(chosen("ib") == "ib0 192.0.4.2:0");
  CHECK(chosen("=ib") == "none");
  CHECK(chosen("=ib0") == "ib0 192.0.4.2:0");
  CHECK(chosen("^eth,docker") == "ib0 192.0.4.2:0");
  CHECK(chosen("^=eth0") == "eth1 192.0.3.2:0");
  CHECK(chosen("lo") == "lo 127.0.0.1:0");
  CHECK(chosen("docker") == "docker0 172.17.0.1:0");
  CHECK(chosen("^eth,ib,docker") == "none");
  CHECK(chosen("^eth,ib") == "none");
  CHECK(chosen("wlan") == "none");
  CHECK(chosen("ib", "AF_INET6") == "none");
  const auto missing = choose_interface(machine, "wlan", "ANY");
  CHECK(missing.status().message().find("eth1 (192.0.3.2:0)") != std::string_view::npos);
}

TEST_CASE("further interfaces are those that are wanted by their names") {
  std::vector<Interface> machine = {
      interface_of("lo", "127.0.0.1:0", true), interface_of("eth0", "192.0.2.2:0"),
      interface_of("eth1", "192.0.3.2:0"),     interface_of("eth1", "192.0.3.3:0"),
      interface_of("eth2", "192.0.4.2:0"),     interface_of("eth1", "[fd00::3]:0"),
      interface_of("ib0", "[fd00::4]:0")};
  const auto chosen = [&](std::string_view wanted, std::size_t most) {
    const auto result = choose_interfaces(machine, wanted, "ANY", most);
    std::string names;
    for (const Interface& each : result.ok() ? *result : std::vector<Interface>())
      names += each.name + " " + format_address(each.address) + ",";
    return names;
  };
  CHECK(chosen("eth", 1) == "eth0 192.0.2.2:0,");
  CHECK(chosen("eth", 2) == "eth0 192.0.2.2:0,eth1 192.0.3.2:0,");
  CHECK(chosen("eth", 8) == "eth0 192.0.2.2:0,eth1 192.0.3.2:0,eth2 192.0.4.2:0,");
  CHECK(chosen("=eth2,eth0", 8) == "eth0 192.0.2.2:0,eth2 192.0.4.2:0,");
  CHECK(chosen("eth,ib", 8).find("ib0") == std::string::npos);  // of another family
  CHECK(chosen("ib", 8) == "ib0 [fd00::4]:0,");
  CHECK(chosen("", 8) == "eth0 192.0.2.2:0,");
  CHECK(chosen("^eth0", 8) == "eth1 192.0.3.2:0,");
  CHECK(chosen("wlan", 8) == "");
  machine[2].has_carrier = machine[3].has_carrier = false;
  CHECK(chosen("eth", 8) == "eth0 192.0.2.2:0,eth2 192.0.4.2:0,");
}

TEST_CASE("other hosts are offered the fastest interface that has a carrier") {
  std::vector<Interface> machine = {
      interface_of("lo", "127.0.0.1:0", true), interface_of("eno1", "192.0.2.2:0"),
      interface_of("ens1", "192.0.3.2:0"), interface_of("ens2", "192.0.4.2:0"),
      interface_of("br-4f1d", "172.18.0.1:0")};
  machine[4].megabits_per_s = 400'000;
  const auto chosen = [&](std::string_view wanted = "") {
    const auto result = choose_interface(machine, wanted, "ANY");
    return result.ok() ? result->name : std::string(result.status().message());
  };
  machine[1].megabits_per_s = 1000;
  machine[2].megabits_per_s = machine[3].megabits_per_s = 100'000;
  CHECK(chosen() == "ens1");
  machine[2].has_carrier = false;
  CHECK(chosen() == "ens2");
  CHECK(chosen("eno") == "eno1");
  machine[3].megabits_per_s = 0;  // not known: the machine's order holds
  CHECK(chosen() == "eno1");
  machine[1].has_carrier = machine[3].has_carrier = false;
  const std::string none = chosen();
  CHECK(none.starts_with("no interface fits GYRE_SOCKET_IFNAME=''"));
  CHECK(none.find("lo (127.0.0.1:0, loopback), eno1 (192.0.2.2:0, no carrier)") != none.npos);
  CHECK(none.find("br-4f1d (172.18.0.1:0, a bridge of containers)") != none.npos);
  CHECK(chosen("ens2").find("ens2 (192.0.4.2:0, no carrier)") != none.npos);
}

TEST_CASE("the interfaces are those that the C library finds") {
  std::vector<std::string> expected, found;
  ifaddrs* list = nullptr;
  REQUIRE(getifaddrs(&list) == 0);
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    SocketAddress address;
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.storage, each->ifa_addr, address.length);
    const std::string text = format_address(address);
    if (!text.starts_with("[fe80")) expected.push_back(each->ifa_name + (" " + text));
  }
  freeifaddrs(list);
  const auto interfaces = list_interfaces();
  REQUIRE(interfaces.ok());
  for (const Interface& each : *interfaces) {
    found.push_back(each.name + " " + format_address(each.address));
    CHECK(each.loopback == (each.name == "lo"));
  }
  std::ranges::sort(expected);
  std::ranges::sort(found);
  CHECK(found == expected);
}

TEST_CASE("a thread that closes all descriptors ends nobody who lists the interfaces") {
  const pid_t child = fork();
  if (child == 0) {
    std::atomic<bool> over = false;
    std::thread closing([&] {
      while (!over) (void)close_range(STDERR_FILENO + 1, ~0U, 0);
    });
    for (int turn = 0; turn < 5000; ++turn) (void)list_interfaces();
    over = true;
    closing.join();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
}

}  // namespace trust_test
