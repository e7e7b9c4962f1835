#include "lib/comm/rank_levels.h"

#include "lib/comm/join_info.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

namespace gyre::comm {
namespace {

using topology::Medium;
using tune::Level;
using tune::LevelPart;

// The number of the part in which the rank is, unique in its host; -1: nobody knows.
int part_of(const topology::HostedLocality& rank, LevelPart part) {
  switch (part) {
    case LevelPart::cache:
      return rank.locality.cache;
    case LevelPart::numa_node:
      return rank.locality.numa_node;
    case LevelPart::package:
      return rank.locality.package;
    case LevelPart::host:
    case LevelPart::network:
      break;
  }
  return 0;
}

// Nothing if some rank does not know its part.
std::optional<Level> count_parts(const RankLayout& layout, int ranks, LevelPart part) {
  std::map<std::pair<int, int>, int> ranks_in;  // by host and part
  for (int rank = 0; rank < ranks; ++rank) {
    const topology::HostedLocality& where = layout.of(rank);
    const int number = part_of(where, part);
    if (number < 0) return std::nullopt;
    ++ranks_in[{where.host, number}];
  }
  const int first = ranks_in.begin()->second;
  const bool is_even =
      std::ranges::all_of(ranks_in, [&](const auto& one) { return one.second == first; });
  return Level{
      .part = part, .parts = static_cast<int>(ranks_in.size()), .ranks = is_even ? first : 0};
}

// By the slowest; 0 if some rank does not know.
double gigabytes_per_s(const control::Roster& roster, std::string_view transport) {
  std::int64_t least = -1;
  for (const control::MessageBytes& note : roster.notes) {
    const std::int64_t said = wire_megabytes_per_s(read_join_info(note).wires, transport);
    least = least < 0 ? said : std::min(least, said);
  }
  return static_cast<double>(std::max<std::int64_t>(least, 0)) / 1000;
}

// What goes by wires: RDMA where all have ports, UCX where all have named it, else TCP.
Medium wire_of(const control::Roster& roster) {
  const auto all_say = [&](bool (*says)(std::string_view)) {
    return std::ranges::all_of(roster.notes, [&](const control::MessageBytes& note) {
      return says(read_join_info(note).announcement);
    });
  };
  if (all_say(may_carry_loans)) return Medium::verbs;
  return all_say(may_go_by_ucx) ? Medium::ucx : Medium::sockets;
}

}  // namespace

std::string wires_text(const TransportList& transports) {
  std::string text;
  for (const auto& transport : transports)
    if (const std::int64_t megabytes = transport->wire_megabytes_per_s(); megabytes > 0)
      text += fmt::format("{}{}={}", text.empty() ? "" : ",", transport->name(), megabytes);
  return text;
}

std::int64_t wire_megabytes_per_s(std::string_view wires, std::string_view transport) {
  while (!wires.empty()) {
    const std::size_t comma = std::min(wires.find(','), wires.size());
    std::string_view word = wires.substr(0, comma);
    wires.remove_prefix(std::min(comma + 1, wires.size()));
    if (!word.starts_with(transport) || word.substr(transport.size(), 1) != "=") continue;
    word.remove_prefix(transport.size() + 1);
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    return error == std::errc() && end == word.data() + word.size() && value > 0 ? value : 0;
  }
  return 0;
}

std::vector<Level> find_levels(const RankLayout& layout, const control::Roster& roster,
                               bool maps_all, bool maps_host) {
  const int ranks = static_cast<int>(roster.notes.size());
  const Medium wire = wire_of(roster);
  std::vector<Level> levels;
  for (const LevelPart part : {LevelPart::cache, LevelPart::numa_node, LevelPart::package}) {
    const std::optional<Level> level = count_parts(layout, ranks, part);
    const bool is_new =
        level && level->parts < ranks && (levels.empty() || levels.back().parts != level->parts);
    if (is_new) levels.push_back(*level);
  }
  levels.push_back(*count_parts(layout, ranks, LevelPart::host));
  for (Level& level : levels) level.medium = maps_host ? Medium::host_memory : wire;
  if (layout.host_count() > 1) levels.push_back({.part = LevelPart::network, .ranks = ranks});
  Level& widest = levels.back();
  widest.medium = maps_all ? Medium::host_memory : wire;
  if (widest.part == LevelPart::network)
    widest.gigabytes_per_s = gigabytes_per_s(roster, wire == Medium::verbs ? "rdma" : "tcp");
  return levels;
}

std::vector<Level> on_gpus(std::vector<Level> levels, bool reaches_all) {
  for (Level& level : levels) {
    if (&level == &levels.back() && !reaches_all) break;
    level.medium = Medium::gpu_memory;
  }
  return levels;
}

}  // namespace gyre::comm
