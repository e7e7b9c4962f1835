#include "lib/base/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <strings.h>

extern "C" char** environ;

namespace gyre {
namespace {

constexpr std::int64_t max_seconds = 10LL * 365 * 24 * 3600;
constexpr std::int64_t max_rank = (1LL << 31) - 1;

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

Status refuse(std::string_view name, std::string_view value, std::string_view accepted) {
  return invalid_usage(fmt::format("{}=\"{}\" is not accepted: give {}", name, value, accepted));
}

std::string accepted(const Setting::Kind& kind) {
  return std::visit(
      Overloaded{[](const Setting::Integer& integer) {
                   return fmt::format("a whole number from {} to {}", integer.least, integer.most);
                 },
                 [](const Setting::Size& size) {
                   return fmt::format("a size from {} to {}, K, M and G allowed", size.least,
                                      size.most);
                 },
                 [](const Setting::Switch&) { return std::string("0 or 1"); },
                 [](const Setting::Keyword& choice) {
                   return fmt::format("one of {}", fmt::join(choice.words, ", "));
                 },
                 [](const Setting::Text&) { return std::string("a text that is not empty"); }},
      kind);
}

std::string shown_value(const Settings& settings, const Setting::Kind& kind) {
  return std::visit(
      Overloaded{
          [&](const Setting::Switch& s) { return std::string(settings.*s.field ? "1" : "0"); },
          [&](const Setting::Keyword& s) { return settings.*s.field; },
          [&](const Setting::Text& s) {
            return (settings.*s.field).empty() ? std::string("unset") : settings.*s.field;
          },
          [&](const auto& s) { return std::to_string(settings.*s.field); }},
      kind);
}

// Stores `value`; false if it is not of the setting's kind.
bool store(Settings& settings, const Setting::Kind& kind, const std::string& value) {
  const auto keep = [&](std::int64_t Settings::*field, Result<std::int64_t> parsed) {
    if (parsed.ok()) settings.*field = *parsed;
    return parsed.ok();
  };
  return std::visit(Overloaded{[&](const Setting::Integer& s) {
                                 return keep(s.field, parse_integer(value, s.least, s.most));
                               },
                               [&](const Setting::Size& s) {
                                 return keep(s.field, parse_size(value, s.least, s.most));
                               },
                               [&](const Setting::Switch& s) {
                                 settings.*s.field = value == "1";
                                 return value == "0" || value == "1";
                               },
                               [&](const Setting::Keyword& s) {
                                 for (std::string_view word : s.words) {
                                   if (strcasecmp(std::string(word).c_str(), value.c_str()) != 0)
                                     continue;
                                   settings.*s.field = word;
                                   return true;
                                 }
                                 return false;
                               },
                               [&](const Setting::Text& s) {
                                 settings.*s.field = value;
                                 return !value.empty();
                               }},
                    kind);
}

// Letters that are added, left out, replaced, or two in the wrong order.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({row[j - 1] + 1, last[j] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      const bool crossed = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (crossed) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

namespace {

std::vector<Setting> settings_of_communicators() {
  using S = Setting;
  return {
      {"GYRE_DEBUG", S::Keyword{&Settings::debug, {"NONE", "VERSION", "WARN", "INFO", "TRACE"}},
       "how much to log"},
      {"GYRE_DEBUG_SUBSYS", S::Text{&Settings::debug_subsystems},
       "subsystems whose INFO and TRACE lines are logged: INIT, BOOTSTRAP, ENV, GRAPH (paths "
       "between ranks), TUNING (algorithms), NET, SHM, ALLOC, COLL and P2P (TRACE: each call), "
       "CALL (calls that fail), ALL, or ^ and those to leave out"},
      {"GYRE_DEBUG_FILE", S::Text{&Settings::debug_file},
       "file for the log, stderr if unset; %h and %p become host and process id"},
      {"GYRE_FLIGHT_FILE", S::Text{&Settings::flight_file},
       "file to which a communicator that breaks writes its last operations; %h, %p and %r become "
       "host, process id and rank"},
      {"GYRE_METRICS", S::Text{&Settings::metrics},
       "where each process serves metrics over HTTP, in Prometheus's text format: a port of "
       "127.0.0.1, address:port, or unix:/path (%h and %p as above). The rank on this host "
       "(GYRE_LOCAL_RANK, or the launcher's) is added to the port. Port 0 takes any free port and "
       "logs it at INFO. If the place is taken, the communicator's init fails"},
      {"GYRE_ALGO", S::Text{&Settings::algorithm},
       "algorithms allowed, as in \"ring,tree\" or \"allreduce:^ring\"; calls that none of the "
       "listed algorithms can do may use any"},
      {"GYRE_PROTO", S::Text{&Settings::protocol},
       "protocols allowed, as in \"simple\" or \"^LL\"; on the host LL means line"},
      {"GYRE_TRANSPORT", S::Text{&Settings::transport},
       "transports allowed, best first, or ^ and those to leave out"},
      {"GYRE_BUFFSIZE", S::Size{&Settings::slot_bytes, 0, 1LL << 30},
       "bytes of one slot of the simple protocol; 0 is the tuner's choice"},
      {"GYRE_SOCKET_IFNAME", S::Text{&Settings::socket_interface},
       "network interfaces for other hosts, and for tcp between ranks of this host (loopback if "
       "unset): prefixes, =exact names, or ^ and those to leave out"},
      {"GYRE_SOCKET_FAMILY", S::Keyword{&Settings::socket_family, {"ANY", "AF_INET", "AF_INET6"}},
       "address family of sockets"},
      {"GYRE_TCP_SECURITY", S::Keyword{&Settings::tcp_security, {"ticket", "tls"}},
       "ticket: a data connection begins with a one-time ticket; tls: it is also encrypted"},
      {"GYRE_SHM_DISABLE", S::Switch{&Settings::shm_disable}, "1: shared memory is not used"},
      {"GYRE_P2P_DISABLE", S::Switch{&Settings::p2p_disable},
       "1: kernels do not access the memory of another GPU"},
      {"GYRE_P2P_LEVEL",
       S::Keyword{&Settings::p2p_level, {"LOC", "NVL", "PIX", "PXB", "PHB", "SYS"}},
       "largest distance at which kernels access memory of another GPU: the same GPU, NVLink, one "
       "PCIe switch, several, one host bridge, anywhere in the host"},
      {"GYRE_TIMEOUT", S::Integer{&Settings::timeout_s, 1, max_seconds},
       "seconds for which a call waits for a rank that is alive but does not make the call"},
      {"GYRE_INIT_TIMEOUT", S::Integer{&Settings::init_timeout_s, 1, max_seconds},
       "seconds within which all ranks must join a communicator"},
      {"GYRE_LIVENESS_TIMEOUT", S::Integer{&Settings::liveness_timeout_s, 1, max_seconds},
       "seconds of silence after which a process counts as dead"},
      {"GYRE_SPIN_COUNT", S::Integer{&Settings::spin_count, -1, 1LL << 40},
       "polls before a waiting thread yields; -1 chooses by the load"},
      {"GYRE_MAX_CTAS", S::Integer{&Settings::max_channels, 0, 1 << 20},
       "most channels of a CUDA communicator; with fewer, more communicators fit on a GPU at one "
       "time; 0: as config.maxCTAs says"},
      {"GYRE_MIN_CTAS", S::Integer{&Settings::min_channels, 0, 1 << 20},
       "channels that a CUDA communicator takes if the GPU has room; others may then lack room; "
       "0: as config.minCTAs says"},
      {"GYRE_REPRODUCIBLE", S::Switch{&Settings::reproducible},
       "1: only algorithms that sum in rank order and round once; results then do not depend on "
       "algorithm and transport"},
      {"GYRE_CHECK_CALLS", S::Switch{&Settings::check_calls},
       "1: ranks compare their calls, and a mismatch error shows both; 0: a mismatch is found by "
       "the data alone, and the error names the ranks without their calls"},
      {"GYRE_FIRST_SEQUENCE", S::Integer{&Settings::first_sequence, 0, 1LL << 48},
       "number before the first call, split and message; for tests of counters that wrap around"},
  };
}

// What a launcher says, or a caller in its place.
std::vector<Setting> settings_of_launch() {
  using S = Setting;
  return {
      {"GYRE_RANK", S::Integer{&Settings::rank, 0, max_rank}, "this process's rank"},
      {"GYRE_SIZE", S::Integer{&Settings::size, 1, max_rank}, "number of ranks"},
      {"GYRE_LOCAL_RANK", S::Integer{&Settings::local_rank, 0, max_rank}, "rank on this host"},
      {"GYRE_LOCAL_SIZE", S::Integer{&Settings::local_size, 1, max_rank}, "ranks on this host"},
      {"GYRE_JOB_ID", S::Text{&Settings::job_id}, "name of the job, the same on all its ranks"},
      {"GYRE_RENDEZVOUS_FILE", S::Text{&Settings::rendezvous_file},
       "file through which the ranks meet: rank 0 makes it, with mode 0600, and all ranks see it"},
      {"GYRE_RENDEZVOUS_ADDRESS", S::Text{&Settings::rendezvous_address},
       "host:port where rank 0 listens and the ranks meet; needs GYRE_RENDEZVOUS_SECRET_FILE"},
      {"GYRE_RENDEZVOUS_SECRET_FILE", S::Text{&Settings::rendezvous_secret_file},
       "file of mode 0600 with at least 32 random bytes, the same for all ranks"},
      {"GYRE_RENDEZVOUS_FD", S::Integer{&Settings::rendezvous_fd, 0, 1 << 20},
       "descriptor that ranks inherit from gyre run, which sets this variable"},
  };
}

}  // namespace

const std::vector<Setting>& settings_table() {
  static const std::vector<Setting>& table = *[] {
    auto* all = new std::vector<Setting>(settings_of_communicators());
    for (const Setting& one : settings_of_launch()) all->push_back(one);
    return all;
  }();
  return table;
}

Result<Settings> parse_settings(const std::map<std::string, std::string>& environment,
                                std::vector<std::string>* warnings) {
  Settings settings;
  std::vector<std::string_view> names;
  for (const Setting& setting : settings_table()) {
    names.push_back(setting.name);
    const auto found = environment.find(std::string(setting.name));
    if (found == environment.end()) continue;
    if (!store(settings, setting.kind, found->second))
      return refuse(setting.name, found->second, accepted(setting.kind));
    settings.said.emplace(setting.name);
  }
  for (const auto& [name, value] : environment) {
    if (!name.starts_with("GYRE_") || std::ranges::count(names, name) > 0) continue;
    if (name.starts_with("GYRE_TESTS_")) continue;  // the benchmarks' own
    const std::string_view known = nearest(name, names);
    if (warnings != nullptr)
      warnings->push_back(
          known.empty()
              ? fmt::format("{} is not a setting of Gyre", name)
              : fmt::format("{} is not a setting of Gyre; did you mean {}?", name, known));
  }
  return settings;
}

std::map<std::string, std::string> given_settings() {
  std::map<std::string, std::string> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (text.starts_with("GYRE_") && equals != text.npos)
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

Result<Settings> read_settings(std::vector<std::string>* warnings) {
  return parse_settings(given_settings(), warnings);
}

Result<std::int64_t> parse_integer(std::string_view text, std::int64_t least, std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < least ||
      value > most)
    return invalid_argument(
        fmt::format("\"{}\" is not a whole number from {} to {}", text, least, most));
  return value;
}

Result<std::int64_t> parse_size(std::string_view text, std::int64_t least, std::int64_t most) {
  const Status wrong = invalid_argument(
      fmt::format("\"{}\" is not a size from {} to {} (K, M, G, T allowed)", text, least, most));
  std::string_view digits = text;
  double unit = 1;
  constexpr std::string_view units = "KMGT";
  if (!digits.empty()) {
    const std::size_t place = units.find(static_cast<char>(std::toupper(digits.back())));
    if (place != units.npos) {
      unit = std::pow(1024.0, static_cast<double>(place + 1));
      digits.remove_suffix(1);
    }
  }
  if (digits.empty() || digits.find_first_not_of("0123456789.") != digits.npos) return wrong;
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return wrong;
  const double bytes = value * unit;
  if (!(bytes >= static_cast<double>(least) && bytes <= static_cast<double>(most))) return wrong;
  return static_cast<std::int64_t>(bytes);
}

std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates) {
  std::string_view best;
  std::size_t least = word.size() / 3 + 1;
  for (std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < least) least = distance, best = candidate;
  }
  return best;
}

std::string settings_help(std::string_view transports) {
  std::string help;
  const Settings defaults;
  for (const Setting& setting : settings_table())
    help += fmt::format("  {:<28} {}{} (default {}; {})\n", setting.name, setting.meaning,
                        setting.name == "GYRE_TRANSPORT" ? fmt::format(": {}", transports) : "",
                        shown_value(defaults, setting.kind), accepted(setting.kind));
  return help;
}

}  // namespace gyre
