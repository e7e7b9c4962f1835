#include "lib/links/candidates.h"

#include <fmt/core.h>

#include <algorithm>

namespace gyre::comm {
namespace {

TransportCandidate left_out(const TransportRow& row, const Settings& settings) {
  const bool by_switch = row.disabled != nullptr && settings.*row.disabled;
  return {row.name,
          false,
          {},
          row.needs_naming
              ? std::string("GYRE_TRANSPORT does not name it")
              : fmt::format("{} leaves it out", by_switch ? row.disabled_by : "GYRE_TRANSPORT")};
}

// Nobody knows what a plug-in's bytes go through.
template <typename Find>
topology::TransportPath path_of(const TransportRow& row, const Find& find) {
  if (row.plugin != nullptr) return {.exists = true, .text = "by its plug-in"};
  return find(row.medium);
}

// "same host and user, SYS, 22 GB/s".
std::string candidate_text(const TransportCandidate& candidate) {
  if (!candidate.reaches) return candidate.reason;
  const bool says_the_path = candidate.reason.starts_with(candidate.path.text);
  return candidate.reason + ", " +
         (says_the_path ? figure_text(candidate.path) : path_text(candidate.path));
}

}  // namespace

std::vector<TransportCandidate> find_candidates(
    const TransportList& transports, const trust::ProcessIdentity& peer, bool is_own_rank,
    const std::function<topology::TransportPath(topology::Medium)>& find_path) {
  std::vector<TransportCandidate> found;
  for (const auto& transport : transports) {
    // A rank with itself has a transport of its own, and only that.
    if ((transport->name() == "self") != is_own_rank) continue;
    Reachability reach = transport->reach(peer);
    found.push_back({transport->name(), reach.reachable, {}, std::move(reach.reason)});
    if (reach.reachable) found.back().path = path_of(transport_row(transport->name()), find_path);
  }
  return found;
}

Result<std::vector<TransportCandidate>> find_candidates(const topology::RankLocation& from,
                                                        const topology::RankLocation& to,
                                                        const Settings& settings) {
  GYRE_ASSIGN(const std::vector<TransportRow> allowed, allowed_transports(settings));
  std::vector<TransportCandidate> found;
  for (const TransportRow& row : allowed) {
    topology::TransportPath path =
        path_of(row, [&](topology::Medium medium) { return find_path(from, to, medium); });
    std::string reason = path.text;
    found.push_back({row.name, path.exists, std::move(path), std::move(reason)});
  }
  for (const TransportRow& row : transport_registry())
    if (std::ranges::count(allowed, row.name, &TransportRow::name) == 0)
      found.push_back(left_out(row, settings));
  return found;
}

const TransportCandidate* taken(std::span<const TransportCandidate> candidates) {
  const auto first = std::ranges::find(candidates, true, &TransportCandidate::reaches);
  return first == candidates.end() ? nullptr : &*first;
}

std::string candidates_text(std::span<const TransportCandidate> candidates) {
  const TransportCandidate* const first = taken(candidates);
  std::string text = first == nullptr
                         ? std::string("none")
                         : fmt::format("{}: {}", first->transport, candidate_text(*first));
  for (const bool reaches : {true, false})
    for (const TransportCandidate& one : candidates)
      if (&one != first && one.reaches == reaches)
        text += fmt::format("; {} {}: {}", reaches ? "then" : "not", one.transport,
                            candidate_text(one));
  return text;
}

}  // namespace gyre::comm
