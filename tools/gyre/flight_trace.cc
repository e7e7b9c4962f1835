#include "tools/gyre/flight_trace.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <tuple>

namespace gyre::tools {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// An operation or a wait, in nanoseconds of the wall clock.
struct TraceSlice {
  std::string name;
  std::int64_t from_ns = 0, to_ns = 0;
  std::int64_t serial = 0, sequence = 0, peer = -1;
  ordered_json arguments = ordered_json::object();
};

// What one text says of one rank.
struct Track {
  std::string communicator, host;
  std::int64_t rank = 0, pid = 0;
  std::int64_t to_wall_ns = 0;  // added to a time of the host's monotonic clock
  std::int64_t read_ns = 0;     // when it was read, by the wall clock
  std::vector<TraceSlice> flights, waits;
};

// Beyond it no sum of a few times could be told: 73 years.
constexpr std::int64_t max_time_ns = std::int64_t{1} << 61;

bool is_number(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number_integer() &&
         (!found->is_number_unsigned() ||
          found->get<std::uint64_t>() <= static_cast<std::uint64_t>(max_time_ns)) &&
         found->get<std::int64_t>() >= -max_time_ns;
}
bool is_number_or_null(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && (found->is_null() || is_number(object, name));
}
bool is_text(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string();
}
std::int64_t number_of(const json& object, const char* name, std::int64_t otherwise = 0) {
  return is_number(object, name) ? object[name].get<std::int64_t>() : otherwise;
}

std::string wait_name(const json& wait, std::int64_t peer) {
  const std::string who = peer < 0 ? "any rank" : fmt::format("rank {}", peer);
  return fmt::format("waits for {} of {}", wait.get<std::string>(), who);
}

TraceSlice read_wait(const Track& track, const json& object, const char* what, std::int64_t from_ns,
                     std::int64_t to_ns) {
  TraceSlice wait;
  wait.serial = number_of(object, "serial");
  wait.sequence = number_of(object, "sequence");
  wait.peer = number_of(object, "peer", -1);
  wait.name = wait_name(object[what], wait.peer);
  wait.from_ns = from_ns + track.to_wall_ns;
  wait.to_ns = std::max(wait.from_ns, to_ns);
  for (const char* name : {"phase", "peer", "channel", "chunk"})
    if (object.contains(name) && object[name].is_primitive()) wait.arguments[name] = object[name];
  return wait;
}

// False: it is no head of flights of version 1.
bool read_head(const json& object, Track& track) {
  if (object["gyre_flights"] != 1 || !is_number(object, "now_ns") ||
      !is_number(object, "wall_ns") || !is_number(object, "pid") || !is_number(object, "rank") ||
      !is_text(object, "host") || !is_text(object, "communicator"))
    return false;
  track.communicator = object["communicator"].get<std::string>();
  track.host = object["host"].get<std::string>();
  track.rank = number_of(object, "rank");
  track.pid = number_of(object, "pid");
  track.read_ns = number_of(object, "wall_ns");
  track.to_wall_ns = track.read_ns - number_of(object, "now_ns");
  const auto waits = object.find("waits");
  if (waits == object.end() || !waits->is_array()) return true;
  for (const json& wait : *waits)
    if (wait.is_object() && is_text(wait, "what") && is_number(wait, "since_ns"))
      track.waits.push_back(
          read_wait(track, wait, "what", number_of(wait, "since_ns"), track.read_ns));
  return true;
}

// One that never waited has no start; one that is open ends where the flights were read.
bool read_flight(const json& object, Track& track) {
  if (!is_text(object, "function") || !is_number_or_null(object, "start_ns") ||
      !is_number_or_null(object, "end_ns"))
    return false;
  if (object["start_ns"].is_null() && object["end_ns"].is_null()) return true;
  TraceSlice flight;
  flight.name = object["function"].get<std::string>();
  flight.serial = number_of(object, "serial");
  flight.sequence = number_of(object, "sequence");
  const std::int64_t end =
      object["end_ns"].is_null() ? track.read_ns : number_of(object, "end_ns") + track.to_wall_ns;
  flight.from_ns =
      object["start_ns"].is_null() ? end : number_of(object, "start_ns") + track.to_wall_ns;
  flight.to_ns = std::max(flight.from_ns, end);
  for (const char* name : {"sequence", "type", "op", "root", "count", "bytes", "algorithm",
                           "protocol", "end", "outcome"})
    if (object.contains(name) && object[name].is_primitive()) flight.arguments[name] = object[name];
  track.flights.push_back(std::move(flight));
  return true;
}

bool read_past_wait(const json& object, Track& track) {
  if (!is_text(object, "wait") || !is_number(object, "start_ns") || !is_number(object, "end_ns"))
    return false;
  track.waits.push_back(read_wait(track, object, "wait", number_of(object, "start_ns"),
                                  number_of(object, "end_ns") + track.to_wall_ns));
  return true;
}

Result<std::vector<Track>> read_tracks(const std::vector<std::string>& texts) {
  std::vector<Track> tracks;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::istringstream lines(texts[i]);
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
      const json object = json::parse(line, nullptr, false);
      const auto wrong = [&](std::string_view what) {
        return invalid_argument(fmt::format("flights {}, line {}: {}", i + 1, number, what));
      };
      if (!object.is_object()) return wrong("not a JSON object");
      if (object.contains("gyre_flights")) {
        if (!read_head(object, tracks.emplace_back()))
          return wrong("not the head of flights of version 1");
      } else if (tracks.empty()) {
        return wrong("no head comes before it");
      } else if (!read_flight(object, tracks.back()) && !read_past_wait(object, tracks.back())) {
        return wrong("neither a flight nor a wait");
      }
    }
  }
  return tracks;
}

// What an operation does while it does not wait.
std::string_view verbs_of(const std::string& function) {
  if (function == "gyreSend") return "sends";
  if (function == "gyreRecv") return "receives";
  if (function.find("Reduce") != function.npos) return "sends and reduces";
  return "sends and receives";
}

// Writes the events of all tracks.
class Tracer {
 public:
  explicit Tracer(std::vector<Track> tracks) : tracks_(std::move(tracks)) {
    for (Track& track : tracks_) {
      std::ranges::sort(track.waits, {}, &TraceSlice::from_ns);
      for (const auto* list : {&track.flights, &track.waits})
        for (const TraceSlice& slice : *list) first_ns_ = std::min(first_ns_, slice.from_ns);
      for (const TraceSlice& flight : track.flights)
        if (flight.sequence > 0)
          places_[{track.communicator, track.rank, flight.sequence}] = {&track, &flight};
    }
  }

  std::string write() {
    for (const Track& track : tracks_) add_track(track);
    return ordered_json{{"displayTimeUnit", "ns"}, {"traceEvents", events_}}.dump() + "\n";
  }

 private:
  // Threads of the trace: collectives have even numbers, sends and receives odd ones.
  std::size_t thread_of(const Track& track, std::int64_t sequence) const {
    const auto index = static_cast<std::size_t>(&track - tracks_.data());
    return 2 * index + (sequence > 0 ? 2 : 3);
  }

  ordered_json& add(std::string_view phase, std::string_view name, const Track& track,
                    std::size_t thread) {
    const auto process =
        processes_.emplace(std::pair(track.host, track.pid), processes_.size() + 1);
    events_.push_back({{"ph", phase},
                       {"name", name},
                       {"cat", "gyre"},
                       {"pid", process.first->second},
                       {"tid", thread}});
    return events_.back();
  }

  static double microseconds(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

  void add_slice(const TraceSlice& slice, const Track& track, std::size_t thread) {
    ordered_json& event = add("X", slice.name, track, thread);
    event["ts"] = microseconds(slice.from_ns - first_ns_);
    event["dur"] = microseconds(slice.to_ns - slice.from_ns);
    event["args"] = slice.arguments;
  }

  void add_track(const Track& track) {
    add("M", "process_name", track, thread_of(track, 1))["args"]["name"] =
        fmt::format("{} pid {}", track.host, track.pid);
    for (const std::int64_t sequence : {1, 0}) {
      const auto is_here = [&](const TraceSlice& one) {
        return (one.sequence > 0) == (sequence > 0);
      };
      if (sequence == 0 && std::ranges::none_of(track.flights, is_here)) continue;
      add("M", "thread_name", track, thread_of(track, sequence))["args"]["name"] =
          fmt::format("rank {} of {}{}", track.rank, track.communicator,
                      sequence > 0 ? "" : ", sends and receives");
    }
    for (const TraceSlice& flight : track.flights) add_flight(track, flight);
    for (const TraceSlice& wait : track.waits)
      if (wait.serial == 0) add_slice(wait, track, thread_of(track, 1));
  }

  void add_flight(const Track& track, const TraceSlice& flight) {
    const std::size_t thread = thread_of(track, flight.sequence);
    add_slice(flight, track, thread);
    std::int64_t done_ns = flight.from_ns;
    const auto add_work = [&](std::int64_t until_ns) {
      TraceSlice work;
      work.name = verbs_of(flight.name);
      work.from_ns = done_ns;
      work.to_ns = until_ns;
      if (until_ns > done_ns) add_slice(work, track, thread);
    };
    for (const TraceSlice& wait : track.waits) {
      if (wait.serial != flight.serial) continue;
      TraceSlice inside = wait;
      inside.from_ns = std::clamp(wait.from_ns, done_ns, flight.to_ns);
      inside.to_ns = std::clamp(wait.to_ns, inside.from_ns, flight.to_ns);
      add_work(inside.from_ns);
      add_slice(inside, track, thread);
      add_arrow(track, inside, thread);
      done_ns = inside.to_ns;
    }
    add_work(flight.to_ns);
  }

  void add_arrow(const Track& track, const TraceSlice& wait, std::size_t thread) {
    const auto found = places_.find({track.communicator, wait.peer, wait.sequence});
    if (found == places_.end()) return;
    const auto& [peer, flight] = found->second;
    const std::int64_t sent_ns = std::clamp(wait.to_ns, flight->from_ns, flight->to_ns);
    if (sent_ns > wait.to_ns) return;  // clocks of two hosts
    ++arrows_;
    ordered_json& from = add("s", "came", *peer, thread_of(*peer, wait.sequence));
    from["id"] = arrows_;
    from["ts"] = microseconds(sent_ns - first_ns_);
    ordered_json& to = add("f", "came", track, thread);
    to["id"] = arrows_;
    to["bp"] = "e";
    to["ts"] = microseconds(wait.to_ns - first_ns_);
  }

  std::vector<Track> tracks_;
  std::int64_t first_ns_ = std::numeric_limits<std::int64_t>::max();
  std::map<std::tuple<std::string, std::int64_t, std::int64_t>,
           std::pair<const Track*, const TraceSlice*>>
      places_;  // of collectives, by communicator, rank and number
  std::map<std::pair<std::string, std::int64_t>, std::size_t> processes_;
  ordered_json events_ = ordered_json::array();
  std::size_t arrows_ = 0;
};

}  // namespace

Result<std::string> make_trace(const std::vector<std::string>& texts) {
  GYRE_ASSIGN(std::vector<Track> tracks, read_tracks(texts));
  return Tracer(std::move(tracks)).write();
}

}  // namespace gyre::tools
