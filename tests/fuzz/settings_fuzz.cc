// The environment: every GYRE_ variable, the grammars of GYRE_ALGO, GYRE_PROTO, GYRE_TRANSPORT and
// GYRE_DEBUG_FILE, and numbers as such. Input: u8 which, then lines NAME=VALUE, or a number.
#include "lib/base/file_pattern.h"
#include "lib/base/log.h"
#include "lib/base/settings.h"
#include "lib/links/transport_registry.h"
#include "lib/tune/choice.h"
#include "tests/fuzz/environment.h"
#include "tests/fuzz/input.h"

#include <set>

namespace settings_fuzz {

using namespace gyre;

namespace {

void check_ranges(const Settings& settings) {
  for (const Setting& setting : settings_table()) {
    if (const auto* integer = std::get_if<Setting::Integer>(&setting.kind)) {
      const std::int64_t value = settings.*integer->field, usual = Settings().*integer->field;
      GYRE_DEMAND(value == usual || (value >= integer->least && value <= integer->most));
    } else if (const auto* size = std::get_if<Setting::Size>(&setting.kind)) {
      GYRE_DEMAND(settings.*size->field >= size->least && settings.*size->field <= size->most);
    } else if (const auto* choice = std::get_if<Setting::Keyword>(&setting.kind)) {
      GYRE_DEMAND(std::ranges::count(choice->words, settings.*choice->field) == 1);
    }
  }
}

void make_choices(const tune::Allowed& allowed) {
  for (const bool mapped : {false, true}) {
    const topology::Medium medium =
        mapped ? topology::Medium::host_memory : topology::Medium::sockets;
    const tune::TuningInputs inputs{.ranks = 3,
                                    .levels = {{.ranks = 3, .medium = medium}},
                                    .slot_bytes = 1 << 16,
                                    .line_count = 64};
    for (const std::uint64_t bytes : {8ULL, 1ULL << 20}) {
      const auto choice = tune::choose(inputs, allowed, {plan::Collective::all_reduce, bytes});
      if (!choice.ok()) continue;
      GYRE_DEMAND(allowed.algorithm(plan::Collective::all_reduce, *choice->algorithm));
      GYRE_DEMAND(allowed.protocol(plan::Collective::all_reduce, choice->protocol));
    }
  }
}

void list_transports(const Settings& settings) {
  const trust::ProcessIdentity self;
  trust::TicketBook tickets;
  const auto list = comm::make_transports(settings, {.self = self, .tickets = tickets});
  if (!list.ok()) return;
  std::set<std::string_view> names;
  for (const auto& transport : *list) GYRE_DEMAND(names.insert(transport->name()).second);
  GYRE_DEMAND(names.contains("self"));
  GYRE_DEMAND(!settings.shm_disable || !names.contains("shm"));
}

// What was accepted, said name by name, is the same.
void check_subsystems(const std::string& list) {
  const auto mask = parse_subsystems(list);
  if (!mask.ok()) return;
  GYRE_DEMAND((*mask & ~all_subsystems) == 0);
  std::string names;
  for (int i = 0; i < subsystem_count; ++i)
    if ((*mask >> i & 1) != 0)
      names += (names.empty() ? "" : ",") + std::string(subsystem_name(static_cast<Subsystem>(i)));
  if (*mask != 0) GYRE_DEMAND(*parse_subsystems(names) == *mask);
}

void read_environment(fuzz::Input& input) {
  const auto environment = fuzz::environment_of(input.rest());
  std::vector<std::string> warnings;
  const auto settings = parse_settings(environment, &warnings);
  GYRE_DEMAND(warnings.size() <= environment.size());
  if (!settings.ok()) return;
  check_ranges(*settings);
  list_transports(*settings);
  const std::string path = expand_file_pattern(settings->debug_file);
  if (settings->debug_file.find('%') == std::string::npos)
    GYRE_DEMAND(path == settings->debug_file);
  check_subsystems(settings->debug_subsystems);
  const auto allowed = tune::Allowed::parse(*settings);
  if (allowed.ok()) make_choices(*allowed);
}

// Input: i64 two bounds, the text.
void read_numbers(fuzz::Input& input) {
  const auto one = input.take<std::int64_t>(), other = input.take<std::int64_t>();
  const std::int64_t least = std::min(one, other), most = std::max(one, other);
  const auto rest = input.rest();
  const std::string text(rest.begin(), rest.end());
  const auto integer = parse_integer(text, least, most);
  if (integer.ok()) {
    GYRE_DEMAND(*integer >= least && *integer <= most);
    GYRE_DEMAND(*parse_integer(std::to_string(*integer), least, most) == *integer);
  }
  constexpr std::int64_t max_size = std::int64_t{1} << 50;  // the largest that anything asks for
  const std::int64_t min_size = std::clamp<std::int64_t>(least, 0, max_size);
  const auto bytes = parse_size(text, min_size, max_size);
  if (bytes.ok()) GYRE_DEMAND(*bytes >= min_size && *bytes <= max_size);
  std::vector<std::string_view> words;
  for (const Setting& setting : settings_table()) words.push_back(setting.name);
  const std::string_view near = nearest(text, words);
  GYRE_DEMAND(near.empty() || std::ranges::count(words, near) == 1);
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  if (input.take_flag())
    read_numbers(input);
  else
    read_environment(input);
  return 0;
}

GYRE_FUZZ_TARGET(settings)

}  // namespace settings_fuzz
