// A stream of a plug-in from a peer that may lie, and what such a peer announces. The fifo receives
// exactly the messages before the first fault, for every cut of the bytes. Input: u8 flags (1: it
// shows the right ticket), u8 bytes that come at a time, block: what its process announced, and the
// rest: what the stream says behind the ticket.
#include "lib/transport/endpoint.h"
#include "tests/fuzz/input.h"
#include "transports/plugin/plugin_sender.h"

#include <cstring>
#include <deque>
#include <vector>

namespace plugin_receiver_fuzz {

using namespace gyre;
using namespace gyre::transport;

namespace {

constexpr FifoShape shape = {.slot_count = 4, .line_count = 4, .slot_bytes = 256};

// The stream that comes, and how far it was read.
struct Tape {
  std::vector<std::uint8_t> bytes;
  std::size_t at = 0, at_a_time = 1;
  bool accepted = false, closed = false;
};
Tape tape;

gyreTransportResult_t ok() { return gyreTransportOk; }

template <typename Handle>
Handle some_handle() {
  return reinterpret_cast<Handle>(&tape);
}

gyreTransportTable_t make_table() {
  gyreTransportTable_t table{};
  table.size = sizeof table;
  table.version = GYRE_TRANSPORT_VERSION;
  table.name = "tape";
  table.reaches = "a tape";
  table.open = [](const gyreTransportSelf_t*, gyreTransportContext_t* context,
                  gyreTransportWhy_t*) {
    *context = some_handle<gyreTransportContext_t>();
    return ok();
  };
  table.close = [](gyreTransportContext_t) {};
  table.reach = [](gyreTransportContext_t, const gyreTransportPeer_t* peer, gyreTransportWhy_t*) {
    GYRE_DEMAND(peer->announcementBytes <= GYRE_TRANSPORT_MAX_ANNOUNCEMENT);
    return ok();
  };
  table.listen = [](gyreTransportContext_t, const gyreTransportPeer_t*,
                    gyreTransportListener_t* listener, unsigned char* endpoint, std::size_t* bytes,
                    gyreTransportWhy_t*) {
    *listener = some_handle<gyreTransportListener_t>();
    *endpoint = 1;
    *bytes = 1;
    return ok();
  };
  table.accept = [](gyreTransportListener_t, gyreTransportStream_t* stream, gyreTransportWhy_t*) {
    if (std::exchange(tape.accepted, true)) return gyreTransportResult_t{gyreTransportAgain};
    *stream = some_handle<gyreTransportStream_t>();
    return ok();
  };
  table.closeListener = [](gyreTransportListener_t) {};
  table.connect = [](gyreTransportContext_t, const unsigned char*, std::size_t,
                     gyreTransportStream_t*,
                     gyreTransportWhy_t*) { return gyreTransportResult_t{gyreTransportPeerError}; };
  table.send = [](gyreTransportStream_t, const gyreTransportPart_t*, std::size_t, std::size_t*,
                  gyreTransportWhy_t*) { return gyreTransportResult_t{gyreTransportAgain}; };
  table.receive = [](gyreTransportStream_t, const gyreTransportPart_t* parts, std::size_t count,
                     std::size_t* moved, gyreTransportWhy_t*) {
    for (std::size_t i = 0; i < count; ++i) {
      GYRE_DEMAND(parts[i].bytes > 0);
      const std::size_t left = std::min(tape.bytes.size() - tape.at, tape.at_a_time - *moved);
      const std::size_t here = std::min(parts[i].bytes, left);
      if (here > 0) std::memcpy(parts[i].data, tape.bytes.data() + tape.at, here);
      tape.at += here;
      *moved += here;
    }
    return gyreTransportResult_t{*moved > 0 ? gyreTransportOk : gyreTransportClosed};
  };
  table.closeStream = [](gyreTransportStream_t) { tape.closed = true; };
  table.waitListener = [](gyreTransportListener_t, gyreTransportWait_t*) {};
  table.waitStream = [](gyreTransportStream_t, int, gyreTransportWait_t*) {};
  return table;
}

struct Message {
  PieceHeader header;
  std::span<const std::uint8_t> payload;
};

// What the bytes mean, by the simplest reading; false if they end in a fault.
bool read_all(std::span<const std::uint8_t> bytes, std::deque<Message>& messages) {
  while (!bytes.empty()) {
    PieceHeader header;
    if (bytes.size() < sizeof header) return false;
    std::memcpy(&header, bytes.data(), sizeof header);
    bytes = bytes.subspan(sizeof header);
    if (header.magic != PieceHeader().magic || header.sequence != messages.size() ||
        header.bytes > shape.slot_bytes || header.bytes > bytes.size())
      return false;
    messages.push_back({header, bytes.first(header.bytes)});
    bytes = bytes.subspan(header.bytes);
  }
  return true;
}

// Takes all that comes; whether it ended without a fault.
bool receive_all(Connection& connection, std::deque<Message> expected) {
  SlotReader in(connection.fifo());
  for (;;) {
    const Status status = connection.progress();
    bool took = false;
    for (; in.has_message(); in.release(), took = true) {
      GYRE_DEMAND(!expected.empty());
      const Message& message = expected.front();
      const SlotHeader note = in.note();
      GYRE_DEMAND(note.bytes == message.payload.size() && note.flag == message.header.signature);
      GYRE_DEMAND(note.bytes == 0 ||
                  std::memcmp(in.place(), message.payload.data(), note.bytes) == 0);
      expected.pop_front();
    }
    if (took && status.ok()) continue;
    GYRE_DEMAND(expected.empty());
    GYRE_DEMAND(fuzz::is_one_line(status.message()));
    return status.ok();
  }
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t size) {
  static const Plugin plugin{.path = "/tape", .name = "tape", .reaches = "", .table = make_table()};
  fuzz::Input input(data, size);
  const bool is_peer = input.take_flag();
  tape = {};
  tape.at_a_time = std::max<std::size_t>(1, input.take<std::uint8_t>());
  const std::string announced = input.take_text();
  trust::ProcessIdentity self, peer;
  peer.process.fill(1);
  trust::TicketBook tickets;
  const auto transport = make_plugin_transport(
      plugin, {.self = self, .tickets = tickets, .announced = [&](const trust::ProcessIdentity&) {
                 return announced;
               }});
  GYRE_DEMAND(!transport->reach(peer).reason.empty() || transport->reach(peer).reachable);
  auto listening = transport->listen({.peer = 1, .direction = Direction::receive}, shape, peer);
  GYRE_DEMAND(listening.ok());
  trust::TicketHello hello;
  if (is_peer) hello.ticket = decode_endpoint(listening->endpoint, "tape", shape, 1)->ticket;
  const auto* const shown = reinterpret_cast<const std::uint8_t*>(&hello);
  tape.bytes.assign(shown, shown + sizeof hello);
  const auto said = input.rest();
  tape.bytes.insert(tape.bytes.end(), said.begin(), said.end());
  std::deque<Message> messages;
  const bool is_good = read_all(said, messages);
  if (!is_peer) {
    GYRE_DEMAND(receive_all(*listening->connection, {}));
    GYRE_DEMAND(!listening->connection->ready() && tape.closed);
    return 0;
  }
  GYRE_DEMAND(receive_all(*listening->connection, messages) == is_good);
  return 0;
}

GYRE_FUZZ_TARGET(plugin_receiver)

}  // namespace plugin_receiver_fuzz
