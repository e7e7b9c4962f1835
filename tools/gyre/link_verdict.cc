#include "tools/gyre/link_verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

namespace gyre::tools {
namespace {

// Below that, a processor that slept is as likely a reason as the link.
constexpr double max_excused_latency_us = 20;
constexpr std::size_t max_listed_links = 4;

double better_median(std::vector<double> values, bool more_is_better) {
  std::erase_if(values, [](double value) { return value <= 0; });
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[more_is_better ? values.size() / 2 : (values.size() - 1) / 2];
}

double share_of(double figure, double expected) {
  return figure > 0 && expected > 0 ? figure / expected : 0;
}

std::string damage_text(const LinkDamage& damage, std::string_view direction) {
  return fmt::format(
      "{} changed {} bytes ({} bits) in {} messages, first at byte {} of message {}: sent {:#04x}, "
      "received {:#04x}",
      direction, damage.bytes, damage.bits, damage.messages, damage.first_offset,
      damage.first_message, damage.sent, damage.received);
}

std::string corruption_text(const LinkMeasurement& link) {
  std::string text;
  const auto [low, high] = link.pair;
  for (const auto& [damage, from, to] :
       {std::tuple(&link.up.damage, low, high), std::tuple(&link.down.damage, high, low)})
    if (damage->bytes > 0)
      text +=
          (text.empty() ? "" : "; ") + damage_text(*damage, fmt::format("rank {} to {}", from, to));
  return text.empty() ? "a message of the measuring programs came damaged" : text;
}

std::string slowness_text(const JudgedLink& link, const KindExpectation& kind, double slow_below) {
  const LinkMeasurement& seen = link.measured;
  const std::string links = counted(static_cast<std::size_t>(kind.links), "link");
  const std::string whose = kind.is_machine ? std::string("that the machine's port has")
                                            : fmt::format("that is the median of {}", links);
  // One direction tells more than both together.
  const bool is_up = link.up_share <= link.down_share;
  if (const double share = is_up ? link.up_share : link.down_share; share < slow_below) {
    const auto [from, to] = is_up ? seen.pair : LinkPair{seen.pair.high, seen.pair.low};
    return fmt::format("{} from rank {} to {}, {:.0f} % of the {} {}",
                       rate_text(is_up ? seen.up.bytes_per_s : seen.down.bytes_per_s), from, to,
                       100 * share, rate_text(kind.bytes_per_s), whose);
  }
  if (link.both_share < slow_below)
    return fmt::format("{} both ways at once, {:.0f} % of the {} that is the median of {}",
                       rate_text(seen.both_bytes_per_s), 100 * link.both_share,
                       rate_text(kind.both_bytes_per_s), links);
  return fmt::format(
      "{:.1f} us one way at best, {:.1f} times the {:.1f} us that is the median of {}",
      seen.best_latency_us, 1 / link.latency_share, kind.best_latency_us, links);
}

JudgedLink judge_one(LinkMeasurement measured, const KindExpectation& kind, double slow_below) {
  JudgedLink link;
  link.measured = std::move(measured);
  const LinkMeasurement& seen = link.measured;
  link.up_share = share_of(seen.up.bytes_per_s, kind.bytes_per_s);
  link.down_share = share_of(seen.down.bytes_per_s, kind.bytes_per_s);
  link.both_share = share_of(seen.both_bytes_per_s, kind.both_bytes_per_s);
  if (seen.best_latency_us > 0 && !seen.is_crowded)
    link.latency_share = seen.best_latency_us > kind.best_latency_us + max_excused_latency_us
                             ? kind.best_latency_us / seen.best_latency_us
                             : 1;
  for (const double share : {link.up_share, link.down_share, link.both_share, link.latency_share})
    if (share > 0 && (link.share == 0 || share < link.share)) link.share = share;
  const bool corrupts = seen.up.damage.bytes + seen.down.damage.bytes > 0 || seen.has_garbled_talk;
  if (corrupts) {
    link.finding = LinkFinding::corrupting;
    link.reason = corruption_text(seen);
  } else if (!seen.failure.empty()) {
    link.finding = LinkFinding::dead;
    link.reason = seen.failure;
  } else if (link.share > 0 && link.share < slow_below) {
    link.finding = LinkFinding::slow;
    link.reason = slowness_text(link, kind, slow_below);
  }
  return link;
}

// A rank that said nothing in the end, and whose links fail from some round on. One link that
// fails says that of a rank only if it has no other.
std::vector<int> find_silent_ranks(const LinkJobFacts& facts,
                                   const std::vector<LinkMeasurement>& measured) {
  std::vector<int> silent;
  for (int rank = 0; rank < facts.ranks; ++rank) {
    if (facts.reported[static_cast<std::size_t>(rank)]) continue;
    int links = 0, failed = 0, last_good = -1, first_failed = -1;
    for (const LinkMeasurement& link : measured) {
      if (!link.pair.has(rank)) continue;
      ++links;
      if (link.failure.empty()) {
        last_good = std::max(last_good, link.round);
      } else {
        first_failed = failed == 0 ? link.round : std::min(first_failed, link.round);
        ++failed;
      }
    }
    if (failed > 0 && first_failed > last_good && (failed > 1 || links == 1))
      silent.push_back(rank);
  }
  return silent;
}

std::string rank_at(const LinkJobFacts& facts, int rank) {
  return fmt::format("rank {} ({})", rank, facts.host_name(rank));
}

// The rank, or else the host, that is an end of all links that are named, if they are several.
std::string common_end(const LinkJobFacts& facts, const std::vector<const JudgedLink*>& named) {
  if (named.size() < 2) return {};
  const LinkPair& first = named.front()->measured.pair;
  for (const int rank : {first.low, first.high})
    if (std::ranges::all_of(named,
                            [&](const JudgedLink* one) { return one->measured.pair.has(rank); }))
      return rank_at(facts, rank);
  if (facts.host_names.size() < 2) return {};
  const auto host = [&](int rank) { return facts.host_of_rank[static_cast<std::size_t>(rank)]; };
  for (const int end : {host(first.low), host(first.high)})
    if (std::ranges::all_of(named, [&](const JudgedLink* one) {
          return host(one->measured.pair.low) == end || host(one->measured.pair.high) == end;
        }))
      return "host " + facts.host_names[static_cast<std::size_t>(end)];
  return {};
}

std::string listed(const std::vector<const JudgedLink*>& named, LinkFinding finding) {
  std::vector<std::string> pairs;
  std::size_t count = 0;
  for (const JudgedLink* const one : named) {
    if (one->finding != finding) continue;
    if (++count <= max_listed_links)
      pairs.push_back(fmt::format("{}-{}", one->measured.pair.low, one->measured.pair.high));
  }
  if (count == 0) return {};
  return fmt::format("{} {} ({}{})", count, finding_name(finding), fmt::join(pairs, ", "),
                     count > max_listed_links ? ", ..." : "");
}

std::string all_listed(const std::vector<const JudgedLink*>& named) {
  std::vector<std::string> parts;
  for (const LinkFinding finding : {LinkFinding::corrupting, LinkFinding::dead, LinkFinding::slow})
    if (std::string part = listed(named, finding); !part.empty()) parts.push_back(std::move(part));
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Their own links are dead; of the others as many as are named.
std::string silence_text(const LinkJobFacts& facts, const std::vector<int>& silent,
                         std::vector<const JudgedLink*> named) {
  std::erase_if(named, [&](const JudgedLink* one) {
    return std::ranges::any_of(silent, [&](int rank) { return one->measured.pair.has(rank); });
  });
  std::vector<std::string> ranks;
  for (const int rank : silent)
    if (ranks.size() < max_listed_links)
      ranks.push_back(fmt::format("{} ({})", rank, facts.host_name(rank)));
  return fmt::format("Rank{} {}{} answered no more{}{}", silent.size() == 1 ? "" : "s",
                     fmt::join(ranks, ", "), silent.size() > ranks.size() ? ", ..." : "",
                     named.empty() ? "" : "; of the other links ", all_listed(named));
}

std::string sentence_of(const LinkJobFacts& facts, const LinkVerdict& verdict,
                        const std::vector<const JudgedLink*>& named) {
  if (!verdict.silent_ranks.empty()) return silence_text(facts, verdict.silent_ranks, named);
  if (named.empty()) {
    double checked = 0;
    for (const JudgedLink& one : verdict.links)
      checked += static_cast<double>(one.measured.up.checked_bytes) +
                 static_cast<double>(one.measured.down.checked_bytes);
    return fmt::format(
        "{} as expected: none is below {:.0f} % of its kind, and none changed a byte of {:.3g} GB",
        verdict.links.size() == 1 ? std::string("The only link is")
                                  : fmt::format("All {} links are", verdict.links.size()),
        100 * verdict.slow_below, checked / 1e9);
  }
  if (named.size() == 1) {
    const JudgedLink& one = *named.front();
    return fmt::format(
        "The link between {} and {} is {}: {}", rank_at(facts, one.measured.pair.low),
        rank_at(facts, one.measured.pair.high), finding_name(one.finding), one.reason);
  }
  const std::string end = common_end(facts, named);
  return fmt::format("{} of {} links are named{}: {}", named.size(), verdict.links.size(),
                     end.empty() ? "" : fmt::format(", and {} is an end of each", end),
                     all_listed(named));
}

std::string advice_of(const LinkJobFacts& facts, const LinkVerdict& verdict) {
  if (!verdict.silent_ranks.empty())
    return "see how that rank ended (its output, the launcher's word, the kernel's log of its "
           "host), and start gyre link again";
  const JudgedLink& worst = verdict.links.front();
  const LinkPair& pair = worst.measured.pair;
  const bool is_one_host = facts.host_of_rank[static_cast<std::size_t>(pair.low)] ==
                           facts.host_of_rank[static_cast<std::size_t>(pair.high)];
  const std::string hosts =
      is_one_host ? facts.host_name(pair.low)
                  : fmt::format("{} and {}", facts.host_name(pair.low), facts.host_name(pair.high));
  switch (worst.finding) {
    case LinkFinding::corrupting:
      return fmt::format(
          "do not start the job over this link: its results would be wrong. Check the memory, the "
          "NICs and the network between them on {}; start the job without one of the two, and "
          "measure again. Over tcp GYRE_TCP_SECURITY=tls makes an error of changed bytes",
          hosts);
    case LinkFinding::dead:
      return fmt::format(
          "see whether {} reach each other: cables, routes, firewalls, and the interface that "
          "GYRE_SOCKET_IFNAME names; GYRE_DEBUG=INFO says what was tried",
          hosts);
    case LinkFinding::slow:
      break;
    case LinkFinding::fine:
      return {};
  }
  if (is_one_host)
    return fmt::format(
        "see what else runs on {}, and whether each rank has a core of its own (gyre run --bind "
        "core); GYRE_DEBUG=INFO says which transport the ranks take",
        hosts);
  return fmt::format(
      "look at both ends, {}: the port's speed and duplex (ethtool), its errors (ip -s link), and "
      "what else uses it; or start the job without the slow host",
      hosts);
}

}  // namespace

std::string_view finding_name(LinkFinding finding) {
  constexpr std::array<std::string_view, 4> names = {"fine", "slow", "dead", "corrupting"};
  return names[static_cast<std::size_t>(finding)];
}

std::string counted(std::size_t count, std::string_view thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

std::string rate_text(double bytes_per_s) { return fmt::format("{:.3g} GB/s", bytes_per_s / 1e9); }

bool LinkVerdict::names_any() const {
  return !silent_ranks.empty() || (!links.empty() && links.front().finding != LinkFinding::fine);
}

std::vector<KindExpectation> find_expectations(const std::vector<LinkMeasurement>& measured) {
  struct Figures {
    int links = 0;
    std::vector<double> rates, both, latencies;
    double known = 0;
  };
  std::map<std::string, Figures> by_kind;
  for (const LinkMeasurement& link : measured) {
    Figures& figures = by_kind[link.kind];
    if (!link.failure.empty()) continue;
    ++figures.links;
    figures.rates.insert(figures.rates.end(), {link.up.bytes_per_s, link.down.bytes_per_s});
    figures.both.push_back(link.both_bytes_per_s);
    if (!link.is_crowded) figures.latencies.push_back(link.best_latency_us);
    figures.known = std::max(figures.known, link.known_bytes_per_s);
  }
  std::vector<KindExpectation> kinds;
  for (auto& [kind, figures] : by_kind) {
    const double median = better_median(std::move(figures.rates), true);
    kinds.push_back({.kind = kind,
                     .links = figures.links,
                     .bytes_per_s = std::max(median, figures.known),
                     .is_machine = figures.known > median,
                     .both_bytes_per_s = better_median(std::move(figures.both), true),
                     .best_latency_us = better_median(std::move(figures.latencies), false)});
  }
  return kinds;
}

LinkVerdict judge_links(const LinkJobFacts& facts, std::vector<LinkMeasurement> measured,
                        std::vector<KindExpectation> kinds, double slow_below) {
  LinkVerdict verdict;
  verdict.slow_below = slow_below;
  verdict.kinds = std::move(kinds);
  verdict.silent_ranks = find_silent_ranks(facts, measured);
  for (LinkMeasurement& one : measured) {
    const auto kind = std::ranges::find(verdict.kinds, one.kind, &KindExpectation::kind);
    verdict.links.push_back(judge_one(
        std::move(one), kind == verdict.kinds.end() ? KindExpectation() : *kind, slow_below));
  }
  std::ranges::stable_sort(verdict.links, [](const JudgedLink& one, const JudgedLink& other) {
    if (one.finding != other.finding) return one.finding > other.finding;
    return one.share < other.share;
  });
  std::vector<const JudgedLink*> named;
  for (const JudgedLink& one : verdict.links)
    if (one.finding != LinkFinding::fine) named.push_back(&one);
  verdict.sentence = sentence_of(facts, verdict, named) + ".";
  if (verdict.names_any()) verdict.advice = advice_of(facts, verdict) + ".";
  return verdict;
}

}  // namespace gyre::tools
