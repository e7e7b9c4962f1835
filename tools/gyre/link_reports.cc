#include "tools/gyre/link_reports.h"

#include "lib/base/clock.h"
#include "tools/gyre/link_session.h"

#include <fmt/core.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <span>
#include <string_view>

namespace gyre::tools {
namespace {

constexpr int max_tries = 16;
constexpr std::uint64_t max_links = 4096;

// A measurement as it travels: all ranks run the same program.
struct LinkRecord {
  std::int32_t low, high, round;
  std::uint32_t has_garbled_talk, was_repeated, is_crowded;
  double known_bytes_per_s, best_latency_us, latency_us, latency_p99_us, both_bytes_per_s;
  DirectedRate up, down;
  char kind[96], failure[200], library_text[800];
};
static_assert(std::is_trivially_copyable_v<LinkRecord>);

template <std::size_t size>
void put_text(char (&field)[size], std::string_view text) {
  text.copy(field, size - 1);
}
template <std::size_t size>
std::string text_of(const char (&field)[size]) {
  return {field, strnlen(field, size)};
}

LinkRecord pack(const LinkMeasurement& link) {
  LinkRecord record{};
  record.low = link.pair.low;
  record.high = link.pair.high;
  record.round = link.round;
  record.has_garbled_talk = link.has_garbled_talk;
  record.was_repeated = link.was_repeated;
  record.is_crowded = link.is_crowded;
  record.known_bytes_per_s = link.known_bytes_per_s;
  record.best_latency_us = link.best_latency_us;
  record.latency_us = link.latency_us;
  record.latency_p99_us = link.latency_p99_us;
  record.both_bytes_per_s = link.both_bytes_per_s;
  record.up = link.up;
  record.down = link.down;
  put_text(record.kind, link.kind);
  put_text(record.failure, link.failure);
  put_text(record.library_text, link.library_text);
  return record;
}

DirectedRate sound(DirectedRate rate) {
  rate.bytes_per_s = sound_figure(rate.bytes_per_s);
  return rate;
}

LinkMeasurement unpack(const LinkRecord& record) {
  return {.pair = {record.low, record.high},
          .round = record.round,
          .kind = text_of(record.kind),
          .known_bytes_per_s = sound_figure(record.known_bytes_per_s),
          .best_latency_us = sound_figure(record.best_latency_us),
          .latency_us = sound_figure(record.latency_us),
          .latency_p99_us = sound_figure(record.latency_p99_us),
          .is_crowded = record.is_crowded != 0,
          .up = sound(record.up),
          .down = sound(record.down),
          .both_bytes_per_s = sound_figure(record.both_bytes_per_s),
          .has_garbled_talk = record.has_garbled_talk != 0,
          .was_repeated = record.was_repeated != 0,
          .failure = text_of(record.failure),
          .library_text = text_of(record.library_text)};
}

// The only other one.
Result<int> peer_of(gyreComm_t comm) {
  int rank = 0;
  GYRE_TRY(checked_call(gyreCommUserRank(comm, &rank), comm, "gyreCommUserRank"));
  return 1 - rank;
}

// Until the other end says that the words came whole.
Status say_surely(gyreComm_t comm, int peer, const TalkWords& words) {
  for (int i = 0; i < max_tries; ++i) {
    GYRE_TRY(send_talk(comm, peer, words));
    TalkWords answer{};
    bool came_whole = false;
    GYRE_TRY(receive_talk(comm, peer, answer, came_whole));
    if (came_whole && answer[0] == 1) return {};
  }
  return Status(Code::RemoteError, "every message came damaged");
}

Result<TalkWords> hear_surely(gyreComm_t comm, int peer) {
  for (int i = 0; i < max_tries; ++i) {
    TalkWords words{};
    bool came_whole = false;
    GYRE_TRY(receive_talk(comm, peer, words, came_whole));
    GYRE_TRY(send_talk(comm, peer, {came_whole ? 1U : 0U}));
    if (came_whole) return words;
  }
  return Status(Code::RemoteError, "every message came damaged");
}

}  // namespace

Result<OwnedPairComm> meet_pair(const gyreUniqueId& id, int rank_of_two, std::int64_t patience_ns,
                                std::int64_t call_ns, const std::string& name) {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.device = GYRE_DEVICE_HOST;
  config.commName = name.c_str();
  config.timeoutMs = static_cast<int>(std::clamp<std::int64_t>(call_ns / ns_per_ms, 1, INT_MAX));
  config.initTimeoutMs =
      static_cast<int>(std::clamp<std::int64_t>(patience_ns / ns_per_ms, 1000, INT_MAX));
  gyreComm_t comm = nullptr;
  GYRE_TRY(checked_call(gyreCommInitRankConfig(&comm, 2, id, rank_of_two, &config), nullptr,
                        "gyreCommInitRankConfig"));
  return OwnedPairComm(comm);
}

Status send_report(gyreComm_t comm, const std::vector<LinkMeasurement>& links) {
  GYRE_ASSIGN(const int peer, peer_of(comm));
  std::vector<LinkRecord> records;
  for (const LinkMeasurement& link : links) records.push_back(pack(link));
  const auto bytes = std::as_bytes(std::span(records));
  GYRE_TRY(say_surely(comm, peer, {records.size(), hash_of(bytes)}));
  for (int i = 0; i < max_tries && !records.empty(); ++i) {
    GYRE_TRY(checked_call(gyreSend(bytes.data(), bytes.size(), gyreUint8, peer, comm, nullptr),
                          comm, "gyreSend"));
    GYRE_ASSIGN(const TalkWords answer, hear_surely(comm, peer));
    if (answer[0] == 1) return {};
  }
  return {};
}

Result<std::vector<LinkMeasurement>> receive_report(gyreComm_t comm, int from, int ranks) {
  GYRE_ASSIGN(const int peer, peer_of(comm));
  GYRE_ASSIGN(const TalkWords head, hear_surely(comm, peer));
  if (head[0] > max_links)
    return invalid_argument(fmt::format("rank {} reports {} links", from, head[0]));
  std::vector<LinkRecord> records(head[0]);
  const auto bytes = std::as_writable_bytes(std::span(records));
  bool came_whole = records.empty();
  for (int i = 0; i < max_tries && !came_whole; ++i) {
    GYRE_TRY(checked_call(gyreRecv(bytes.data(), bytes.size(), gyreUint8, peer, comm, nullptr),
                          comm, "gyreRecv"));
    came_whole = hash_of(bytes) == head[1];
    GYRE_TRY(say_surely(comm, peer, {came_whole ? 1U : 0U}));
  }
  if (!came_whole) return Status(Code::RemoteError, "every report came damaged");
  std::vector<LinkMeasurement> links;
  for (const LinkRecord& record : records) {
    const bool is_pair = 0 <= record.low && record.low < record.high && record.high < ranks;
    if (!is_pair || (record.low != from && record.high != from))
      return invalid_argument(
          fmt::format("rank {} reports a link of ranks {} and {}", from, record.low, record.high));
    links.push_back(unpack(record));
  }
  return links;
}

Status send_errand(gyreComm_t comm, const std::optional<LinkPair>& pair) {
  GYRE_ASSIGN(const int peer, peer_of(comm));
  if (!pair) return say_surely(comm, peer, {0});
  return say_surely(
      comm, peer,
      {1, static_cast<std::uint64_t>(pair->low), static_cast<std::uint64_t>(pair->high)});
}

Result<std::optional<LinkPair>> receive_errand(gyreComm_t comm, int ranks) {
  GYRE_ASSIGN(const int peer, peer_of(comm));
  GYRE_ASSIGN(const TalkWords words, hear_surely(comm, peer));
  if (words[0] == 0) return std::optional<LinkPair>();
  const auto size = static_cast<std::uint64_t>(ranks);
  if (words[1] >= words[2] || words[2] >= size)
    return invalid_argument(
        fmt::format("rank 0 asks for a link of ranks {} and {}", words[1], words[2]));
  return std::optional(LinkPair{static_cast<int>(words[1]), static_cast<int>(words[2])});
}

}  // namespace gyre::tools
