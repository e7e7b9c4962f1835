// The table of gyre link for people.
#include "lib/command_line/wrap.h"
#include "tools/gyre/link_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

namespace gyre::tools {
namespace {

// Fine links beyond these are left out: --json has all.
constexpr std::size_t max_fine_rows = 32;

std::string figure(double value, int digits, double unit = 1) {
  return value > 0 ? fmt::format("{:.{}g}", value / unit, digits) : std::string("-");
}

std::string microseconds(double value, bool is_crowded) {
  return value > 0 ? fmt::format("{}{:.1f}", is_crowded ? "~" : "", value) : std::string("-");
}

std::string ends_text(const LinkJobFacts& facts, const LinkPair& pair) {
  std::string ends = fmt::format("{} - {}", pair.low, pair.high);
  if (facts.host_names.size() > 1)
    ends += fmt::format(" ({} - {})", facts.host_name(pair.low), facts.host_name(pair.high));
  return ends;
}

std::string share_text(const JudgedLink& link) {
  return link.share > 0 ? fmt::format("{:.0f} %", 100 * link.share) : std::string("-");
}

std::string finding_text(const JudgedLink& link) {
  std::string text(finding_name(link.finding));
  if (link.finding == LinkFinding::fine) return link.measured.was_repeated ? "fine, alone" : text;
  std::ranges::transform(text, text.begin(),
                         [](char c) { return static_cast<char>(c - 'a' + 'A'); });
  return text;
}

std::string table_text(const LinkJobFacts& facts, const LinkVerdict& verdict) {
  std::size_t ends_width = 4, kind_width = 7;
  for (const JudgedLink& link : verdict.links) {
    ends_width = std::max(ends_width, ends_text(facts, link.measured.pair).size());
    kind_width = std::max(kind_width, link.measured.kind.size());
  }
  constexpr std::string_view row = "{:<{}}  {:<{}}  {:>8} {:>8}  {:>7} {:>7} {:>7}  {:>6}  {}\n";
  std::string text = fmt::format(fmt::runtime(row), "", ends_width, "", kind_width, "us", "us",
                                 "GB/s", "GB/s", "GB/s", "of ex-", "");
  text += fmt::format(fmt::runtime(row), "link", ends_width, "through", kind_width, "one way",
                      "p99", "up", "down", "both", "pected", "finding");
  std::size_t fine = 0;
  for (const JudgedLink& link : verdict.links) {
    if (link.finding == LinkFinding::fine && ++fine > max_fine_rows) continue;
    const LinkMeasurement& seen = link.measured;
    text +=
        fmt::format(fmt::runtime(row), ends_text(facts, seen.pair), ends_width, seen.kind,
                    kind_width, microseconds(seen.latency_us, seen.is_crowded),
                    microseconds(seen.latency_p99_us, seen.is_crowded),
                    figure(seen.up.bytes_per_s, 3, 1e9), figure(seen.down.bytes_per_s, 3, 1e9),
                    figure(seen.both_bytes_per_s, 3, 1e9), share_text(link), finding_text(link));
  }
  if (fine > max_fine_rows)
    text += fmt::format("... and {} fine links more; --json has all\n", fine - max_fine_rows);
  const bool has_crowded = std::ranges::any_of(
      verdict.links, [](const JudgedLink& link) { return link.measured.is_crowded; });
  if (has_crowded) text += "~ not judged: the ranks waited for processors\n";
  return text;
}

std::string kinds_text(const LinkVerdict& verdict) {
  std::string text;
  for (const KindExpectation& kind : verdict.kinds) {
    if (kind.bytes_per_s <= 0) continue;
    const std::string latency = kind.best_latency_us > 0
                                    ? fmt::format(", {:.1f} us at best", kind.best_latency_us)
                                    : std::string();
    text += fmt::format(
        "  {}: {} one way ({}), {} both ways{}\n", kind.kind, rate_text(kind.bytes_per_s),
        kind.is_machine ? std::string("the machine's figure")
                        : "median of " + counted(static_cast<std::size_t>(kind.links), "link"),
        rate_text(kind.both_bytes_per_s), latency);
  }
  return text;
}

}  // namespace

std::string link_text(const LinkJobFacts& facts, const LinkVerdict& verdict) {
  std::string text =
      fmt::format("{} ranks on {}, {} in {:.1f} s: {}\n\n", facts.ranks,
                  counted(facts.host_names.size(), "host"), counted(verdict.links.size(), "link"),
                  facts.seconds,
                  facts.all_pairs ? std::string("all pairs")
                                  : fmt::format("those of {}", fmt::join(facts.plans, " and ")));
  text += table_text(facts, verdict);
  text += "\nexpected of each kind:\n" + kinds_text(verdict);
  std::size_t told = 0;
  for (const JudgedLink& link : verdict.links) {
    if (link.finding == LinkFinding::fine || ++told > max_fine_rows) break;
    text += "\n" + command_line::wrapped(fmt::format("{} - {}: {}", link.measured.pair.low,
                                                     link.measured.pair.high, link.reason),
                                         2);
    if (!link.measured.library_text.empty())
      text += "\n  " + command_line::wrapped("Gyre said: " + link.measured.library_text, 4);
  }
  text += fmt::format("{}\n{}\n", told > 0 ? "\n" : "", command_line::wrapped(verdict.sentence));
  if (!verdict.advice.empty()) text += command_line::wrapped("Next: " + verdict.advice, 2) + "\n";
  return text;
}

}  // namespace gyre::tools
