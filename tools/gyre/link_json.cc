// The report of gyre link for programs.
#include "tools/gyre/link_report.h"

#include <nlohmann/json.hpp>

namespace gyre::tools {

using nlohmann::ordered_json;

const char* const link_json_schema =
    "JSON (--json), schema gyre-link-1; null where not measured:\n"
    "  schema, ranks, hosts[] (names), host_of_rank[], plans[], all_pairs, seconds, slow_below\n"
    "  kinds[]: kind, links, bytes_per_s, source (median, machine), both_bytes_per_s,\n"
    "    best_latency_us\n"
    "  links[], worst first: ranks[2], round, kind, finding (fine, slow, dead, corrupting),\n"
    "    reason, share (the least of those below), best_latency_us (of the fastest tenth),\n"
    "    latency_us (median), latency_p99_us, latency_share (by the best),\n"
    "    crowded (the ranks waited for processors: latency is not judged),\n"
    "    both_bytes_per_s, both_share, repeated, failure, library_text\n"
    "    directions[2]: from, to, bytes_per_s, share, message_bytes, checked_bytes,\n"
    "      damage: null, or messages, bytes, bits, first {message, offset, sent, received}\n"
    "  silent_ranks[], sentence, advice";

namespace {

ordered_json measured(double figure) { return figure > 0 ? ordered_json(figure) : ordered_json(); }
ordered_json told(const std::string& text) {
  return text.empty() ? ordered_json() : ordered_json(text);
}

ordered_json to_json(const LinkDamage& damage) {
  if (damage.bytes == 0) return {};
  return {{"messages", damage.messages},
          {"bytes", damage.bytes},
          {"bits", damage.bits},
          {"first",
           {{"message", damage.first_message},
            {"offset", damage.first_offset},
            {"sent", damage.sent},
            {"received", damage.received}}}};
}

ordered_json to_json(int from, int to, const DirectedRate& rate, double share) {
  return {{"from", from},
          {"to", to},
          {"bytes_per_s", measured(rate.bytes_per_s)},
          {"share", measured(share)},
          {"message_bytes", rate.message_bytes},
          {"checked_bytes", rate.checked_bytes},
          {"damage", to_json(rate.damage)}};
}

ordered_json to_json(const JudgedLink& link) {
  const LinkMeasurement& seen = link.measured;
  const auto [low, high] = seen.pair;
  return {{"ranks", {low, high}},
          {"round", seen.round},
          {"kind", seen.kind},
          {"finding", finding_name(link.finding)},
          {"reason", told(link.reason)},
          {"share", measured(link.share)},
          {"best_latency_us", measured(seen.best_latency_us)},
          {"latency_us", measured(seen.latency_us)},
          {"latency_p99_us", measured(seen.latency_p99_us)},
          {"latency_share", measured(link.latency_share)},
          {"crowded", seen.is_crowded},
          {"both_bytes_per_s", measured(seen.both_bytes_per_s)},
          {"both_share", measured(link.both_share)},
          {"repeated", seen.was_repeated},
          {"failure", told(seen.failure)},
          {"library_text", told(seen.library_text)},
          {"directions",
           {to_json(low, high, seen.up, link.up_share),
            to_json(high, low, seen.down, link.down_share)}}};
}

}  // namespace

std::string link_json(const LinkJobFacts& facts, const LinkVerdict& verdict) {
  ordered_json made = {{"schema", "gyre-link-1"},        {"ranks", facts.ranks},
                       {"hosts", facts.host_names},      {"host_of_rank", facts.host_of_rank},
                       {"plans", facts.plans},           {"all_pairs", facts.all_pairs},
                       {"seconds", facts.seconds},       {"slow_below", verdict.slow_below},
                       {"kinds", ordered_json::array()}, {"links", ordered_json::array()}};
  for (const KindExpectation& kind : verdict.kinds)
    made["kinds"].push_back({{"kind", kind.kind},
                             {"links", kind.links},
                             {"bytes_per_s", measured(kind.bytes_per_s)},
                             {"source", kind.is_machine ? "machine" : "median"},
                             {"both_bytes_per_s", measured(kind.both_bytes_per_s)},
                             {"best_latency_us", measured(kind.best_latency_us)}});
  for (const JudgedLink& link : verdict.links) made["links"].push_back(to_json(link));
  made["silent_ranks"] = verdict.silent_ranks;
  made["sentence"] = verdict.sentence;
  made["advice"] = told(verdict.advice);
  // Names of hosts may be no UTF-8.
  return made.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace gyre::tools
