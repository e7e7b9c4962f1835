// Seeds of ids, identities, frames, first words and addresses.
#include "lib/trust/frame.h"
#include "lib/trust/session_key.h"
#include "lib/trust/tickets.h"
#include "lib/trust/unique_id.h"
#include "tests/fuzz/seeds.h"

#include <cstring>
#include <netinet/in.h>
#include <sys/un.h>

namespace gyre::fuzz {
namespace {

using namespace trust;

UniqueId some_id(std::string address) {
  UniqueId id;
  id.secret.bytes.fill(5);
  id.root_host.fill(7);
  id.root_listener = "gyre-0123456789abcdef01234567";
  id.root_address = std::move(address);
  id.epoch = 3;
  return id;
}

Bytes id_bytes(const std::string& address) { return bytes_of(encode(some_id(address))->bytes); }

void add_ids(Seeds& seeds) {
  const auto as_is = [](const Bytes& id) { return Bytes(Script(0).rest(id)); };
  const auto repaired = [](const Bytes& id) { return Bytes(Script(1).rest(id)); };
  const Bytes id = id_bytes("192.0.2.7:4711");
  seeds.add("unique_id", "ipv4", as_is(id));
  seeds.add("unique_id", "ipv6", as_is(id_bytes("[fd00::2]:65535")));
  seeds.add("unique_id", "no_address", as_is(id_bytes("")));
  seeds.add("unique_id", "zeroes", as_is(Bytes(128)));
  seeds.add("unique_id", "cut", as_is(cut(id, 100)));
  seeds.add("unique_id", "other_version", as_is(changed(id, 7, 9)));
  seeds.add("unique_id", "damaged", as_is(changed(id, 50, 9)));
  seeds.add("unique_id", "long_door", repaired(changed(id, 60, 31)));
  seeds.add("unique_id", "empty_door", repaired(changed(id, 60, 0)));
  seeds.add("unique_id", "other_family", repaired(changed(id, 91, 5)));
  seeds.add("unique_id", "family_changed", repaired(changed(id, 91, 6)));
  seeds.add("unique_id", "tail_not_zero", repaired(changed(id, 115, 1)));
}

ProcessIdentity some_identity() {
  ProcessIdentity identity;
  identity.process.fill(0x31);
  identity.host.fill(0x22);
  identity.net_namespace = 33;
  identity.pid = 4321;
  identity.uid = 44;
  identity.host_name = "node7";
  identity.listener_name = "gyre-0123456789abcdef01234567";
  identity.addresses = {"192.0.2.7:4711", "[fd00::2]:4711"};
  return identity;
}

void add_identities(Seeds& seeds) {
  const auto add = [&](const char* name, auto&& change) {
    ProcessIdentity identity = some_identity();
    change(identity);
    seeds.add("identity", name, encode(identity));
  };
  add("same_host", [](ProcessIdentity&) {});
  add("same_process", [](ProcessIdentity& i) { i.process.fill(0x11); });
  add("other_host", [](ProcessIdentity& i) { i.host.fill(1); });
  add("other_namespace", [](ProcessIdentity& i) { i.net_namespace = 1; });
  add("other_user", [](ProcessIdentity& i) { i.uid = 0; });
  add("no_door", [](ProcessIdentity& i) { i.listener_name.clear(); });
  add("no_address", [](ProcessIdentity& i) { i.addresses.clear(); });
  add("many_addresses", [](ProcessIdentity& i) { i.addresses.assign(20, "192.0.2.7:1"); });
  add("steering_name", [](ProcessIdentity& i) { i.host_name = "node7\nGYRE WARN \x1b[31m"; });
  add("long_names", [](ProcessIdentity& i) { i.host_name = std::string(300, 'h'); });
  add("long_door", [](ProcessIdentity& i) { i.listener_name = std::string(257, 'd'); });
  const Bytes whole = encode(some_identity());
  seeds.add("identity", "cut", cut(whole, whole.size() - 1));
  seeds.add("identity", "too_long", cut(whole, whole.size() + 1));
  seeds.add("identity", "long_text", changed(whole, 49, 0xff));
  seeds.add("identity", "nine_addresses", changed(whole, whole.size() - 33, 9));
}

void add_frames(Seeds& seeds) {
  Bytes stream;
  append_frame(1, {}, stream);
  append_frame(7, bytes_of("a letter"), stream);
  append_frame(255, Bytes(300, 0x5a), stream);
  seeds.add("frame", "whole", Script(0).rest(stream));
  const auto in_cuts = [](std::uint8_t a, std::uint8_t b) { return Script(2).number(a).number(b); };
  seeds.add("frame", "byte_by_byte", in_cuts(0, 0).rest(stream));
  seeds.add("frame", "in_pieces", in_cuts(3, 6).rest(stream));
  seeds.add("frame", "not_whole", in_cuts(40, 1).rest(cut(stream, stream.size() - 1)));
  seeds.add("frame", "of_no_length", Script(0).rest(changed(stream, 0, 0)));
  seeds.add("frame", "of_a_megabyte", Script(0).rest(Bytes{0, 0, 0x10, 0, 1, 2, 3}));
  seeds.add("frame", "too_long", Script(0).rest(Bytes{1, 0, 0x10, 0, 1}));
  seeds.add("frame", "much_too_long", Script(0).rest(Bytes{0xff, 0xff, 0xff, 0xff, 1}));
}

void add_first_words(Seeds& seeds) {
  Bytes ticket = bytes_of("GYRETKT1");
  ticket.resize(sizeof(TicketHello), 0x42);
  seeds.add("first_words", "ticket", ticket);
  seeds.add("first_words", "half_a_ticket", cut(ticket, 30));
  seeds.add("first_words", "other_ticket", changed(ticket, 7, '2'));
  // A record with an identity among other things, as OpenSSL writes it.
  Bytes hello = {22, 3, 1, 0, 0};
  hello.resize(90, 0x33);
  const std::string identity = std::string(identity_prefix) + std::string(32, 'a');
  hello.insert(hello.end(), identity.begin(), identity.end());
  hello.resize(hello.size() + 20, 0x44);
  hello[4] = static_cast<std::uint8_t>(hello.size() - 5);
  seeds.add("first_words", "hello", hello);
  seeds.add("first_words", "half_a_hello", cut(hello, 100));
  seeds.add("first_words", "identity_cut", changed(hello, 4, 130));
  seeds.add("first_words", "no_identity", changed(hello, 95, 'x'));
  seeds.add("first_words", "long_record", changed(hello, 3, 4));
  seeds.add("first_words", "http", bytes_of("GET / HTTP/1.1\r\nHost: gyre\r\n\r\n"));
  seeds.add("first_words", "a_g", bytes_of("G"));
  seeds.add("first_words", "nothing", {});
}

void add_addresses(Seeds& seeds) {
  const auto text = [&](const char* name, std::uint8_t which, std::string_view words) {
    seeds.add("address", name, Script(which).text(words));
  };
  text("ipv4", 0, "192.0.2.7:4711");
  text("ipv6", 0, "[fd00::2]:65535");
  text("mapped", 0, "[::ffff:192.0.2.7]:1");
  text("no_port", 0, "192.0.2.7");
  text("large_port", 0, "192.0.2.7:65536");
  text("ipv6_bare", 0, "fd00::2:1");
  text("wrong_number", 0, "256.0.0.1:80");
  text("wrong_brackets", 0, "[fd00::g]:80");
  text("name", 2, "gyre-0123");
  text("name_too_long", 2, std::string(200, 'n'));
  text("name_empty", 2, "");
  text("host_port", 3, "node7.example:29500");
  text("host_port_v6", 3, "[::1]:29500");
  text("host_port_bare_v6", 3, "::1:29500");
  text("host_port_none", 3, "node7");
  text("host_port_empty", 3, "[]:80");
  text("host_port_zero", 3, "node7:0");
  const auto shown = [&](const char* name, const auto& address) {
    Bytes bytes(sizeof address);
    std::memcpy(bytes.data(), &address, sizeof address);
    seeds.add("address", name, Script(1).rest(bytes));
  };
  shown("shown_v4", sockaddr_in{AF_INET, 80, {0x0100007f}, {}});
  shown("shown_v6", sockaddr_in6{AF_INET6, 80, 0, {}, 0});
  shown("shown_local", sockaddr_un{AF_UNIX, "\0gyre"});
  shown("shown_unnamed", sa_family_t{AF_UNIX});
}

void add_interfaces(Seeds& seeds) {
  const auto add = [&](const char* name, std::string_view wanted, std::uint8_t family) {
    Script script(4);
    script.text(wanted).number(family);
    const auto interface = [&](std::string_view each, std::uint8_t loopback, std::string_view at) {
      script.text(each).number(loopback).text(at);
    };
    interface("lo", 1, "127.0.0.1:0");
    interface("docker0", 0, "172.17.0.1:0");
    interface("eth0", 0, "192.0.2.7:0");
    interface("eth1", 0, "[fd00::2]:0");
    seeds.add("address", name, script);
  };
  add("interfaces_any", "", 0);
  add("interfaces_v6", "", 2);
  add("interfaces_prefix", "eth,lo", 1);
  add("interfaces_exact", "=lo", 0);
  add("interfaces_but", "^eth", 0);
  add("interfaces_but_exact", "^=eth0,eth1,docker0", 0);
  add("interfaces_none", "ib", 0);
  seeds.add("address", "interfaces_bridge",
            Script(4)
                .text("")
                .number(std::uint8_t{0})
                .text("br-1")
                .number(std::uint8_t{0})
                .text("10.0.0.1:0"));
}

}  // namespace

void add_trust_seeds(Seeds& seeds) {
  add_ids(seeds);
  add_identities(seeds);
  add_frames(seeds);
  add_first_words(seeds);
  add_addresses(seeds);
  add_interfaces(seeds);
}

}  // namespace gyre::fuzz
