// Unauthenticated clients at the listener while a job comes together: the job completes, nobody is
// answered, one line is logged, and neither memory nor descriptors grow.
#include "lib/rendezvous/rendezvous.h"
#include "lib/trust/address.h"
#include "lib/trust/secure_session.h"
#include "tests/support/base/descriptor_limit.h"
#include "tests/support/base/log_file.h"
#include "tests/support/base/resource_use.h"
#include "tests/support/control/meeting.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace unauthenticated_clients_test {

using namespace gyre;
using namespace gyre::test;
using gyre::tests::open_descriptors;
using State = Membership::State;

namespace {

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * getpagesize();
}

double processor_seconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

trust::SocketAddress listener_of(const trust::UniqueId& id, bool tcp) {
  return tcp ? *trust::parse_address(id.root_address) : *trust::abstract_address(id.root_listener);
}

// Blocking; the listener's backlog may be full for a moment.
FileDescriptor connect_to(const trust::SocketAddress& address) {
  FileDescriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(socket.has_value());
  REQUIRE(connect(socket.get(), address.get(), address.length) == 0);
  return socket;
}

void say(const FileDescriptor& socket, std::string_view words) {
  // The listener may have closed already.
  [[maybe_unused]] const ssize_t sent =
      send(socket.get(), words.data(), words.size(), MSG_NOSIGNAL);
}

// True if the listener closes within `seconds` without having said a word.
bool closed_without_a_word(const FileDescriptor& socket, double seconds = 6) {
  pollfd poller{socket.get(), POLLIN, 0};
  if (poll(&poller, 1, static_cast<int>(seconds * 1000)) != 1) return false;
  char byte = 0;
  return recv(socket.get(), &byte, 1, MSG_DONTWAIT) <= 0;
}

std::string as_text(const trust::TicketHello& hello) {
  return {reinterpret_cast<const char*>(&hello), sizeof hello};
}

// A ClientHello that a process with this id would send.
std::string client_hello(const trust::UniqueId& id) {
  int pair[2] = {};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
  const FileDescriptor far(pair[1]);
  const auto tls = std::move(trust::Tls::create()).value();
  auto session = trust::SecureSession::start(
      *tls, FileDescriptor(pair[0]), trust::SessionRole::client, *trust::derive_control_key(id));
  REQUIRE((*session)->advance().ok());
  char bytes[2048];
  const ssize_t length = recv(far.get(), bytes, sizeof bytes, 0);
  REQUIRE(length > 0);
  return {bytes, static_cast<std::size_t>(length)};
}

trust::UniqueId with_another_secret(trust::UniqueId id) {
  id.secret[5] ^= 1;
  return id;
}

}  // namespace

TEST_CASE(
    "whatever unauthenticated clients say while a job comes together, they get no answer and it "
    "completes") {
  const bool tcp = GENERATE(true, false);
  LogFile log;
  const auto root = start_plane(), other = start_plane();
  const auto id = *make_id(*root);
  const auto first = join(*root, id, 2, 0);
  const auto listener = listener_of(id, tcp);
  const auto idle = open_descriptors();

  const std::string hello = client_hello(id);
  std::vector<FileDescriptor> clients;
  const auto unauthenticated_says = [&](std::string_view words) {
    clients.push_back(connect_to(listener));
    say(clients.back(), words);
  };
  unauthenticated_says("GET / HTTP/1.1\r\nHost: gyre\r\n\r\n");
  unauthenticated_says(std::string(100'000, '\xff'));
  unauthenticated_says(std::string(1, '\0'));
  unauthenticated_says(client_hello(with_another_secret(id)));
  unauthenticated_says(as_text({}));                             // a ticket nobody issued
  unauthenticated_says(std::string("\x16\x03\x01\xff\xff", 5));  // a hello of 64 KiB
  std::string nonsense("\x16\x03\x01\x00\x40", 5);
  unauthenticated_says(nonsense.append(64, 'x'));
  clients.push_back(connect_to(listener));                  // silence
  unauthenticated_says("\x16\x03");                         // half a hello
  unauthenticated_says(hello.substr(0, hello.size() - 1));  // all but a byte
  unauthenticated_says("GYRETKT1 half");                    // half a ticket
  {
    const FileDescriptor reset = connect_to(listener);
    const linger at_once{1, 0};
    setsockopt(reset.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  for (const auto& client : clients) CHECK(closed_without_a_word(client));
  clients.clear();
  CHECK(soon([&] { return open_descriptors() <= idle; }));

  const auto second = join(*other, id, 2, 1);
  REQUIRE(settles(*first));
  REQUIRE(settles(*second));
  CHECK(first->state() == State::joined);
  CHECK(second->state() == State::joined);
  CHECK(soon([&] { return log.lines().size() == 1; }));
}

TEST_CASE("who comes when its communicator has ended, or goes without a word, is no intruder") {
  LogFile log;
  const auto root = start_plane(), other = start_plane();
  const auto id = *make_id(*root);
  const auto listener = listener_of(id, false);
  const auto first = join(*root, id, 2, 0), second = join(*other, id, 2, 1);
  REQUIRE(settles(*first));
  REQUIRE(settles(*second));
  for (const auto& member : {first, second}) member->leave();
  const std::string hello = client_hello(id);
  const auto is_gone = [&] {
    const FileDescriptor late = connect_to(listener);
    say(late, hello);
    return closed_without_a_word(late);
  };
  CHECK(soon(is_gone));
  CHECK(is_gone());
  (void)connect_to(listener);
  usleep(100'000);
  CHECK(log.lines() == std::vector<std::string>{});
}

TEST_CASE("who shows a ticket that was withdrawn comes too late, and is no intruder") {
  LogFile log;
  const auto plane = start_plane();
  const auto listener = listener_of(*make_id(*plane), GENERATE(true, false));
  std::atomic<int> arrivals{0};
  trust::TicketHello hello;
  hello.ticket = *plane->tickets().issue([&](FileDescriptor) { ++arrivals; });
  plane->tickets().withdraw(hello.ticket);
  const FileDescriptor late = connect_to(listener);
  say(late, as_text(hello));
  CHECK(closed_without_a_word(late));
  CHECK(arrivals == 0);
  usleep(100'000);  // lines are written after the closing
  CHECK(log.lines() == std::vector<std::string>{});
}

TEST_CASE("a replayed hello gets a handshake that it cannot finish") {
  LogFile log;
  const auto root = start_plane(), other = start_plane();
  const auto id = *make_id(*root);
  const auto first = join(*root, id, 2, 0);
  const std::string hello = client_hello(id);
  const FileDescriptor client = connect_to(listener_of(id, true));
  say(client, hello);
  // The server's half of the handshake, and then the listener closes: without the key there is no
  // more.
  char bytes[4096];
  REQUIRE(recv(client.get(), bytes, sizeof bytes, 0) > 0);
  const auto second = join(*other, id, 2, 1);
  REQUIRE(settles(*first));
  CHECK(first->state() == State::joined);
  CHECK(closed_without_a_word(client));
}

TEST_CASE("whoever is in a handshake is not pushed out by those who say nothing") {
  LogFile log;
  const auto root = start_plane();
  const auto id = *make_id(*root);
  const auto listener = listener_of(id, true);
  const FileDescriptor guest = connect_to(listener);
  say(guest, client_hello(id));
  char bytes[4096];
  REQUIRE(recv(guest.get(), bytes, sizeof bytes, 0) > 0);
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 400; ++i) silent.push_back(connect_to(listener));
  CHECK(closed_without_a_word(silent[0]));  // pushed out, so all have been let in or out
  pollfd poller{guest.get(), POLLIN, 0};
  CHECK(poll(&poller, 1, 200) == 0);
}

TEST_CASE("a ticket that was shown before is refused at the listener") {
  LogFile log;
  const auto plane = start_plane();
  const auto id = *make_id(*plane);
  std::atomic<int> arrivals{0};
  trust::TicketHello hello;
  hello.ticket = *plane->tickets().issue([&](FileDescriptor) { ++arrivals; });
  const auto listener = listener_of(id, GENERATE(true, false));
  // In pieces, to see that they are put together.
  const FileDescriptor guest = connect_to(listener);
  const std::string words = as_text(hello);
  say(guest, words.substr(0, 11));
  usleep(20'000);
  say(guest, words.substr(11) + "the first bytes of data");
  REQUIRE(soon([&] { return arrivals == 1; }));
  const FileDescriptor replay = connect_to(listener);
  say(replay, words);
  CHECK(closed_without_a_word(replay));
  CHECK(arrivals == 1);
  CHECK(soon([&] { return log.lines().size() == 1; }));  // written after the closing
}

TEST_CASE("a thousand connections that say nothing keep nobody out and cost nothing") {
  LogFile log;
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  const int crowd = limit.rlim_cur > 2000 ? 1000 : 300;

  const auto root = start_plane(), other = start_plane();
  const auto id = *make_id(*root);
  const auto first = join(*root, id, 2, 0);
  const auto listener = listener_of(id, true);
  const auto idle = open_descriptors();
  std::int64_t after_first_wave = 0;
  for (int wave = 0; wave < 3; ++wave) {
    std::vector<FileDescriptor> clients;
    for (int i = 0; i < crowd; ++i) clients.push_back(connect_to(listener));
    // Of those who wait, the listener keeps 2 * 64 + 64.
    CHECK(soon([&] { return open_descriptors() <= idle + crowd + 2 * 64 + 64; }));
    if (wave == 2) {
      const auto second = join(*other, id, 2, 1);
      REQUIRE(settles(*second));
      CHECK(second->state() == State::joined);
    }
    clients.clear();
    CHECK(soon([&] { return open_descriptors() <= idle + 4; }));
    if (wave == 0) after_first_wave = resident_bytes();
  }
  CHECK(first->state() == State::joined);
  CHECK(soon([&] { return log.lines().size() == 1; }));
#ifndef __SANITIZE_ADDRESS__
  CHECK(resident_bytes() - after_first_wave < 1 << 20);
#endif
}

TEST_CASE("the last descriptor that is left is enough to let one in") {
  const auto root = start_plane();
  const auto id = *make_id(*root);
  const auto listener = listener_of(id, true);
  const std::string hello = client_hello(id);
  const FileDescriptor guest(::socket(listener.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  const DescriptorLimit limit(1);
  REQUIRE(connect(guest.get(), listener.get(), listener.length) == 0);
  usleep(50'000);  // its words come when the listener has looked for one more
  say(guest, hello);
  pollfd answer{guest.get(), POLLIN, 0};
  CHECK(poll(&answer, 1, 1500) == 1);
  char byte = 0;
  CHECK(recv(guest.get(), &byte, 1, MSG_DONTWAIT) == 1);
}

TEST_CASE("without descriptors the listener waits instead of spinning, and opens again") {
  LogFile log;
  // Forked first: the unauthenticated clients' own descriptors must not count here.
  int gate[2] = {};
  REQUIRE(pipe(gate) == 0);
  const FileDescriptor gate_in(gate[0]), gate_out(gate[1]);
  const pid_t crowd = fork();
  if (crowd == 0) {
    trust::SocketAddress listener;
    std::vector<FileDescriptor> held;
    if (read(gate[0], &listener, sizeof listener) != sizeof listener) _exit(1);
    for (int i = 0; i < 40; ++i) {
      held.emplace_back(::socket(listener.family(), SOCK_STREAM, 0));
      (void)!connect(held.back().get(), listener.get(), listener.length);
    }
    sleep(30);
    _exit(0);
  }
  const auto root = start_plane(), other = start_plane();
  const auto id = *make_id(*root);
  const auto first = join(*root, id, 2, 0);
  const auto listener = listener_of(id, true);
  std::optional<DescriptorLimit> limit(0);
  REQUIRE(write(gate[1], &listener, sizeof listener) == sizeof listener);
  usleep(100'000);
  const double before = processor_seconds();
  usleep(500'000);
  const double used = processor_seconds() - before;
  limit.reset();
  CHECK(used < 0.15);
  const auto second = join(*other, id, 2, 1);
  REQUIRE(settles(*first));
  CHECK(first->state() == State::joined);
  kill(crowd, SIGKILL);
  waitpid(crowd, nullptr, 0);
  REQUIRE(log.lines().size() == 1);
  CHECK(log.lines()[0].find("no descriptors") != std::string::npos);
}

namespace {

// Processes that connect to a port of this host as fast as they can, until they are destroyed.
class Flood {
 public:
  Flood(int port, int processes) {
    for (int i = 0; i < processes; ++i) {
      const pid_t pid = fork();
      REQUIRE(pid >= 0);
      if (pid == 0) connect_for_ever(port);
      pids_.push_back(pid);
    }
  }
  ~Flood() {
    for (const pid_t pid : pids_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }

 private:
  [[noreturn]] static void connect_for_ever(int port) {
    alarm(100);
    (void)!nice(10);  // what else runs on this machine is not meant
    const auto address = trust::parse_address("127.0.0.1:" + std::to_string(port));
    std::vector<int> held(900, -1);
    for (std::size_t i = 0;; ++i) {
      int& socket = held[i % held.size()];
      if (socket >= 0) close(socket);
      socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      (void)!connect(socket, address->get(), address->length);
      if (i % 3 == 0) (void)!send(socket, "\x16\x03\x01", 3, MSG_NOSIGNAL);
    }
  }
  std::vector<pid_t> pids_;
};

struct SecretFile {
  SecretFile() {
    const FileDescriptor file(mkostemp(path.data(), O_CLOEXEC));
    const std::string bytes(32, 's');
    REQUIRE(write(file.get(), bytes.data(), bytes.size()) == 32);
  }
  ~SecretFile() { unlink(path.c_str()); }
  std::string path = "/tmp/gyre-strangers-XXXXXX";
};

int port_of_nobody() {
  const FileDescriptor probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto any = trust::parse_address("127.0.0.1:0");
  REQUIRE(bind(probe.get(), any->get(), any->length) == 0);
  trust::SocketAddress bound;
  bound.length = sizeof bound.storage;
  REQUIRE(getsockname(probe.get(), bound.get(), &bound.length) == 0);
  const std::string text = trust::format_address(bound);
  return std::stoi(text.substr(text.rfind(':') + 1));
}

}  // namespace

TEST_CASE("a flood at the address of a meeting delays no heartbeat, and the job meets") {
  LogFile log;
  const SecretFile secret;
  const int port = port_of_nobody();
  Settings settings = loopback_settings();
  settings.rendezvous_address = "127.0.0.1:" + std::to_string(port);
  settings.rendezvous_secret_file = secret.path;
  settings.liveness_timeout_s = 2;
  settings.init_timeout_s = 60;
  rendezvous::LaunchPlace place;
  place.size = 2;
  place.several_hosts = true;

  Flood flood(port, 3);
  const auto root = start_plane(), other = start_plane();
  const auto id = *make_id(*root);
  const auto first = join(*root, id, 2, 0, settings), second = join(*other, id, 2, 1, settings);
  REQUIRE(settles(*first));
  REQUIRE(rendezvous::meet(*root, settings, place).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));  // more than the liveness limit
  place.rank = 1;
  const auto met = rendezvous::meet(*other, settings, place);
  INFO(met.status().full_text());
  CHECK(met.ok());
  CHECK(first->state() == State::joined);
  CHECK(second->state() == State::joined);
}

TEST_CASE("a process with the wrong secret does not get in, and the job does not notice") {
  LogFile log;
  Settings settings = loopback_settings();
  settings.init_timeout_s = 1;
  const auto root = start_plane(), other = start_plane(), client = start_plane();
  const auto id = *make_id(*root);
  const auto first = join(*root, id, 2, 0);
  const auto forged = join(*client, with_another_secret(id), 2, 1, settings);
  REQUIRE(fails(*forged));
  INFO(forged->failure().full_text());
  CHECK(forged->failure().code() == Code::Timeout);
  CHECK(forged->failure().message().find("is the unique id the right one") !=
        std::string_view::npos);
  CHECK(first->state() == State::joining);
  const auto second = join(*other, id, 2, 1);
  REQUIRE(settles(*first));
  CHECK(first->state() == State::joined);
  CHECK(soon([&] { return log.lines().size() == 1; }));
}

}  // namespace unauthenticated_clients_test
