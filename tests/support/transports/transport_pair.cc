#include "tests/support/transports/transport_pair.h"

#include "tests/support/fake_verbs/pair_verbs.h"
#include "tests/support/transports/pair_ucp.h"
#include "tests/support/transports/post_office.h"
#include "transports/plugin/plugin.h"
#include "transports/rdma/rdma.h"
#include "transports/self/self.h"
#include "transports/shm/shm.h"
#include "transports/tcp/tcp.h"
#include "transports/ucx/ucx.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace gyre::tests {
namespace {

using transport::Direction;

trust::ProcessIdentity make_identity() {
  trust::ProcessIdentity identity;
  if (getrandom(identity.process.data(), identity.process.size(), 0) < 0) std::abort();
  identity.host.fill(1);
  identity.net_namespace = 1;
  identity.pid = static_cast<std::uint32_t>(getpid());
  identity.uid = geteuid();
  return identity;
}

using Ways = TestListener::Ways;

// Between the threads of one process; between two, which threads of one may stand for; between two
// that only threads of one stand for; or between two processes alone.
enum class Ends { one_process, two_sides, two_sides_of_one_process, two_processes };

std::unique_ptr<transport::Transport> make_example_plugin(
    const transport::TransportEnvironment& environment) {
  const auto loaded = transport::load_plugins(example_plugin_path());
  if (!loaded.ok()) std::abort();
  return transport::make_plugin_transport(*loaded->front(), environment);
}

struct KindRow {
  Kind kind;
  const char* name;
  std::unique_ptr<transport::Transport> (*make)(const transport::TransportEnvironment&);
  Ends ends = Ends::one_process;
  bool maps_slots = false;
  Ways listens = Ways::local_only;
};
constexpr KindRow rows[] = {
    {Kind::self, "self", transport::make_self_transport, Ends::one_process, true},
    {Kind::shm_threads, "shm between threads", transport::make_shm_transport, Ends::one_process,
     true},
    {Kind::shm_processes, "shm between processes", transport::make_shm_transport,
     Ends::two_processes, true},
    {Kind::rdma, "rdma over a fake", transport::make_rdma_transport,
     Ends::two_sides_of_one_process},
    {Kind::rdma_device, "rdma over a device", transport::make_rdma_transport, Ends::two_sides},
    {Kind::tcp4, "tcp over IPv4", transport::make_tcp_transport, Ends::two_sides, false,
     Ways::with_tcp4},
    {Kind::tcp6, "tcp over IPv6", transport::make_tcp_transport, Ends::two_sides, false,
     Ways::with_tcp6},
    {Kind::tcp_tls, "tcp under TLS", transport::make_tcp_transport, Ends::two_sides, false,
     Ways::with_tcp4},
    {Kind::tcp_rails, "tcp over three sockets", transport::make_tcp_transport, Ends::two_sides,
     false, Ways::with_tcp4},
    {Kind::tcp_checked, "tcp with checksums", transport::make_tcp_transport, Ends::two_sides, false,
     Ways::with_tcp4},
    {Kind::ucx, "ucx over a fake", transport::make_ucx_transport, Ends::two_sides_of_one_process},
    {Kind::ucx_shm, "ucx over shared memory", transport::make_ucx_transport, Ends::two_sides},
    {Kind::ucx_tcp, "ucx over TCP", transport::make_ucx_transport, Ends::two_sides},
    {Kind::plugin, "a plug-in", make_example_plugin, Ends::two_sides},
};

const KindRow& row_of(Kind kind) { return *std::ranges::find(rows, kind, &KindRow::kind); }

loaded::SharedVerbs* verbs_of(Kind kind) {
  if (kind == Kind::rdma_device) return machine_verbs();
  return kind == Kind::rdma ? pair_verbs() : nullptr;
}

loaded::SharedUcp* ucp_of(Kind kind) {
  if (kind == Kind::ucx) return pair_ucp();
  if (kind == Kind::ucx_shm) return machine_ucp(MachineUcx::shared_memory);
  return kind == Kind::ucx_tcp ? machine_ucp(MachineUcx::tcp) : nullptr;
}

std::unique_ptr<transport::Transport> make_transport(Kind kind, Side& side) {
  return row_of(kind).make({.self = side.identity,
                            .tickets = side.tickets,
                            .tcp_encrypted = kind == Kind::tcp_tls,
                            .tcp_sockets = kind == Kind::tcp_rails ? 3U : 1U,
                            .tcp_checksums = kind == Kind::tcp_rails || kind == Kind::tcp_checked,
                            .communicator_hash = 77,
                            .epoch = 3,
                            .letters = post_office(),
                            .announced =
                                [&side](const trust::ProcessIdentity&) {
                                  auto said = side.transport->announcement();
                                  return said.ok() ? std::move(*said) : std::string();
                                },
                            .rdma = pair_rdma_options(),
                            .verbs = verbs_of(kind),
                            .ucp = ucp_of(kind),
                            .lasting = side.lasting});
}

// The thread sanitizer does not see the locks of a library that was built without it.
bool has_ucx(Kind kind) {
#ifdef __SANITIZE_THREAD__
  if (kind != Kind::ucx) return false;
#endif
  return ucp_of(kind)->table().ok();
}

// An InfiniBand or RoCE port that can be used.
bool has_rdma_device() {
  static const bool there = [] {
    const auto announced = Side(Kind::rdma_device).transport->announcement();
    return announced.ok() && !announced->empty();
  }();
  return there;
}

std::string run_receiver(Side& side, Letters& messages, const PairOptions& options,
                         const Script& script) {
  const auto sender = messages.await();
  if (!sender.has_value()) return "the sender said not who it is";
  const auto identity = trust::decode_identity(*sender);
  if (!identity.ok()) return std::string(identity.status().message());
  auto listening = side.transport->listen({.peer = 1, .direction = Direction::receive},
                                          options.shape, *identity);
  if (!listening.ok()) return std::string(listening.status().message());
  messages.post(listening->endpoint);
  End end{side, messages, options, std::move(listening->connection), std::mt19937_64(options.seed),
          {},   {}};
  return script(end);
}

std::string run_sender(Side& side, Letters& messages, const PairOptions& options,
                       const Script& script) {
  messages.post(trust::encode(side.identity));
  const auto endpoint = messages.await();
  if (!endpoint.has_value()) return "the receiver sent no endpoint";
  auto connection =
      side.transport->connect({.peer = 0, .direction = Direction::send}, options.shape, *endpoint);
  if (!connection.ok()) return std::string(connection.status().message());
  End end{side,      messages, options, std::move(*connection), std::mt19937_64(options.seed),
          *endpoint, {}};
  return script(end);
}

struct LetterPair {
  Letters sender, receiver;
};

LetterPair make_messages() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  return {Letters(FileDescriptor(ends[0])), Letters(FileDescriptor(ends[1]))};
}

PairResult run_threads(Kind kind, const PairOptions& options, const Script& sender,
                       const Script& receiver) {
  Side receiving(kind);
  std::unique_ptr<Side> other = is_one_process(kind) ? nullptr : std::make_unique<Side>(kind);
  Side& sending = other != nullptr ? *other : receiving;
  LetterPair messages = make_messages();
  PairResult result;
  std::thread thread(
      [&] { result.sender = run_sender(sending, messages.sender, options, sender); });
  result.receiver = run_receiver(receiving, messages.receiver, options, receiver);
  thread.join();
  return result;
}

// The child: its end's script, what it said as the last message, and gone without a trace of the
// test program that it is a copy of.
[[noreturn]] void run_child(Kind kind, const PairOptions& options, Letters messages,
                            const Letters& report, const Script& script) {
  std::string said;
  {
    Side side(kind);
    said = options.receiver_in_child ? run_receiver(side, messages, options, script)
                                     : run_sender(side, messages, options, script);
  }
  report.post_word("=" + said);
  _exit(0);
}

PairResult run_processes(Kind kind, const PairOptions& options, const Script& sender,
                         const Script& receiver) {
  LetterPair messages = make_messages();
  LetterPair reports = make_messages();
  const bool child_receives = options.receiver_in_child;
  const pid_t child = fork();
  if (child < 0) std::abort();
  if (child == 0) {
    reports.receiver = Letters({});
    Letters mine = std::move(child_receives ? messages.receiver : messages.sender);
    messages = {Letters({}), Letters({})};
    run_child(kind, options, std::move(mine), reports.sender, child_receives ? receiver : sender);
  }
  reports.sender = Letters({});
  Letters mine = std::move(child_receives ? messages.sender : messages.receiver);
  messages = {Letters({}), Letters({})};
  std::string own;
  {
    Side side(kind);
    own = child_receives ? run_sender(side, mine, options, sender)
                         : run_receiver(side, mine, options, receiver);
  }
  mine = Letters({});
  const auto report = reports.receiver.await();
  if (!report.has_value()) kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const std::string said = report.has_value() ? std::string(report->begin() + 1, report->end())
                                              : "its process ended without a word";
  return child_receives ? PairResult{own, said} : PairResult{said, own};
}

}  // namespace

// This program is linked with it, so that it is built before.
std::string example_plugin_path() {
  Dl_info found{};
  if (dladdr(reinterpret_cast<void*>(&gyreTransportPlugin), &found) == 0) std::abort();
  const std::unique_ptr<char, decltype(&std::free)> whole(realpath(found.dli_fname, nullptr),
                                                          &std::free);
  return whole == nullptr ? std::string() : whole.get();
}

std::string kind_name(Kind kind) { return row_of(kind).name; }

std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds;
  for (const KindRow& row : rows) kinds.push_back(row.kind);
  std::erase_if(kinds, [](Kind kind) {
    return (kind == Kind::tcp6 && !has_family(AF_INET6)) ||
           (kind == Kind::rdma && pair_verbs() == nullptr) ||
           (kind == Kind::rdma_device && !has_rdma_device()) ||
           (ucp_of(kind) != nullptr && !has_ucx(kind));
  });
  return kinds;
}

std::vector<Kind> mapped_kinds() {
  std::vector<Kind> kinds = all_kinds();
  std::erase_if(kinds, [](Kind kind) { return !row_of(kind).maps_slots; });
  return kinds;
}

std::vector<Kind> process_kinds() {
  std::vector<Kind> kinds = all_kinds();
  std::erase_if(kinds, [](Kind kind) {
    return is_one_process(kind) || row_of(kind).ends == Ends::two_sides_of_one_process;
  });
  return kinds;
}

transport::RdmaOptions& pair_rdma_options() {
  static transport::RdmaOptions options;
  return options;
}

bool is_one_process(Kind kind) { return row_of(kind).ends == Ends::one_process; }

Side::Side(Kind kind)
    : identity(make_identity()),
      listener(std::make_unique<TestListener>(tickets, identity, row_of(kind).listens)),
      transport(make_transport(kind, *this)) {}

void Letters::post(const std::vector<std::uint8_t>& rank_message) const {
  // An empty datagram would read as the end.
  const std::vector<std::uint8_t> framed =
      rank_message.empty() ? std::vector<std::uint8_t>{0} : rank_message;
  // A reader that is gone is the reader's complaint, not this one's.
  (void)send(socket_.get(), framed.data(), framed.size(), MSG_NOSIGNAL);
}

std::optional<std::vector<std::uint8_t>> Letters::await(int limit_ms) const {
  pollfd ready{socket_.get(), POLLIN, 0};
  if (poll(&ready, 1, limit_ms) <= 0) return std::nullopt;
  std::vector<std::uint8_t> rank_message(4096);
  const ssize_t bytes = recv(socket_.get(), rank_message.data(), rank_message.size(), 0);
  if (bytes <= 0) return std::nullopt;
  rank_message.resize(static_cast<std::size_t>(bytes));
  return rank_message;
}

Link open_link(Side& receiving, Side& sending, const transport::FifoShape& shape,
               const LinkPorts& ports) {
  Link link;
  auto listening = receiving.transport->listen(
      {.peer = 1, .direction = Direction::receive, .ports = ports.receiving}, shape,
      sending.identity);
  link.status = listening.status();
  if (!link.status.ok()) return link;
  link.receiver = std::move(listening->connection);
  link.endpoint = std::move(listening->endpoint);
  auto connection = sending.transport->connect(
      {.peer = 0, .direction = Direction::send, .ports = ports.sending}, shape, link.endpoint);
  link.status = connection.status();
  if (!link.status.ok()) return link;
  link.sender = std::move(*connection);
  if (!pump(link, [&] { return link.sender->ready() && link.receiver->ready(); }) &&
      link.status.ok())
    link.status = Status(Code::Timeout, "the two ends do not meet");
  return link;
}

bool pump(Link& link, const std::function<bool()>& ready) {
  const std::int64_t end_ns = SystemClock::read() + 10 * ns_per_s;
  while (SystemClock::read() < end_ns) {
    for (const auto& connection : {link.sender.get(), link.receiver.get()}) {
      link.status = connection->progress();
      if (!link.status.ok()) return false;
    }
    if (ready()) return true;
    sched_yield();
  }
  return false;
}

namespace {

// 0, 7, 14, ... modulo 256, twice.
constexpr std::array<std::byte, 512> sevens = [] {
  std::array<std::byte, 512> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 & 0xff);
  return bytes;
}();

// Byte i is number * 131 + i * 7 + i / 256. So each 256 bytes are a stretch of `sevens`; 7 * 183 is
// 1 modulo 256. To copy and to compare stretches takes a tenth of the time of single bytes.
const std::byte* filling(std::uint64_t number, std::size_t at) {
  return &sevens[(number * 131 + at / 256) * 183 % 256];
}

}  // namespace

void fill(std::byte* place, std::size_t bytes, std::uint64_t number) {
  for (std::size_t at = 0; at < bytes; at += 256)
    std::memcpy(place + at, filling(number, at), std::min<std::size_t>(256, bytes - at));
}

bool is_filled(const std::byte* place, std::size_t bytes, std::uint64_t number) {
  for (std::size_t at = 0; at < bytes; at += 256) {
    const std::size_t here = std::min<std::size_t>(256, bytes - at);
    if (std::memcmp(place + at, filling(number, at), here) != 0) return false;
  }
  return true;
}

PairResult run_pair(Kind kind, const PairOptions& options, const Script& sender,
                    const Script& receiver) {
  return row_of(kind).ends == Ends::two_processes || options.processes
             ? run_processes(kind, options, sender, receiver)
             : run_threads(kind, options, sender, receiver);
}

}  // namespace gyre::tests
