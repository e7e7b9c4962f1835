#include "lib/base/flight_file.h"

#include "lib/base/file_pattern.h"
#include "lib/base/prompt_write.h"

#include <fmt/core.h>

#include <cerrno>
#include <ctime>
#include <iterator>
#include <unistd.h>

namespace gyre {
namespace {

// Ranks of a communicator beyond which its peers are not listed.
constexpr std::size_t max_peers_listed = 4096;

std::string quoted(std::string_view text) {
  std::string shown = "\"";
  for (const char c : printable(text)) {
    if (c == '"' || c == '\\') shown += '\\';
    shown += c;
  }
  shown += '"';
  return shown;
}

std::string maybe(const std::optional<std::int64_t>& value) {
  return value ? std::to_string(*value) : "null";
}

std::string failure_text(const std::optional<FailureRecord>& failure) {
  if (!failure) return "null";
  std::string culprits;
  for (int i = 0; i < failure->culprit_count; ++i)
    culprits +=
        fmt::format("{}{}", i > 0 ? "," : "", failure->culprits[static_cast<std::size_t>(i)]);
  return fmt::format(R"({{"code":{},"text":{},"culprits":[{}],"at_ns":{}}})", failure->code,
                     quoted(failure->text.view()), culprits, failure->at_ns);
}

std::string waits_text(const std::vector<WaitRecord>& waits) {
  std::string text;
  for (const WaitRecord& wait : waits)
    text += fmt::format(
        R"({}{{"phase":"{}","what":"{}","peer":{},"channel":{},"chunk":{},"sequence":{},)"
        R"("serial":{},"since_ns":{}}})",
        text.empty() ? "" : ",", wait_phase_name(wait.phase), blocked_on_word(wait.what), wait.peer,
        wait.channel, wait.chunk, wait.sequence, wait.serial, wait.since_ns);
  return fmt::format("[{}]", text);
}

std::string peers_text(const RankSnapshot& rank_state) {
  if (rank_state.peers.size() > max_peers_listed) return "[]";
  std::string text;
  for (const RankPeers::Peer& peer : rank_state.peers)
    text += fmt::format(R"({}{{"pid":{},"host":{}}})", text.empty() ? "" : ",", peer.pid,
                        quoted(rank_state.hosts[peer.host].name.view()));
  return fmt::format("[{}]", text);
}

std::string_view end_word(FlightEnd end) {
  constexpr std::string_view words[] = {"open", "exact", "soon", "late"};
  return words[static_cast<int>(end)];
}

void add_flight(std::string& text, const CodeNames& names, const TimedFlightEntry& timed) {
  const FlightEntry& flight = timed.flight;
  const FlightCall& call = flight.call;
  fmt::format_to(
      std::back_inserter(text),
      R"({{"serial":{},"sequence":{},"function":"{}","type":"{}","op":"{}","root":{},"count":{},)"
      R"("bytes":{},"algorithm":"{}","protocol":"{}","start_ns":{},"end_ns":{},"end":"{}",)"
      R"("outcome":{}}})"
      "\n",
      flight.serial, call.sequence, name_of(names.functions, call.function),
      name_of(names.types, call.type), name_of(names.ops, call.op), call.root, call.count,
      call.bytes, name_of(names.algorithms, call.algorithm),
      name_of(names.protocols, call.protocol), maybe(timed.start_ns), maybe(timed.end_ns),
      end_word(flight.end), timed.end_ns ? std::to_string(flight.outcome) : "null");
}

void add_wait(std::string& text, const PastWait& past) {
  const WaitRecord& wait = past.wait;
  fmt::format_to(std::back_inserter(text),
                 R"({{"wait":"{}","phase":"{}","peer":{},"channel":{},"chunk":{},"sequence":{},)"
                 R"("serial":{},"start_ns":{},"end_ns":{}}})"
                 "\n",
                 blocked_on_word(wait.what), wait_phase_name(wait.phase), wait.peer, wait.channel,
                 wait.chunk, wait.sequence, wait.serial, wait.since_ns, past.until_ns);
}

std::int64_t wall_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * ns_per_s + now.tv_nsec;
}

}  // namespace

std::string flight_text(const StatePageHead& head, const RankSnapshot& rank_state) {
  const std::int64_t now_ns = SystemClock::read();
  const RankIdentity& identity = rank_state.identity;
  std::string text = fmt::format(
      R"({{"gyre_flights":1,"communicator":{},"label":{},"rank":{},"size":{},"host":{},"pid":{},)"
      R"("thread":{},"version":{},"now_ns":{},"wall_ns":{},"begun":{},"failure":{},"waits":{},)"
      R"("peers":{}}})"
      "\n",
      quoted(identity.name.view()), quoted(identity.label.view()), identity.rank, identity.size,
      quoted(head.host_name.view()), head.pid, rank_state.caller, quoted(head.version.view()),
      now_ns, wall_ns(), rank_state.begun, failure_text(rank_state.failure),
      waits_text(rank_state.waits), peers_text(rank_state));
  for (const TimedFlightEntry& flight : rank_state.flights) add_flight(text, head.names, flight);
  for (const PastWait& past : rank_state.past_waits) add_wait(text, past);
  return text;
}

Result<std::string> write_flight_file(const std::string& pattern, const StatePageHead& head,
                                      const RankSnapshot& rank_state) {
  std::string path = expand_file_pattern(pattern, printable(head.host_name.view()), head.pid,
                                         rank_state.identity.rank);
  auto opened = open_output_file(path, OldText::stays);
  if (!opened.ok()) return std::move(opened).status().while_doing("GYRE_FLIGHT_FILE");
  const FileDescriptor file = std::move(opened).value();
  const std::string text = flight_text(head, rank_state);
  const WriteSignalsHeld held;
  for (std::size_t written = 0; written < text.size();) {
    const ssize_t count = ::write(file.get(), text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Status::from_errno(fmt::format("writing {}", path), errno);
    written += static_cast<std::size_t>(count);
  }
  return path;
}

}  // namespace gyre
