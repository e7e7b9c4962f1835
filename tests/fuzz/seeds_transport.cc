// Seeds of endpoints and connect messages, of bytes from sockets and in shared memory.
#include "lib/comm/join_info.h"
#include "lib/comm/whereabouts.h"
#include "lib/device/region_message.h"
#include "lib/links/connect_message.h"
#include "lib/transport/endpoint.h"
#include "tests/fuzz/seeds.h"
#include "transports/p2p/memory.h"
#include "transports/plugin/plugin_sender.h"

#include <fmt/core.h>

#include <fcntl.h>
#include <initializer_list>

namespace gyre::fuzz {
namespace {

using namespace transport;

constexpr FifoShape shape = {.slot_count = 2, .line_count = 4, .slot_bytes = 256};

Bytes message_bytes(std::uint32_t place, const EndpointContents& contents) {
  return comm::encode(comm::ConnectMessage{
      .transport = place, .probe = {1, 2, 3}, .endpoint = encode_endpoint(contents)});
}

EndpointContents contents_of(std::string_view transport, std::vector<std::string> places) {
  EndpointContents contents;
  contents.transport = transport;
  contents.process.fill(0x77);
  contents.ticket.fill(0x42);
  contents.shape = shape;
  contents.places = std::move(places);
  return contents;
}

void add_messages(Seeds& seeds) {
  enum : std::uint32_t { self, shm, rdma, tcp, tcp_secret, end = tcp_secret + 2 };
  constexpr std::size_t endpoint_at = 20;
  const auto add = [&](const char* name, std::uint8_t flags, const Bytes& message) {
    seeds.add("connect_message", name, Script(flags).rest(message));
  };
  const Bytes to_self = message_bytes(self, contents_of("self", {}));
  const Bytes to_shm = message_bytes(shm, contents_of("shm", {"gyre-door"}));
  EndpointContents over_tcp = contents_of("tcp", {"192.0.2.7:4711", "[fd00::2]:4711", "nonsense"});
  const Bytes to_tcp = message_bytes(tcp, over_tcp);
  add("self", 3, to_self);
  add("self_other_process", 1, to_self);
  add("self_used_ticket", 2, to_self);
  add("shm_process", 0, to_shm);
  add("shm_thread", 3, to_shm);
  add("shm_no_door", 0, message_bytes(shm, contents_of("shm", {})));
  EndpointContents unsealed = contents_of("shm", {"gyre-door"});
  unsealed.flags = 1;
  add("shm_unsealed", 0, message_bytes(shm, unsealed));
  add("tcp", 0, to_tcp);
  add("tcp_in_clear_for_tls", 0, changed(to_tcp, 0, tcp_secret));
  over_tcp.further_tickets.resize(2);
  add("tcp_three_sockets", 0, message_bytes(tcp, over_tcp));
  over_tcp.further_tickets.clear();
  over_tcp.flags = 1;
  over_tcp.secret.fill(9);
  add("tcp_tls", 0, message_bytes(tcp_secret, over_tcp));
  add("rdma_without_device", 0, message_bytes(rdma, contents_of("rdma", {"nonsense"})));
  add("place_beyond", 0, changed(to_tcp, 0, end));
  add("cut", 0, cut(to_tcp, 19));
  add("empty_endpoint", 0, cut(to_tcp, endpoint_at));
  add("endpoint_cut", 0, cut(to_tcp, to_tcp.size() - 1));
  add("endpoint_too_long", 0, cut(to_tcp, to_tcp.size() + 1));
  add("other_magic", 0, changed(to_tcp, endpoint_at + 3, '1'));
  add("ticket_missing", 0, changed(to_tcp, endpoint_at + 6, 2));
  add("many_tickets", 0, changed(to_tcp, endpoint_at + 7, 1));
  add("other_transport", 0, changed(to_tcp, 0, shm));
  add("nine_places", 0, changed(to_tcp, endpoint_at + 5, 9));
  add("fewer_places", 0, changed(to_tcp, endpoint_at + 5, 1));
  add("no_name", 0, changed(to_tcp, endpoint_at + 104, 0));
  add("place_of_no_length", 0, changed(to_tcp, endpoint_at + 108, 0));
  add("other_shape", 0, changed(to_tcp, endpoint_at + 88, 4));
  over_tcp.places.assign(12, "192.0.2.7:4711");
  over_tcp.places[0] = std::string(300, 'p');
  over_tcp.places[1].clear();
  add("many_places", 0, message_bytes(tcp_secret, over_tcp));
}

void add_handovers(Seeds& seeds) {
  enum : std::uint8_t { right_memory, memory, device, folder };
  enum : std::uint8_t { magic = 1, length = 2, closes = 4, unsealed = 8 };
  constexpr std::uint8_t sealed = F_SEAL_SHRINK | F_SEAL_GROW;
  struct File {
    std::uint8_t kind, seals;
    std::uint32_t bytes = 0;
  };
  const auto add = [&](const char* name, const std::vector<File>& files, int flags,
                       std::size_t message) {
    Script script(static_cast<std::uint8_t>(files.size()));
    for (const File& file : files) script.number(file.kind).number(file.seals).number(file.bytes);
    script.number(static_cast<std::uint8_t>(flags));
    seeds.add("handover", name, script.rest(Bytes(message)));
  };
  add("memory", {{right_memory, sealed}}, magic | length, 16);
  add("memory_to_read", {{right_memory, sealed | 128}}, magic | length, 16);
  add("memory_unsealed", {{right_memory, 0}}, magic | length, 16);
  add("memory_half_sealed", {{right_memory, F_SEAL_GROW}}, magic | length, 16);
  add("memory_unsealed_as_said", {{right_memory, 0}}, magic | length | unsealed, 16);
  add("memory_short", {{memory, sealed, 4096}}, magic | length, 16);
  add("device", {{device, 0}}, magic | length, 16);
  add("folder", {{folder, 0}}, magic | length | unsealed, 16);
  add("two_descriptors", {{right_memory, sealed}, {device, 0}}, magic | length, 16);
  add("four_descriptors", {{right_memory, sealed}, {device, 0}, {device, 0}, {device, 0}},
      magic | length, 16);
  add("no_descriptor", {}, magic | length, 16);
  add("other_magic", {{right_memory, sealed}}, length, 16);
  add("other_length", {{right_memory, sealed}}, magic, 16);
  add("short_letter", {{right_memory, sealed}}, magic | length, 15);
  add("long_letter", {{right_memory, sealed}}, magic | length, 40);
  add("nothing_yet", {}, 0, 0);
  add("closed", {}, closes, 0);
  add("closed_after", {{right_memory, sealed}}, magic | length | closes, 16);
}

// A peer over a plug-in, see its target: messages of these sizes.
Bytes plugin_messages(std::initializer_list<std::uint32_t> sizes) {
  Script script;
  std::uint64_t sequence = 0;
  for (const std::uint32_t bytes : sizes) {
    const PieceHeader header{.bytes = bytes, .sequence = sequence++, .signature = 0x77};
    script.rest({reinterpret_cast<const std::uint8_t*>(&header), sizeof header});
    script.rest(Bytes(bytes, 0x5a));
  }
  return script;
}

void add_plugin_streams(Seeds& seeds) {
  const auto add = [&](const char* name, const Bytes& stream, std::uint8_t at_a_time = 255,
                       std::string_view announced = ",plugin:tape:00ff,", bool is_peer = true) {
    seeds.add("plugin_receiver", name,
              Script(is_peer ? 1 : 0).number(at_a_time).text(announced).rest(stream));
  };
  const Bytes three = plugin_messages({0, 8, 256});
  add("messages", three);
  add("byte_by_byte", three, 1);
  add("more_than_slots", plugin_messages({1, 2, 3, 0, 5, 6, 0, 0, 9}), 60);
  add("nothing", {});
  add("stranger", three, 255, ",plugin:tape:,", false);
  add("too_long", plugin_messages({257}));
  add("half_a_header", cut(three, 20));
  add("half_a_message", cut(three, 100));
  add("lie_magic", changed(three, 0, 0));
  add("lie_sequence", changed(three, 32, 9));
  add("announced_odd", three, 255, ",plugin:tape:00f,");
  add("announced_no_digits", three, 255, "rdma=x,plugin:tape:zz,");
  add("announced_much", {}, 255, ",plugin:tape:" + std::string(600, '0'));
  add("announced_nothing", {}, 255, "");
}

// A peer of a tcp link, see the target for what each piece takes.
class Stream {
 public:
  explicit Stream(std::uint8_t which) : script_(which) {}
  Stream& raw(const Bytes& bytes) { return block(0, bytes); }
  Stream& message(std::size_t bytes) { return block(1, Bytes(bytes, 0x5a)); }
  Stream& lie(std::uint8_t place, std::uint8_t change, std::size_t bytes = 8) {
    script_.number(std::uint8_t{2}).number(place).number(change).block(Bytes(bytes, 0x5a));
    return *this;
  }
  // `place` in steps of four bytes.
  Stream& placed(std::uint8_t call, std::uint8_t place, std::size_t bytes, std::uint8_t flags = 1) {
    script_.number(std::uint8_t{4}).number(call).number(place).number(flags);
    script_.block(Bytes(bytes, 0xa5));
    return *this;
  }
  Stream& take(std::uint8_t count) {
    script_.number(std::uint8_t{3}).number(count);
    return *this;
  }
  operator Bytes() { return script_; }

 private:
  Stream& block(std::uint8_t kind, const Bytes& bytes) {
    script_.number(kind).block(bytes);
    return *this;
  }
  Script script_;
};

void add_streams(Seeds& seeds) {
  enum : std::uint8_t { clear, ticket, tls };
  const auto add = [&](const char* name, Bytes bytes) {
    seeds.add("tcp_receiver", name, std::move(bytes));
  };
  add("messages", Stream(clear).message(0).message(1).message(256).take(2).message(100));
  Stream many(clear);
  for (int i = 0; i < 12; ++i) many.message(200);
  add("more_than_slots", many.take(1).take(3).take(7));
  add("too_long", Stream(clear).message(257));
  add("nothing", Stream(clear));
  add("half_a_header", Stream(clear).message(8).raw(bytes_of("GYW1")));
  add("foreign", Stream(clear).raw(Bytes(100, 'x')));
  struct Lie {
    const char* name;
    std::uint8_t place;
  };
  for (const Lie& lie :
       {Lie{"lie_magic", 0}, Lie{"lie_version", 4}, Lie{"lie_class", 6}, Lie{"lie_flags", 7},
        Lie{"lie_communicator", 8}, Lie{"lie_epoch", 16}, Lie{"lie_channel", 20},
        Lie{"lie_sequence", 24}, Lie{"lie_bytes", 63}, Lie{"lie_offset", 56}, Lie{"lie_call", 40},
        Lie{"lie_place", 48}, Lie{"lie_signature", 32}})
    add(lie.name, Stream(clear).message(8).lie(lie.place, 1).take(2));
  add("payload_longer", Stream(clear).lie(60, 8, 8).raw(Bytes(8)).message(3));
  add("payload_missing", Stream(clear).lie(60, 32, 8));
  add("places", Stream(clear).placed(1, 0, 8).placed(1, 100, 112).message(3).take(3));
  add("places_over_others", Stream(clear).placed(1, 1, 20).placed(1, 3, 20).take(1).take(1));
  add("place_beyond",
      Stream(clear).placed(1, 127, 5).placed(1, 128, 1).placed(1, 255, 200).take(3));
  add("place_of_another_call", Stream(clear).placed(2, 0, 8).placed(0, 0, 8));
  add("place_not_final", Stream(clear).placed(1, 0, 8, 0).take(1).placed(1, 0, 8, 3));
  add("tls_places", Stream(tls).placed(1, 2, 200).placed(1, 60, 100).take(2));
  add("tls_messages", Stream(tls).message(0).message(256).take(1).message(100));
  add("tls_lie", Stream(tls).message(8).lie(24, 1));
  add("tls_half", Stream(tls).lie(60, 32, 8));
  Stream many_under_tls(tls);
  for (int i = 0; i < 9; ++i) many_under_tls.message(180);
  add("tls_more_than_slots", many_under_tls.take(6));
  Bytes good = bytes_of("GYRETKT1");
  good.resize(40, 0x42);
  add("ticket", Script(ticket).block(good));
  add("ticket_in_pieces", Script(ticket).block({good.data(), 7}).block({good.data() + 7, 33}));
  Bytes more = good;
  more.resize(60);
  add("ticket_and_more", Script(ticket).block(more));
  add("ticket_of_another", Script(ticket).block(changed(good, 39, 0x43)));
  add("ticket_other_magic", Script(ticket).block(changed(good, 0, 'x')));
}

// A part of a message, see the target for what each piece takes.
class PartsStream {
 public:
  enum : std::uint8_t { nothing, landed, taken, landed_and_taken };
  PartsStream& part(std::uint8_t message, std::uint8_t offset, std::uint8_t bytes,
                    std::uint8_t flags, std::uint8_t then = landed) {
    for (const std::uint8_t byte : {message, offset, bytes, flags, then}) script_.push_back(byte);
    return *this;
  }
  operator Bytes() { return script_; }

 private:
  Bytes script_;
};

void add_parts(Seeds& seeds) {
  enum : std::uint8_t { more, last, more_of_another, last_of_another };
  const auto add = [&](const char* name, Bytes bytes) {
    seeds.add("tcp_parts", name, std::move(bytes));
  };
  using P = PartsStream;
  add("whole", P().part(0, 0, 200, last, P::landed_and_taken).part(0, 0, 0, last));
  add("in_order", P().part(0, 0, 100, more).part(0, 100, 50, more).part(0, 150, 100, last));
  add("last_first", P().part(0, 150, 100, last).part(0, 100, 50, more).part(0, 0, 100, more));
  add("next_first",
      P().part(1, 0, 9, last).part(3, 0, 4, last).part(0, 0, 8, last).part(0, 0, 1, last));
  add("begun_together", P().part(0, 0, 10, more, P::nothing).part(0, 10, 10, last, P::nothing));
  add("no_room", P().part(4, 0, 10, last).part(5, 0, 10, last));
  add("over_another", P().part(0, 0, 100, more).part(0, 99, 10, last).part(0, 100, 1, last));
  add("beyond_the_end", P().part(0, 50, 50, last).part(0, 99, 2, more).part(0, 0, 50, more));
  add("two_ends", P().part(0, 50, 50, last, P::nothing).part(0, 0, 50, last, P::nothing));
  add("before_the_others", P().part(0, 100, 50, more).part(0, 0, 50, last));
  add("beyond_the_slot", P().part(0, 200, 57, last).part(0, 200, 56, last));
  add("another_call", P().part(0, 0, 50, more).part(0, 50, 50, last_of_another));
  add("empty_after_a_part", P().part(0, 0, 50, more).part(0, 0, 0, last));
  PartsStream many;
  for (std::uint8_t i = 0; i < 9; ++i) many.part(0, i * 10, 10, i == 8 ? last : more);
  add("nine_parts", many);
}

void add_notes(Seeds& seeds) {
  const auto note = [](std::string_view settings, std::string_view mask) {
    return comm::encode(comm::JoinInfo{settings, "GPU-00 124 8 16 0000:1B:00.0", mask, "0,0,8,-",
                                       "rdma=roce4,roce6", "0123456789abcdef0123456789abcdef+",
                                       "rdma=50000,tcp=1250", "/autogroup-7"});
  };
  const std::string_view settings = "version=1 transports=self,shm,tcp";
  const auto add = [&](const char* name, std::initializer_list<control::MessageBytes> notes) {
    Script script;
    for (const control::MessageBytes& each : notes) script.block(each);
    seeds.add("joining", name, script);
  };
  add("two_ranks", {note(settings, "0000000000000003"), note(settings, "0000000000000006")});
  add("many_words", {note(settings, "ffffffffffffffff0000000000000001")});
  add("capitals", {note(settings, "FFFFFFFFFFFFFFFF"), note(settings, "00000000000000aF")});
  add("half_a_word", {note(settings, "00000000000000ff00000000")});
  add("no_digits", {note(settings, "-00000000000000f"), note(settings, "0x000000000000ff")});
  const auto device = [&](std::string_view text) {
    return comm::encode(comm::JoinInfo{settings, text, "0000000000000001", "-,-,-,-"});
  };
  add("device_without_numbers", {device("GPU-00"), device("GPU-00 "), device(" 1 1 1")});
  add("device_out_of_bounds", {device("GPU-00 0 1 1"), device("GPU-00 1 1 1048577")});
  add("device_and_more", {device("GPU-00 1 1 1 1"), device("GPU-00 1 -1 x")});
  add("host_memory", {device("")});
  add("no_mask", {note(settings, ""), control::MessageBytes(), bytes_of("version=1")});
  add("gpus", {device("GPU-00 124 8 16 1 140000 90 0000:1B:00.0 - GPU-01:0:NVL:18 GPU-02:1:SYS:0"),
               device("GPU-01 124 8 16 1 140000 90 0000:1C:00.0 0123abcd:2:34 GPU-00:0:NVL:18"),
               device("GPU-02 124 8 16 4 9000 90 0000:1D:00.0 0123abcd:2:34,4567cdef:1:8"),
               device("GPU-01 124 8 16 1 0 90 0000:1C:00.0 - GPU-00:2:PXB:0 GPU-02:3:unknown:0")});
  add("gpus_malformed",
      {device("GPU-00 0 8 16 1 1 90 0000:1B:00.0 -"), device("GPU-00 124 8 16"),
       device("GPU-00 124 8 16 1 1 90 a - GPU-01:4:NVL:18"),
       device("GPU-00 124 8 16 1 1 90 a - GPU-01:0:FAR:1"),
       device("GPU-00 124 8 16 1 1 90 a - GPU-01:0:NVL:2000"),
       device("GPU-00 124 8 16 1 1 90 a - "), device("GPU-00 0124 8 16 1 1 90 a -")});
  add("holdings_malformed",
      {device("GPU-00 124 8 16 1 1 90 a x"), device("GPU-00 124 8 16 1 1 90 a x:1:1,"),
       device("GPU-00 124 8 16 1 1 90 a x:0:1"), device("GPU-00 124 8 16 1 1 90 a x:1:1:1"),
       device("GPU-00 124 8 16 1 1 90 a x:1:1048577"), device("GPU-00 124 8 16 1 -1 90 a -")});
  add("holdings_too_many", {device("GPU-00 124 8 16 1 100000 90 a x:1:60,y:1:60"),
                            device("GPU-00 124 8 16 1 100000 90 a z:1:4")});
  std::string crowd = "GPU-00 124 8 16 1 1 90 a -";
  for (int i = 0; i < 65; ++i) crowd += fmt::format(" GPU-{}:0:NVL:1", i);
  add("gpus_of_no_host",
      {device(crowd), device(std::string(65, 'G').append(" 124 8 16 1 1 90 a -"))});
  add("marks", {note("algo=a|b", "0000000000000001"), bytes_of("||")});
}

void add_memory_messages(Seeds& seeds) {
  p2p::IpcMemory message;
  message.lease = {0, 1};
  message.allocation_bytes = 4096;
  message.offset = 1024;
  message.bytes = 3072;
  const auto add = [&](const char* name, std::uint8_t flags, const Bytes& bytes) {
    seeds.add("ipc_memory", name, Script(flags).rest(bytes));
  };
  const Bytes good = encode(message);
  add("good", 1, good);
  add("no_lease", 0, good);
  message.lease.descriptor = 1 << 20;
  add("no_file", 0, encode(message));
  add("other_version", 1, changed(good, 0, 9));
  add("cut", 1, cut(good, good.size() - 1));
  add("too_long", 1, cut(good, good.size() + 1));
  const auto lie = [&](const char* name, std::uint64_t offset, std::uint64_t bytes,
                       std::uint64_t whole) {
    message.offset = offset;
    message.bytes = bytes;
    message.allocation_bytes = whole;
    add(name, 1, encode(message));
  };
  lie("beyond", 1025, 3072, 4096);
  lie("turned", ~0ULL, 2, 4096);
  lie("nothing", 4096, 0, 4096);
  lie("more_than_any", 0, 1, 1ULL << 47);
}

void add_region_messages(Seeds& seeds) {
  using Kind = comm::RegionMessage::Kind;
  comm::RegionMessage message{.number = 0x305, .bytes = 2 << 20, .ticket = {}};
  message.ticket.fill(0x42);
  const auto add = [&](const char* name, const Bytes& bytes) {
    seeds.add("region_message", name, bytes);
  };
  const Bytes good = encode(message);
  add("offered", good);
  add("other_version", changed(good, 0, 9));
  add("cut", cut(good, good.size() - 1));
  add("too_long", cut(good, good.size() + 1));
  const auto lie = [&](const char* name, std::uint64_t number, std::uint64_t bytes) {
    message.number = number;
    message.bytes = bytes;
    add(name, encode(message));
  };
  lie("no_region", 255, 4096);
  lie("nothing", 256, 0);
  lie("more_than_any", 256, 1ULL << 47);
  message.number = ~0ULL;
  message.kind = Kind::opened;
  add("opened", encode(message));
  message.kind = Kind::refused;
  add("refused", encode(message));
  message.kind = Kind::withdrawn;
  add("withdrawn", encode(message));
  add("withdrawn_offer", changed(good, 4, 3));
  add("other_kind", changed(good, 4, 7));
  message = {.kind = Kind::exported, .number = 0x305};
  message.memory.lease = {7, 4711};
  message.memory.allocation_bytes = message.memory.bytes = 4 << 20;
  const Bytes exported = encode(message);
  add("exported", exported);
  add("exported_cut", cut(exported, exported.size() - 1));
  add("exported_offer", changed(exported, 4, 0));
  message.memory.bytes -= 4096;
  add("exported_part", encode(message));
  message.kind = Kind::closed;
  add("closed", encode(message));
  message.kind = Kind::kept;
  add("kept", encode(message));
}

void add_whereabouts(Seeds& seeds) {
  using Standing = comm::Whereabouts::Standing;
  const auto add = [&](const char* name, const Bytes& bytes) {
    seeds.add("whereabouts", name, bytes);
  };
  comm::Whereabouts seen;
  add("idle", encode(seen));
  seen.elsewhere = "the other one";
  seen.last_collective = 11;
  add("elsewhere", encode(seen));
  seen = {};
  seen.standing = Standing::waits;
  seen.last_collective = 12;
  seen.collective = {static_cast<BlockedOn>(1), 15, 3, 12};
  const Bytes waiting = encode(seen);
  add("waits", waiting);
  add("cut", cut(waiting, waiting.size() - 1));
  add("too_long", cut(waiting, waiting.size() + 1));
  add("no_standing", changed(waiting, 0, 9));
  add("no_wait", changed(waiting, 9, 200));
  seen.collective.peer = 16;
  add("rank_beyond", encode(seen));
}

}  // namespace

void add_transport_seeds(Seeds& seeds) {
  add_whereabouts(seeds);
  add_region_messages(seeds);
  add_memory_messages(seeds);
  add_messages(seeds);
  add_handovers(seeds);
  add_streams(seeds);
  add_parts(seeds);
  add_plugin_streams(seeds);
  add_notes(seeds);
}

}  // namespace gyre::fuzz
