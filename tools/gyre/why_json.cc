#include "tools/gyre/why_json.h"

#include "lib/base/clock.h"
#include "tools/gyre/why_text.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace gyre::tools {

using nlohmann::ordered_json;

const char* const json_schema =
    "JSON (--json), schema gyre-why-1; times in seconds, null where not known:\n"
    "  schema, host_pids_seen, notes[]\n"
    "  jobs[]: verdict (idle, running, waiting, failed)\n"
    "    communicators[]: id, name, label, size\n"
    "    roots[]: kind (rank, crossed, differs, apart, circle, failure), communicator, rank,\n"
    "      standing, host, pid, text, wanted (number of the call that others wait in), last_call, "
    "call,\n"
    "      waiting[] and circle[] of {communicator, rank}, failure {code, text, culprits[], ago}\n"
    "    ranks[]: communicator, rank, standing, host, pid, command, thread, process_state, "
    "thread_state,\n"
    "      kernel_function, call, last_call, wait {what, phase, peer, channel, chunk, for},\n"
    "      waits_for[]\n"
    "  standing: waits, joins, elsewhere (in a call on another communicator), computes (in no\n"
    "    call), works, stopped, dead, failed, left, other_host, closed, not_there\n"
    "  call, last_call: function, number, type, op, root, count, bytes, algorithm, protocol,\n"
    "    started_ago, ended_ago, outcome";

namespace {

ordered_json to_json(const JobView& job, const RankPlace& place) {
  return {{"communicator", job.communicator(place.communicator).name}, {"rank", place.rank}};
}

ordered_json to_json(const JobView& job, const std::vector<RankPlace>& places) {
  ordered_json list = ordered_json::array();
  for (const RankPlace& place : places) list.push_back(to_json(job, place));
  return list;
}

ordered_json ago(const std::optional<std::int64_t>& ns, std::int64_t now_ns) {
  return ns ? ordered_json(seconds_between(*ns, now_ns)) : ordered_json(nullptr);
}

ordered_json to_json(const CodeNames& names, const TimedFlightEntry* flight, std::int64_t now_ns) {
  if (flight == nullptr) return nullptr;
  const FlightCall& call = flight->flight.call;
  return {{"function", name_of(names.functions, call.function)},
          {"number", call.sequence},
          {"type", name_of(names.types, call.type)},
          {"op", name_of(names.ops, call.op)},
          {"root", call.root},
          {"count", call.count},
          {"bytes", call.bytes},
          {"algorithm", name_of(names.algorithms, call.algorithm)},
          {"protocol", name_of(names.protocols, call.protocol)},
          {"started_ago", ago(flight->start_ns, now_ns)},
          {"ended_ago", ago(flight->end_ns, now_ns)},
          {"outcome", flight->end_ns ? ordered_json(flight->flight.outcome) : nullptr}};
}

ordered_json to_json(const WaitRecord* wait, std::int64_t now_ns) {
  if (wait == nullptr) return nullptr;
  return {{"what", blocked_on_word(wait->what)},
          {"phase", wait_phase_name(wait->phase)},
          {"peer", wait->peer},
          {"channel", wait->channel},
          {"chunk", wait->chunk},
          {"for", seconds_between(wait->since_ns, now_ns)}};
}

ordered_json to_json(const FailureRecord* failure, std::int64_t now_ns) {
  if (failure == nullptr) return nullptr;
  ordered_json culprits = ordered_json::array();
  for (int i = 0; i < failure->culprit_count; ++i)
    culprits.push_back(failure->culprits[static_cast<std::size_t>(i)]);
  return {{"code", failure->code},
          {"text", printable(failure->text.view())},
          {"culprits", culprits},
          {"ago", seconds_between(failure->at_ns, now_ns)}};
}

void add_calls(const Sight& sight, const RankReport& rank, ordered_json& object) {
  object["call"] = object["last_call"] = nullptr;
  if (rank.seen == nullptr) return;
  const CodeNames& names = sight.processes[rank.seen->process].head.names;
  object["call"] = to_json(names, rank.open, sight.now_ns);
  object["last_call"] = to_json(names, rank.seen->rank_state.last_done(), sight.now_ns);
}

ordered_json root_json(const Sight& sight, const JobView& job, const Root& root) {
  const RankReport& rank = job.ranks.at(root.place);
  ordered_json object = {{"kind", root_kind_name(root.kind)}};
  object.update(to_json(job, root.place));
  object["standing"] = standing_name(rank.standing);
  object["host"] = rank.host;
  object["pid"] = rank.pid;
  object["text"] = explain_root(sight, job, root);
  object["wanted"] = root.wanted;
  add_calls(sight, rank, object);
  object["waiting"] = to_json(job, root.waiting);
  object["circle"] = to_json(job, root.circle);
  object["failure"] = to_json(root.failure, sight.now_ns);
  return object;
}

ordered_json rank_json(const Sight& sight, const JobView& job, const RankReport& rank) {
  ordered_json object = to_json(job, rank.place);
  object["standing"] = standing_name(rank.standing);
  object["host"] = rank.host;
  object["pid"] = rank.pid;
  const SeenRank* seen = rank.seen;
  const auto letter = [](char state) { return std::string(1, state); };
  object["command"] = seen ? ordered_json(sight.processes[seen->process].facts.command) : nullptr;
  object["thread"] = seen ? ordered_json(seen->rank_state.caller) : nullptr;
  object["process_state"] =
      seen ? ordered_json(letter(sight.processes[seen->process].facts.state)) : nullptr;
  object["thread_state"] = seen ? ordered_json(letter(seen->thread.state)) : nullptr;
  object["kernel_function"] = seen ? ordered_json(seen->thread.kernel_function) : nullptr;
  add_calls(sight, rank, object);
  object["wait"] = to_json(rank.wait, sight.now_ns);
  object["waits_for"] = to_json(job, rank.waits_for);
  return object;
}

}  // namespace

ordered_json to_json(const Sight& sight, const std::vector<JobView>& jobs,
                     const std::vector<std::string>& notes) {
  ordered_json list = ordered_json::array();
  for (const JobView& job : jobs) {
    ordered_json communicators = ordered_json::array();
    for (const JobView::CommunicatorView& one : job.communicators)
      communicators.push_back({{"id", fmt::format("{:016x}", one.id)},
                               {"name", one.name},
                               {"label", one.label},
                               {"size", one.size}});
    ordered_json roots = ordered_json::array(), ranks = ordered_json::array();
    for (const Root& root : job.roots) roots.push_back(root_json(sight, job, root));
    for (const auto& [place, rank] : job.ranks) ranks.push_back(rank_json(sight, job, rank));
    list.push_back({{"verdict", verdict_name(job.verdict)},
                    {"communicators", communicators},
                    {"roots", roots},
                    {"ranks", ranks}});
  }
  ordered_json pids = ordered_json::array();
  for (const Sight::ProcessView& process : sight.processes) pids.push_back(process.facts.pid);
  return {{"schema", "gyre-why-1"}, {"host_pids_seen", pids}, {"notes", notes}, {"jobs", list}};
}

}  // namespace gyre::tools
