// Seeds of the control plane's messages, of requests for the id, and of the files and memory that
// hold secrets.
#include "lib/control/cause.h"
#include "lib/control/messages.h"
#include "lib/rendezvous/id_connection.h"
#include "lib/trust/wire.h"
#include "tests/fuzz/seeds.h"

#include <fcntl.h>

namespace gyre::fuzz {
namespace {

using namespace control;
using namespace rendezvous;

// The first byte of a seed of `message`.
enum Which : std::uint8_t {
  join,
  hello,
  letter,
  cause,
  leave,
  roster,
  greeting,
  open,
  opened,
  on_link,
  heard,
  departed,
  place,
};

trust::ProcessIdentity process(std::uint8_t number) {
  trust::ProcessIdentity identity;
  identity.process.fill(number);
  identity.host_name = "node7";
  identity.listener_name = "gyre-door";
  identity.addresses = {"192.0.2.7:4711"};
  return identity;
}

Bytes join_bytes(std::uint32_t size, std::uint32_t rank) {
  JoinMessage message;
  message.size = size;
  message.rank = rank;
  message.init_timeout_ms = 120'000;
  message.liveness_ms = 10'000;
  message.process = process(1);
  message.note = bytes_of("version=1|00000000000000ff");
  return encode(message);
}

void add_joins(Seeds& seeds) {
  const auto add = [&](const char* name, const Bytes& bytes) {
    seeds.add("message", name, Script(join).rest(bytes));
  };
  const Bytes good = join_bytes(8, 3);
  add("join", good);
  add("join_nothing", {});
  add("join_other_version", changed(good, 0, 2));
  add("join_cut", cut(good, good.size() - 1));
  add("join_too_long", cut(good, good.size() + 1));
  add("join_no_size", join_bytes(0, 0));
  add("join_rank_beyond", join_bytes(8, 8));
  add("join_many_ranks", join_bytes(1 << 25, 0));
  add("join_no_time", changed(changed(changed(good, 10, 0), 11, 0), 12, 0));
  add("join_long_identity", changed(good, 20, 0xff));
  add("join_bad_identity", changed(good, 70, 0xff));
}

Bytes cause_bytes(Code code, std::string text, std::vector<int> culprits) {
  return encode_cause(Status(code, std::move(text)).blame(std::move(culprits)));
}

void add_causes(Seeds& seeds) {
  const auto add = [&](const char* name, const Bytes& bytes, std::uint32_t size = 8) {
    seeds.add("message", name, Script(cause).number(size).rest(bytes));
  };
  const Bytes good = cause_bytes(Code::RemoteError, "rank 3 died", {3});
  add("cause", good);
  add("cause_of_nobody", cause_bytes(Code::Timeout, "late", {}));
  add("cause_of_many", cause_bytes(Code::Timeout, "late", {0, 1, 2, 4, 6, 7}));
  std::vector<int> even;
  for (int rank = 0; rank < 40; rank += 2) even.push_back(rank);
  add("cause_of_many_runs", cause_bytes(Code::Timeout, "late", even), 64);
  add("cause_unknown_size", good, 0);
  add("cause_rank_beyond", good, 3);
  add("cause_negative_rank", changed(good, good.size() - 1, 0xff), 0);
  add("cause_success", changed(good, 0, 0));
  add("cause_unknown_code", changed(good, 0, 11));
  add("cause_cut", cut(good, good.size() - 1));
  add("cause_long_text", cause_bytes(Code::Mismatch, std::string(5000, 't'), {1}));
  add("cause_steering", cause_bytes(Code::Mismatch, "rank 1\nGYRE WARN \x1b[31m", {1}));
  add("cause_too_long_text", changed(good, 2, 0x11));
}

Bytes roster_seed(std::uint32_t size, const std::vector<Bytes>& parts) {
  Script script(roster);
  script.number(size);
  for (const Bytes& part : parts) script.block(part);
  return script;
}

RosterMessage some_roster(std::uint8_t processes, std::uint32_t ranks) {
  RosterMessage message;
  message.liveness_ms = 10'000;
  for (std::uint8_t i = 0; i < processes; ++i) message.roster.processes.push_back(process(i));
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    message.roster.process_of_rank.push_back(rank % processes);
    message.roster.notes.push_back(bytes_of("note"));
  }
  return message;
}

// The same in parts of `most` bytes; encode_parts makes one of 256 KiB.
std::vector<Bytes> in_parts(const Bytes& whole, std::size_t most) {
  std::vector<Bytes> parts;
  const Bytes rest(whole.begin() + 8, whole.end());
  for (std::size_t offset = 0; offset < rest.size(); offset += most) {
    trust::Writer part;
    part.put(static_cast<std::uint32_t>(rest.size()));
    part.put(static_cast<std::uint32_t>(offset));
    part.put_rest(std::span(rest).subspan(offset, std::min(most, rest.size() - offset)));
    parts.push_back(part.take());
  }
  return parts;
}

void add_rosters(Seeds& seeds) {
  const auto add = [&](const char* name, std::uint32_t size, const std::vector<Bytes>& parts) {
    seeds.add("message", name, roster_seed(size, parts));
  };
  const Bytes good = encode_parts(some_roster(2, 5)).front();
  add("roster", 5, {good});
  add("roster_in_parts", 5, in_parts(good, 50));
  add("roster_other_size", 6, {good});
  add("roster_cut", 5, {cut(good, good.size() - 1)});
  add("roster_no_liveness", 5, {changed(changed(good, 8, 0), 9, 0)});
  add("roster_no_process", 5, {changed(good, 12, 0)});
  add("roster_many_processes", 5, {changed(good, 12, 7)});
  add("roster_bad_identity", 5, {changed(good, 16, 3)});
  RosterMessage twice = some_roster(2, 5);
  twice.roster.processes[1] = twice.roster.processes[0];
  add("roster_process_twice", 5, {encode_parts(twice).front()});
  RosterMessage beyond = some_roster(2, 5);
  beyond.roster.process_of_rank[4] = 2;
  add("roster_process_beyond", 5, {encode_parts(beyond).front()});
  std::vector<Bytes> parts = in_parts(good, 50);
  std::swap(parts[1], parts[2]);
  add("roster_out_of_order", 5, parts);
  parts = in_parts(good, 50);
  parts[1] = changed(parts[1], 0, 10);
  parts[1] = changed(parts[1], 1, 0);
  add("roster_total_shrinks", 5, parts);
  add("roster_empty_part", 5, {cut(good, 8)});
  add("roster_huge", 5, {changed(good, 3, 0x7f)});
}

void add_messages(Seeds& seeds) {
  add_joins(seeds);
  add_causes(seeds);
  add_rosters(seeds);
  trust::Token token;
  token.fill(9);
  seeds.add("message", "hello", Script(hello).rest(encode(HelloMessage{3, token})));
  seeds.add("message", "hello_cut", Script(hello).rest(cut(encode(HelloMessage{3, token}), 19)));
  const Bytes placed = encode(PlaceMessage{9, process(1), {1, 65}});
  seeds.add("message", "place", Script(place).rest(placed));
  seeds.add("message", "place_cut", Script(place).rest(cut(placed, placed.size() - 1)));
  seeds.add("message", "place_of_nobody", Script(place).rest(changed(placed, 8, 0xff)));
  seeds.add("message", "place_rank_beyond",
            Script(place).rest(changed(placed, placed.size() - 1, 9)));
  seeds.add("message", "letter",
            Script(letter).rest(encode(RankMessageHead{1, 2, 3, 4}, bytes_of("hi"))));
  seeds.add("message", "letter_empty",
            Script(letter).rest(encode(RankMessageHead{1, 2, 3, 4}, {})));
  seeds.add("message", "letter_cut",
            Script(letter).rest(cut(encode(RankMessageHead{1, 2, 3, 4}, {}), 15)));
  seeds.add("message", "letter_unnumbered",
            Script(letter).rest(encode(RankMessageHead{1, 2, 3, 0}, {})));
  seeds.add("message", "heard", Script(heard).rest(encode(AckMessage{1, 2, 3})));
  seeds.add("message", "heard_cut", Script(heard).rest(cut(encode(AckMessage{1, 2, 3}), 9)));
  seeds.add("message", "departed", Script(departed).rest(bytes_of("\x13\x40\x11")));
  seeds.add("message", "departed_beyond", Script(departed).rest(bytes_of("\x13\x40\x71")));
  seeds.add("message", "departed_longer", Script(departed).rest(bytes_of("\x13\x40\x11\x01")));
  seeds.add("message", "leave", Script(leave).rest(encode_leave(3)));
  seeds.add("message", "leave_cut", Script(leave).rest(cut(encode_leave(3), 3)));
}

void add_trunk_messages(Seeds& seeds) {
  const auto add = [&](const char* name, Which which, const Bytes& bytes) {
    seeds.add("message", name, Script(which).rest(bytes));
    seeds.add("message", std::string(name) + "_cut", Script(which).rest(cut(bytes, 7)));
    Bytes longer = bytes;
    longer.push_back(0);
    seeds.add("message", std::string(name) + "_longer", Script(which).rest(longer));
  };
  trust::KeyProof proof;
  proof.fill(7);
  add("greeting", greeting, encode_greeting(process(1)));
  seeds.add("message", "greeting_of_nobody",
            Script(greeting).rest(changed(encode_greeting(process(1)), 0, 0)));
  add("open", open, encode(OpenMessage{2, std::string(trust::identity_prefix) + "00ff", proof}));
  add("opened", opened, encode(OpenedMessage{2, proof}));
  add("on_link", on_link, encode_on_link(2));
}

// As it goes over the line.
Bytes on_the_line(const IdMessage& message) {
  return Script(static_cast<std::uint8_t>(message.size())).rest(message);
}

IdMessage question(std::uint32_t rank, std::uint32_t size, std::uint32_t meeting,
                   std::uint8_t process) {
  IdRequest made{rank, size, meeting, {}};
  made.process.fill(process);
  return encode(made);
}

void add_lines(Seeds& seeds) {
  enum : std::uint8_t { in_clear, stranger, server, eavesdropper };
  trust::UniqueId id;
  id.root_listener = "gyre-door";
  const IdMessage good = question(1, 4, 2, 8);
  const Bytes said = on_the_line(good);
  seeds.add("id_connection", "question", Script(in_clear).block(said));
  seeds.add("id_connection", "question_in_pieces",
            Script(in_clear)
                .block({said.data(), 1})
                .block({said.data() + 1, 9})
                .block({said.data() + 10, said.size() - 10}));
  Bytes twice = said;
  twice.insert(twice.end(), said.begin(), said.end());
  seeds.add("id_connection", "two_at_once", Script(in_clear).block(twice));
  seeds.add("id_connection", "id", Script(in_clear).block(on_the_line(encode_id(*encode(id)))));
  seeds.add("id_connection", "refusal",
            Script(in_clear).block(on_the_line(encode_refusal("no\x1b[31m, \xff!"))));
  seeds.add("id_connection", "long_refusal",
            Script(in_clear).block(on_the_line(encode_refusal(std::string(300, 'n')))));
  seeds.add("id_connection", "other_answer", Script(in_clear).block(on_the_line({3, 1, 2})));
  seeds.add("id_connection", "empty_message", Script(in_clear).block(Bytes{0}));
  seeds.add("id_connection", "longest_message",
            Script(in_clear).block(on_the_line(IdMessage(255, 'x'))));
  seeds.add("id_connection", "nothing", Script(in_clear));
  seeds.add("id_connection", "stranger", Script(stranger).block(bytes_of("GET /")));
  seeds.add("id_connection", "stranger_hello",
            Script(stranger).block(Bytes{22, 3}).block(Bytes{1, 0, 4, 1, 0, 0, 0}));
  seeds.add("id_connection", "stranger_silent", Script(stranger).block({}).block({}));
  const auto visit = [&](const char* name, std::initializer_list<IdMessage> questions) {
    Script script(server);
    for (const IdMessage& each : questions) script.block(on_the_line(each));
    seeds.add("id_connection", name, script);
  };
  visit("visitors", {good, question(2, 4, 2, 9), question(3, 4, 2, 9)});
  visit("visitor_again", {good, good, question(1, 4, 2, 9)});
  visit("visitor_of_other_size", {question(1, 5, 2, 8)});
  visit("visitor_of_other_meeting", {question(1, 4, 1, 8)});
  visit("visitor_rank_0", {question(0, 4, 2, 8)});
  visit("visitor_rank_beyond", {question(4, 4, 2, 8)});
  visit("visitor_of_other_version", {changed(good, 7, 2)});
  visit("visitor_cut", {cut(good, good.size() - 1)});
  visit("visitor_foreign", {bytes_of("GET / HTTP/1.1")});
  seeds.add("id_connection", "visitor_half", Script(server).block(cut(said, 20)).block({}));
  const auto overheard = [](std::uint8_t changes) { return Script(eavesdropper).number(changes); };
  const std::uint16_t random_of_client = 11 + 5;
  seeds.add("id_connection", "overheard", overheard(0));
  seeds.add("id_connection", "overheard_in_pieces",
            overheard(0).rest(Bytes{0, 3, 0, 200, 50, 10, 255, 255}));
  seeds.add("id_connection", "overheard_changed",
            overheard(1).number(random_of_client).number(std::uint8_t{7}));
  seeds.add("id_connection", "overheard_no_hello",
            overheard(1).number(std::uint16_t{5}).number(std::uint8_t{2}));
}

void add_secrets(Seeds& seeds) {
  enum : std::uint8_t { file, replace, secret, run, store, store_value };
  enum : std::uint8_t { is_file, is_missing, is_link, is_pipe, is_folder };
  const auto add = [&](const char* name, std::uint8_t which, std::uint8_t kind, std::uint16_t mode,
                       const Bytes& bytes) {
    seeds.add("secret", name, Script(which).number(kind).number(mode).rest(bytes));
  };
  trust::UniqueId id;
  const Bytes foreign = bytes_of(encode(id)->bytes);
  id.root_host.fill(7);  // the host of the target
  const Bytes ours = bytes_of(encode(id)->bytes);
  add("file", file, is_file, 0600, foreign);
  add("file_of_the_dead", file, is_file, 0600, ours);
  add("file_open_to_all", file, is_file, 0644, foreign);
  add("file_cut", file, is_file, 0600, cut(foreign, 127));
  add("file_long", file, is_file, 0600, cut(foreign, 129));
  add("file_damaged", file, is_file, 0600, changed(foreign, 9, 1));
  add("file_missing", file, is_missing, 0, {});
  add("file_link", file, is_link, 0, {});
  add("file_pipe", file, is_pipe, 0600, {});
  add("file_folder", file, is_folder, 0, {});
  add("replace_nothing", replace, is_missing, 0, {});
  add("replace_the_dead", replace, is_file, 0600, ours);
  add("replace_foreign", replace, is_file, 0600, foreign);
  add("replace_other", replace, is_file, 0600, bytes_of("my thesis"));
  add("secret", secret, is_file, 0600, Bytes(32, 7));
  add("secret_read_only", secret, is_file, 0400, Bytes(4096, 7));
  add("secret_short", secret, is_file, 0600, Bytes(31, 7));
  add("secret_long", secret, is_file, 0600, Bytes(4097, 7));
  add("secret_open", secret, is_file, 0640, Bytes(32, 7));
  add("secret_missing", secret, is_missing, 0, {});
  const Bytes memory = Script().rest_text("GYRERUN1").rest(Bytes(48, 3));
  constexpr std::uint8_t sealed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  const auto of_run = [&](const char* name, std::uint8_t seals, const Bytes& bytes) {
    seeds.add("secret", name, Script(run).number(seals).rest(bytes));
  };
  of_run("run", sealed, memory);
  of_run("run_unsealed", F_SEAL_SHRINK, memory);
  of_run("run_short", sealed, cut(memory, 55));
  of_run("run_long", sealed, cut(memory, 57));
  of_run("run_other", sealed, changed(memory, 7, '2'));
  seeds.add("secret", "store", Script(store).rest(foreign));
  seeds.add("secret", "store_excuse", Script(store).rest_text("rank 0 failed: no descriptors"));
  seeds.add("secret", "store_other", Script(store).rest_text("hello"));
  seeds.add("secret", "store_damaged", Script(store).rest(changed(foreign, 9, 1)));
  const auto of_value = [&](const char* name, std::uint8_t has_secret, std::uint8_t change,
                            const Bytes& bytes) {
    seeds.add("secret", name, Script(store_value).number(has_secret).number(change).rest(bytes));
  };
  of_value("value", 0, 0, foreign);
  of_value("value_encrypted", 1, 0, Bytes(144, 3));
  of_value("value_encrypted_changed", 1, 1, foreign);
  of_value("value_encrypted_unexpected", 0, 1, Bytes(144, 3));
}

void add_launcher_lines(Seeds& seeds) {
  enum : std::uint8_t { get_result, barrier_out, my_kvsname };
  enum : std::uint8_t { value, kvsname, no_word };
  const auto line = [&](const char* name, std::uint8_t command, std::uint8_t wanted,
                        std::string_view text) {
    seeds.add("launcher", name, Script(0).number(command).number(wanted).rest_text(text));
  };
  constexpr std::string_view found = "cmd=get_result rc=0 msg=success value=00ff";
  line("line", get_result, value, found);
  line("line_without_code", barrier_out, no_word, "cmd=barrier_out");
  line("line_refused", get_result, value, "cmd=get_result rc=-1 msg=key_not_found value=unknown");
  line("line_other", my_kvsname, kvsname, found);
  line("line_lacks", get_result, kvsname, found);
  line("line_empty", get_result, value, "cmd=get_result value= rc=0");
  line("line_spaces", get_result, value, "  cmd=get_result  value=1 value=2 ");
  line("line_letters", get_result, value, "\x1b[31mcmd=get_result");
  const auto talk = [&](const char* name, const std::vector<std::string_view>& answers) {
    Script script(1);
    for (const std::string_view each : answers) script.text(each);
    seeds.add("launcher", name, script);
  };
  constexpr std::string_view hello = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
  constexpr std::string_view space = "cmd=my_kvsname kvsname=k\n", fence = "cmd=barrier_out\n";
  constexpr std::string_view put = "cmd=put_result rc=0\n", got = "cmd=get_result value=00ff\n";
  talk("talk", {hello, space, fence, got, put, fence, "cmd=finalize_ack\n"});
  talk("talk_in_pieces", {"cmd=response", "_to_init rc=0\n", space, fence, got, put, fence});
  talk("talk_put_refused", {hello, space, fence, got, "cmd=put_result rc=-1\n"});
  talk("talk_two_lines", {hello, "cmd=my_kvsname kvsname=k\ncmd=barrier_out\n"});
  talk("talk_no_digits", {hello, space, fence, "cmd=get_result value=0x\n"});
  talk("talk_odd", {hello, space, fence, "cmd=get_result value=00f\n"});
  talk("talk_ends", {hello, space, fence});
  talk("talk_closed", {hello, ""});
}

}  // namespace

void add_bootstrap_seeds(Seeds& seeds) {
  add_messages(seeds);
  add_trunk_messages(seeds);
  add_lines(seeds);
  add_secrets(seeds);
  add_launcher_lines(seeds);
}

}  // namespace gyre::fuzz
