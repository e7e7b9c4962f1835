// shm on a host with too little memory or descriptors, and with a peer that cannot be trusted.
// Limits are set in a child process, so that they end with it.
#include "lib/base/state_page.h"
#include "lib/base/units.h"
#include "lib/transport/endpoint.h"
#include "lib/transport/handover.h"
#include "lib/transport/region.h"
#include "lib/transport/slots.h"
#include "tests/support/base/denied_call.h"
#include "tests/support/catch.h"
#include "tests/support/transports/transport_pair.h"
#include "transports/p2p/lease.h"
#include "transports/shm/memory.h"
#include "transports/shm/sender.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace shm_memory_test {

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;

namespace {

const FifoShape shape{4, 16, 4096};
const LinkKey sending_key{.peer = 0, .direction = Direction::send};

// What `body` says, run in a child process; "" is good.
std::string in_child(const std::function<std::string()>& body) {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  FileDescriptor reader(ends[0]), writer(ends[1]);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const std::string said = "=" + body();
    const ssize_t written = write(writer.get(), said.data(), said.size());
    _exit(written < 0 ? 1 : 0);
  }
  writer.reset();
  char text[512] = {};
  const ssize_t bytes = read(reader.get(), text, sizeof text - 1);
  waitpid(child, nullptr, 0);
  return bytes < 1 ? "its process ended without a word" : std::string(text + 1);
}

// As old kernels allow it, or new ones that were asked to.
bool may_become_a_program(int file) {
  struct stat about {};
  return fstat(file, &about) != 0 || (about.st_mode & 0111) != 0;
}

// A process that takes a file's name away dies of it, as one that is killed at that moment.
bool die_at_unlink() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unlink, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unlinkat, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(rules), rules};
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

std::string exchange_one(Link& link) {
  if (!link.status.ok()) return std::string(link.status.message());
  SlotWriter out(link.sender->fifo());
  SlotReader in(link.receiver->fifo());
  for (std::uint64_t i = 0; i < 20; ++i) {
    fill(out.place(), shape.slot_bytes, i);
    out.commit(4096, message_flag(i, 1), DeliveryMode::staged);
    if (!in.has_message() || !is_filled(in.place(), shape.slot_bytes, i)) return "wrong bytes";
    in.release();
  }
  return "";
}

// A listener that hands `memory` to the first who shows any ticket.
std::thread serve_memory(const FileDescriptor& listener, const FileDescriptor& memory,
                         std::uint64_t bytes) {
  return std::thread([&listener, &memory, bytes] {
    pollfd ready{listener.get(), POLLIN, 0};
    if (poll(&ready, 1, 5000) != 1) return;
    const FileDescriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    // A sender that finds fault with the listener itself shows no ticket.
    if (read_hello(socket).has_value()) (void)hand_over(socket, memory, bytes);
  });
}

Status join_impostor(Side& side, const std::string& listener_name, const FileDescriptor& listener,
                     const FileDescriptor& memory, std::uint64_t bytes, std::uint8_t flags = 0) {
  std::thread thread = serve_memory(listener, memory, bytes);
  const EndpointContents contents{
      .transport = "shm", .flags = flags, .shape = shape, .places = {listener_name}};
  auto connection = side.transport->connect(sending_key, shape, encode_endpoint(contents));
  REQUIRE(connection.ok());
  Status status;
  const std::int64_t end_ns = SystemClock::read() + 5 * ns_per_s;
  while (status.ok() && !(*connection)->ready() && SystemClock::read() < end_ns)
    status = (*connection)->progress();
  thread.join();
  return status;
}

}  // namespace

TEST_CASE("the memory of two processes cannot be resized by either", "[shm]") {
  const auto fifo = make_shared_fifo(shape);
  REQUIRE(fifo.ok());
  CHECK(fifo->sealed);
  CHECK(ftruncate(fifo->descriptor.get(), 0) == -1);
  CHECK(errno == EPERM);
  CHECK(ftruncate(fifo->descriptor.get(), 1 << 30) == -1);
  CHECK((fcntl(fifo->descriptor.get(), F_GET_SEALS) & F_SEAL_SEAL) != 0);
}

TEST_CASE("memory that is unsealed, short or none at all is refused", "[shm]") {
  Side side(Kind::shm_processes);
  const std::string listener_name = "gyre-test-impostor-" + std::to_string(getpid());
  const FileDescriptor listener = listen_local(listener_name);
  const auto bytes = round_up(fifo_bytes(shape), 4096);
  const FileDescriptor memfd(memfd_create("impostor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const auto expect = [&](const FileDescriptor& memory, std::uint64_t said, const char* text) {
    const Status status = join_impostor(side, listener_name, listener, memory, said);
    CHECK(status.code() == Code::RemoteError);
    CHECK(status.culprits() == std::vector<int>{0});
    CHECK_THAT(std::string(status.message()), has_text(text));
  };
  REQUIRE(ftruncate(memfd.get(), static_cast<off_t>(bytes)) == 0);
  expect(memfd, bytes, "not sealed");
  expect(memfd, bytes + 4096, "did not answer with");
  REQUIRE(ftruncate(memfd.get(), 4096) == 0);
  REQUIRE(fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
  expect(memfd, bytes, "4096 bytes, not");
  expect(FileDescriptor(open("/dev/null", O_RDWR | O_CLOEXEC)), bytes, "bytes, not");
}

TEST_CASE("a peer's word alone does not excuse memory from being sealed", "[shm]") {
  Side side(Kind::shm_processes);
  const std::string listener_name = "gyre-test-unsealed-" + std::to_string(getpid());
  const FileDescriptor listener = listen_local(listener_name);
  const auto bytes = round_up(fifo_bytes(shape), 4096);
  const FileDescriptor memory(memfd_create("impostor", MFD_CLOEXEC));
  REQUIRE(ftruncate(memory.get(), static_cast<off_t>(bytes)) == 0);
  const Status status =
      join_impostor(side, listener_name, listener, memory, bytes, endpoint_unsealed);
  CHECK(status.code() == Code::RemoteError);
  CHECK_THAT(std::string(status.message()), has_text("not sealed"));
}

TEST_CASE("a listener of another user is not trusted", "[shm]") {
  if (geteuid() != 0) return;  // only root can be two users
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  FileDescriptor reader(ends[0]), writer(ends[1]);
  const std::string listener_name = "gyre-test-squatter-" + std::to_string(getpid());
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    writer.reset();
    if (setuid(65534) != 0) _exit(1);
    const FileDescriptor listener = listen_local(listener_name);
    char none = 0;
    _exit(read(reader.get(), &none, 1) == 0 ? 0 : 1);  // until the parent closes its end
  }
  Side side(Kind::shm_processes);
  const EndpointContents contents{.transport = "shm", .shape = shape, .places = {listener_name}};
  Status status;
  for (int i = 0; i < 500; ++i, usleep(10'000)) {
    auto connection = side.transport->connect(sending_key, shape, encode_endpoint(contents));
    REQUIRE(connection.ok());
    status = (*connection)->progress();
    // Until the child listens, the listener is nobody's.
    if (status.message().find("nobody listens") == std::string_view::npos) break;
  }
  writer.reset();
  waitpid(child, nullptr, 0);
  CHECK_THAT(std::string(status.message()), has_text("belongs to user 65534"));
}

TEST_CASE("memory that others open can never be run, where the kernel knows of that", "[shm]") {
  constexpr unsigned int noexec_seal = 8;  // Linux 6.3
  if (!FileDescriptor(memfd_create("probe", MFD_CLOEXEC | noexec_seal)).has_value()) return;
  RegionTable regions;
  const Result<void*> region = regions.allocate(4096);
  REQUIRE(region.ok());
  CHECK_FALSE(may_become_a_program(static_cast<int>(regions.find(*region, 4096).descriptor)));
  StatePage state_page;
  const Result<RankState> rank_state = state_page.claim([] { return StatePage::Owner(); }, {});
  REQUIRE(rank_state.ok());
  CHECK_FALSE(may_become_a_program(state_page.descriptor()));
  const Result<p2p::Lease> lease = p2p::Lease::make();
  REQUIRE(lease.ok());
  CHECK_FALSE(may_become_a_program(static_cast<int>(lease->name().descriptor)));
  const auto fifo = make_shared_fifo(shape);
  REQUIRE(fifo.ok());
  CHECK_FALSE(may_become_a_program(fifo->descriptor.get()));
}

TEST_CASE("where memfd is denied, links work, and no file has a name even for a moment", "[shm]") {
  CHECK(in_child([]() -> std::string {
          Side receiving(Kind::shm_processes), sending(Kind::shm_processes);
          // A sandbox without seccomp shows nothing.
          if (!deny_call(SYS_memfd_create) || !die_at_unlink()) return "";
          const auto fallback = make_shared_fifo(shape);
          if (!fallback.ok() || fallback->sealed) return "the fallback was not taken";
          Link link = open_link(receiving, sending, shape);
          return exchange_one(link);
        }) == "");
}

TEST_CASE("a full /dev/shm is an error that says what to do, not a SIGBUS", "[shm]") {
  CHECK(in_child([]() -> std::string {
          struct statvfs about {};
          if (statvfs("/dev/shm", &about) != 0 || !deny_call(SYS_memfd_create)) return "";
          const std::uint64_t room = about.f_blocks * about.f_frsize;
          // More than the file system has in all, which it refuses before it gives a page.
          FifoShape large{1, 2, 1 << 30};
          while (fifo_bytes(large) <= room && large.slot_count < 32) large.slot_count *= 2;
          if (fifo_bytes(large) <= room) return "";
          const auto fifo = make_shared_fifo(large);
          if (fifo.ok()) return "it was given";
          const std::string text(fifo.status().message());
          return text.find("ENOSPC") != text.npos && text.find("--shm-size") != text.npos ? ""
                                                                                          : text;
        }) == "");
}

TEST_CASE("a process without descriptors left gets an error, and links when it has them", "[shm]") {
  CHECK(in_child([]() -> std::string {
          Side receiving(Kind::shm_processes), sending(Kind::shm_processes);
          const rlimit none{3, 3};
          rlimit before{};
          getrlimit(RLIMIT_NOFILE, &before);
          const rlimit lowered{none.rlim_cur, before.rlim_max};
          setrlimit(RLIMIT_NOFILE, &lowered);
          auto refused = receiving.transport->listen({.direction = Direction::receive}, shape,
                                                     sending.identity);
          setrlimit(RLIMIT_NOFILE, &before);
          const std::string text(refused.status().message());
          if (text.find("EMFILE") == text.npos) return "said: " + text;
          Link link = open_link(receiving, sending, shape);
          return exchange_one(link);
        }) == "");
}

namespace {

// A sender, and a listener that is one end of it: guests come one after the other.
struct KnockingSender {
  explicit KnockingSender(const std::string& name)
      : listener_name(name + std::to_string(getpid())), listener(listen_local(listener_name)) {
    const EndpointContents contents{.transport = "shm", .shape = shape, .places = {listener_name}};
    auto made = side.transport->connect(sending_key, shape, encode_endpoint(contents));
    REQUIRE(made.ok());
    sender = std::move(*made);
  }
  // The next one who has shown a ticket; none after an error.
  FileDescriptor next_guest() {
    const std::int64_t end_ns = SystemClock::read() + 10 * ns_per_s;
    pollfd ready{listener.get(), POLLIN, 0};
    while (status.ok() && SystemClock::read() < end_ns) {
      status = sender->progress();
      if (poll(&ready, 1, 0) == 1)
        return FileDescriptor(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    }
    return {};
  }

  const std::string listener_name;
  const FileDescriptor listener;
  Side side{Kind::shm_processes};
  std::unique_ptr<Connection> sender;
  Status status;
};

}  // namespace

TEST_CASE("a listener that closes before it has read the ticket is asked again", "[shm]") {
  KnockingSender knocking("gyre-test-besieged-");
  for (int i = 0; i < 5; ++i) CHECK(knocking.next_guest().has_value());  // and closed
  const FileDescriptor guest = knocking.next_guest();
  INFO(knocking.status.message());
  REQUIRE(guest.has_value());
  REQUIRE(read_hello(guest).has_value());
  const auto fifo = make_shared_fifo(shape);
  REQUIRE(fifo.ok());
  REQUIRE(hand_over(guest, fifo->descriptor, fifo->memory->mapping.get().bytes).ok());
  CHECK(knocking.sender->progress().ok());
  CHECK(knocking.sender->ready());
}

TEST_CASE("a listener that closes each time is an error in the end", "[shm]") {
  KnockingSender knocking("gyre-test-overrun-");
  while (knocking.next_guest().has_value()) continue;
  CHECK(knocking.status.code() == Code::RemoteError);
  CHECK(knocking.status.culprits() == std::vector<int>{0});
  CHECK_THAT(std::string(knocking.status.message()), has_text("closed 8 connections"));
}

TEST_CASE("a listener that closes on the ticket that it has read is not asked again", "[shm]") {
  KnockingSender knocking("gyre-test-refusing-");
  {
    const FileDescriptor guest = knocking.next_guest();
    REQUIRE(read_hello(guest).has_value());
  }
  CHECK_FALSE(knocking.next_guest().has_value());
  CHECK(knocking.status.code() == Code::RemoteError);
  CHECK_THAT(std::string(knocking.status.message()), has_text("closed on our ticket"));
}

}  // namespace shm_memory_test
