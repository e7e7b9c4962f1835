// Plug-ins that break the promises of gyre/transport.h: tables that are refused, and functions
// whose results are. The streams of the one that keeps them are in transport_conformance_test.
#include "transports/plugin/plugin.h"

#include "lib/links/transport_registry.h"
#include "tests/support/catch.h"
#include "tests/support/transports/transport_pair.h"
#include "transports/plugin/plugin_sender.h"

#include <cstddef>
#include <cstring>
#include <functional>
#include <sys/socket.h>
#include <sys/un.h>

namespace plugin_test {

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;

namespace {

constexpr FifoShape small_shape = {.slot_count = 4, .line_count = 4, .slot_bytes = 256};

const gyreTransportTable_t& example_table() {
  return load_plugins(example_plugin_path())->front()->table;
}

using Change = std::function<void(gyreTransportTable_t&)>;

std::string refusal_of(const Change& change) {
  gyreTransportTable_t table = example_table();
  change(table);
  const auto checked = check_plugin(&table, "/lib.so");
  return checked.ok() ? "" : std::string(checked.status().message());
}

// The example, but for some functions.
class ChangedPlugin {
 public:
  explicit ChangedPlugin(const Change& change)
      : plugin_{.path = "/lib.so", .name = "unix", .reaches = "some", .table = example_table()} {
    change(plugin_.table);
    for (Side* side : {&receiving, &sending})
      side->transport =
          make_plugin_transport(plugin_, {.self = side->identity,
                                          .tickets = side->tickets,
                                          .announced = [](const trust::ProcessIdentity&) {
                                            return std::string(",plugin:unix:,");
                                          }});
  }
  Link open() { return open_link(receiving, sending, small_shape); }

 private:
  Plugin plugin_;

 public:
  Side receiving{Kind::plugin}, sending{Kind::plugin};
};

std::string message_of(const Status& status) { return std::string(status.message()); }

// A client that connects to the listener of an endpoint, as anybody of this host can.
FileDescriptor dial(const Endpoint& endpoint) {
  const auto contents = decode_endpoint(endpoint, "unix", small_shape, 1);
  REQUIRE(contents.ok());
  const std::string& name = contents->places.front();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  REQUIRE(connect(socket.get(), reinterpret_cast<sockaddr*>(&address), bytes) == 0);
  return socket;
}

template <typename Bytes>
void write_all(const FileDescriptor& socket, const Bytes& bytes) {
  const auto whole = static_cast<ssize_t>(sizeof bytes);
  REQUIRE(send(socket.get(), &bytes, sizeof bytes, MSG_NOSIGNAL) == whole);
}

// A receiving end that waits for its peer.
struct Waiting {
  Side side{Kind::plugin}, peer{Kind::plugin};
  Listening listening;
  Waiting() {
    auto made = side.transport->listen({.peer = 1, .direction = Direction::receive}, small_shape,
                                       peer.identity);
    REQUIRE(made.ok());
    listening = std::move(*made);
  }
  trust::Ticket ticket() const {
    return decode_endpoint(listening.endpoint, "unix", small_shape, 1)->ticket;
  }
  Status progress() {
    Status status;
    for (int turn = 0; turn < 100 && status.ok(); ++turn) status = listening.connection->progress();
    return status;
  }
};

}  // namespace

TEST_CASE("the table has the layout of its first release", "[plugin]") {
  // A plug-in that was built with it finds each member where it was; new ones come behind.
  CHECK(offsetof(gyreTransportTable_t, version) == 8);
  CHECK(offsetof(gyreTransportTable_t, name) == 16);
  CHECK(offsetof(gyreTransportTable_t, open) == 32);
  CHECK(offsetof(gyreTransportTable_t, announce) == 48);
  CHECK(offsetof(gyreTransportTable_t, connect) == 88);
  CHECK(offsetof(gyreTransportTable_t, send) == 96);
  CHECK(offsetof(gyreTransportTable_t, check) == 144);
  CHECK(offsetof(gyreTransportPeer_t, announcementBytes) == 40);
  CHECK(offsetof(gyreTransportSelf_t, livenessMs) == 16);
  CHECK(sizeof(gyreTransportWhy_t) == 264);
  CHECK(offsetof(gyreTransportWait_t, events) == 12);
  CHECK(sizeof(gyreTransportPart_t) == 16);
}

TEST_CASE("a table that cannot be used is refused, and says why", "[plugin]") {
  const std::pair<const char*, Change> cases[] = {
      {"has version 2 of gyre/transport.h, and this Gyre version 1",
       [](gyreTransportTable_t& table) { table.version = 2; }},
      {"has a table of 144 bytes", [](gyreTransportTable_t& table) { table.size = 144; }},
      {"sets unknown flags 0x4", [](gyreTransportTable_t& table) { table.flags = 4; }},
      {"has a name that is none", [](gyreTransportTable_t& table) { table.name = nullptr; }},
      {"has a name that is none", [](gyreTransportTable_t& table) { table.name = ""; }},
      {"has a name that is none", [](gyreTransportTable_t& table) { table.name = "a,b"; }},
      {"has a name that is none", [](gyreTransportTable_t& table) { table.name = "Unix"; }},
      {"has a name that is none",
       [](gyreTransportTable_t& table) { table.name = "a2345678901234567890123456789012"; }},
      {"does not say whom it reaches",
       [](gyreTransportTable_t& table) { table.reaches = nullptr; }},
      {"has no function open", [](gyreTransportTable_t& table) { table.open = nullptr; }},
      {"has no function receive", [](gyreTransportTable_t& table) { table.receive = nullptr; }},
      {"has no function waitStream",
       [](gyreTransportTable_t& table) { table.waitStream = nullptr; }}};
  for (const auto& [why, change] : cases) {
    const std::string said = refusal_of(change);
    INFO(said);
    CHECK(said.find("GYRE_TRANSPORT_PLUGIN: /lib.so " + std::string(why)) == 0);
  }
  CHECK(message_of(check_plugin(nullptr, "/lib.so").status()).find("returned no table") !=
        std::string::npos);
  CHECK(refusal_of([](gyreTransportTable_t& table) { table.size += 800; }) == "");
}

TEST_CASE("a plug-in may not have the name of a transport of Gyre's", "[plugin]") {
  Settings settings;
  settings.transport_plugin = example_plugin_path();
  settings.transport = "tcp,unix";
  const auto allowed = comm::allowed_transports(settings);
  REQUIRE(allowed.ok());
  std::string names;
  for (const comm::TransportRow& row : *allowed) names += std::string(row.name) + " ";
  CHECK(names == "self p2p tcp unix ");
  settings.transport = "^unix";
  const auto others = comm::allowed_transports(settings);
  REQUIRE(others.ok());
  for (const comm::TransportRow& row : *others) CHECK(row.name != "unix");
}

TEST_CASE("a result that breaks a promise fails the link and names the plug-in", "[plugin]") {
  const std::pair<const char*, Change> cases[] = {
      {"send says that it moved 1000 of 40 bytes",
       [](gyreTransportTable_t& table) {
         table.send = [](gyreTransportStream_t, const gyreTransportPart_t*, std::size_t,
                         std::size_t* moved, gyreTransportWhy_t*) {
           *moved = 1000;
           return gyreTransportResult_t{gyreTransportOk};
         };
       }},
      {"send says that it moved 0 of 40 bytes",
       [](gyreTransportTable_t& table) {
         table.send = [](gyreTransportStream_t, const gyreTransportPart_t*, std::size_t,
                         std::size_t*,
                         gyreTransportWhy_t*) { return gyreTransportResult_t{gyreTransportOk}; };
       }},
      {"send returned 17, which it must not",
       [](gyreTransportTable_t& table) {
         table.send = [](gyreTransportStream_t, const gyreTransportPart_t*, std::size_t,
                         std::size_t*, gyreTransportWhy_t*) { return gyreTransportResult_t{17}; };
       }},
      {"connect returned no stream",
       [](gyreTransportTable_t& table) {
         table.connect = [](gyreTransportContext_t, const unsigned char*, std::size_t,
                            gyreTransportStream_t*,
                            gyreTransportWhy_t*) { return gyreTransportResult_t{gyreTransportOk}; };
       }},
      {"connect returned 1, which it must not",
       [](gyreTransportTable_t& table) {
         table.connect = [](gyreTransportContext_t, const unsigned char*, std::size_t,
                            gyreTransportStream_t*, gyreTransportWhy_t*) {
           return gyreTransportResult_t{gyreTransportAgain};
         };
       }},
      {"listen: a line of its own",
       [](gyreTransportTable_t& table) {
         table.listen = [](gyreTransportContext_t, const gyreTransportPeer_t*,
                           gyreTransportListener_t*, unsigned char*, std::size_t*,
                           gyreTransportWhy_t* why) {
           std::memset(why->text, 'x', sizeof why->text);  // no zero byte
           std::strcpy(why->text, "a line\nof its own");
           return gyreTransportResult_t{gyreTransportOwnError};
         };
       }},
      {"accept returned no stream", [](gyreTransportTable_t& table) {
         table.accept = [](gyreTransportListener_t, gyreTransportStream_t*, gyreTransportWhy_t*) {
           return gyreTransportResult_t{gyreTransportOk};
         };
       }}};
  for (const auto& [why, change] : cases) {
    ChangedPlugin changed(change);
    const Link link = changed.open();
    INFO(link.status.message());
    CHECK(link.status.code() == Code::SystemError);
    CHECK(link.status.message().find(why) != std::string::npos);
  }
}

TEST_CASE("a network that is not there reaches nobody; a failure to open is an error", "[plugin]") {
  for (const bool absent : {true, false}) {
    static gyreTransportResult_t result;
    result = absent ? gyreTransportPeerError : gyreTransportOwnError;
    ChangedPlugin changed([](gyreTransportTable_t& table) {
      table.open = [](const gyreTransportSelf_t*, gyreTransportContext_t*,
                      gyreTransportWhy_t* why) {
        std::strcpy(why->text, "no card here");
        return result;
      };
    });
    const Transport& transport = *changed.sending.transport;
    const auto announced = transport.announcement();
    CHECK(announced.ok() == absent);
    if (absent) CHECK(*announced == "");
    const Reachability reach = transport.reach(changed.receiving.identity);
    CHECK_FALSE(reach.reachable);
    CHECK(reach.reason.find("no card here") != std::string::npos);
  }
}

TEST_CASE("streams that do not show the ticket do no harm", "[plugin]") {
  Waiting waiting;
  std::vector<FileDescriptor> strangers;
  for (int i = 0; i < 12; ++i) {
    strangers.push_back(dial(waiting.listening.endpoint));
    if (i % 3 == 0) write_all(strangers.back(), trust::TicketHello());  // a wrong one
    if (i % 3 == 1) write_all(strangers.back(), 'x');                   // and silence
    if (i % 4 == 3) strangers.back().reset();
    CHECK(waiting.progress().ok());
  }
  CHECK_FALSE(waiting.listening.connection->ready());
  const FileDescriptor right = dial(waiting.listening.endpoint);
  write_all(right, trust::TicketHello{.ticket = waiting.ticket()});
  CHECK(waiting.progress().ok());
  CHECK(waiting.listening.connection->ready());
}

TEST_CASE("a peer's bytes are checked", "[plugin]") {
  struct Lie {
    const char* why;
    PieceHeader header;
  };
  for (const auto& [why, header] :
       {Lie{"magic 0x1", {.magic = 1}}, Lie{"257 bytes of payload; a slot has 256", {.bytes = 257}},
        Lie{"number 3; expected 0", {.sequence = 3}}}) {
    Waiting waiting;
    const FileDescriptor peer = dial(waiting.listening.endpoint);
    write_all(peer, trust::TicketHello{.ticket = waiting.ticket()});
    write_all(peer, header);
    const Status status = waiting.progress();
    INFO(status.message());
    CHECK(status.code() == Code::RemoteError);
    CHECK(status.culprits() == std::vector<int>{1});
    CHECK(status.message().find(why) != std::string::npos);
  }
  Waiting waiting;
  {
    const FileDescriptor peer = dial(waiting.listening.endpoint);
    write_all(peer, trust::TicketHello{.ticket = waiting.ticket()});
    write_all(peer, PieceHeader{.bytes = 8});
    write_all(peer, 'x');
  }
  CHECK(waiting.progress().message().find("closed after 1 of a message's 8 bytes") !=
        std::string::npos);
}

TEST_CASE("ranks without the plug-in, and other hosts under TLS, are not reached", "[plugin]") {
  Side side(Kind::plugin);
  trust::ProcessIdentity other = side.identity;
  other.process.fill(9);
  const Plugin& plugin = *load_plugins(example_plugin_path())->front();
  const auto reason = [&](const std::string& announced, bool encrypted) {
    const auto transport = make_plugin_transport(
        plugin, {.self = side.identity,
                 .tickets = side.tickets,
                 .tcp_encrypted = encrypted,
                 .announced = [&](const trust::ProcessIdentity&) { return announced; }});
    return transport->reach(other).reason;
  };
  CHECK(reason(",plugin:unix:,", false) == "same host");
  CHECK(reason("rdma=ib,plugin:unix:00ff,", true) == "same host");
  for (const char* text : {"", ",plugin:unit:,", ",plugin:unix:0,", ",plugin:unix:0G,"})
    CHECK(reason(text, false) == "its process has no such transport");
  other.host.fill(9);
  CHECK(reason(",plugin:unix:,", false).find("another host") != std::string::npos);
  CHECK(reason(",plugin:unix:,", true).find("GYRE_TCP_SECURITY=tls") != std::string::npos);
}

}  // namespace plugin_test
