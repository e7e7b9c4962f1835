#include "lib/tune/choice.h"

#include "lib/plan/collective.h"
#include "lib/tune/table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <vector>

namespace gyre::tune {
namespace {

using plan::Collective;
using plan::Protocol;

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// The bits of a token; nothing if it is unknown.
std::optional<std::uint32_t> token_bits(std::string_view text, bool protocols) {
  const std::string name = lower(text);
  if (protocols) {
    if (name == "ll128") return 1U << static_cast<int>(Protocol::line128);
    if (name == "ll") return 1U << static_cast<int>(Protocol::line);
    for (int i = 0; i < plan::protocol_count; ++i)
      if (name == plan::protocol_name(static_cast<Protocol>(i))) return 1U << i;
    return std::nullopt;
  }
  const auto known = plan::algorithms();
  for (std::size_t i = 0; i < known.size(); ++i)
    if (name == known[i].name) return 1U << i;
  return std::nullopt;
}

std::string known_tokens(bool protocols) {
  if (protocols) return "LL (line), LL128, Simple, Direct";
  std::string names;
  for (const plan::Algorithm& algorithm : plan::algorithms())
    names += (names.empty() ? "" : ", ") + std::string(algorithm.name);
  return names;
}

std::size_t index_of(const plan::Algorithm& algorithm) {
  return static_cast<std::size_t>(&algorithm - plan::algorithms().data());
}

// Two ranks have nobody to pass pieces on to. By TCP 64 KiB took 28 us in whole chunks and 43 in
// quarters; by shared memory 4.1 to 4.3 and 4.5 to 5.0. A NIC works beside its rank.
bool moves_at_once(const TuningInputs& inputs) {
  if (inputs.device || inputs.ranks != 2 || inputs.levels.empty()) return false;
  const topology::Medium medium = inputs.levels.back().medium;
  return medium == topology::Medium::sockets || medium == topology::Medium::host_memory;
}

// A plan of one chunk passes it from rank to rank: the next one waits for a piece.
std::uint64_t max_piece_bytes(const TuningInputs& inputs, Protocol protocol, std::uint32_t chunks) {
  const bool is_lent = protocol == Protocol::direct && inputs.may_carry();
  const bool is_passed_on = inputs.ranks > 2 && chunks == 1;
  return is_lent && !is_passed_on ? std::max(inputs.slot_bytes, inputs.lent_bytes)
                                  : inputs.slot_bytes;
}

}  // namespace

bool TuningInputs::maps_all() const {
  if (levels.empty()) return false;
  const topology::Medium widest = levels.back().medium;
  if (device) return widest == topology::Medium::gpu_memory;
  return widest == topology::Medium::host_memory || widest == topology::Medium::own_memory;
}

bool TuningInputs::may_carry() const {
  if (device || levels.empty()) return false;
  const topology::Medium widest = levels.back().medium;
  return widest == topology::Medium::verbs || widest == topology::Medium::sockets;
}

bool TuningInputs::uses_alone(topology::Medium medium) const {
  return !device && !levels.empty() && std::ranges::all_of(levels, [&](const Level& level) {
    return level.ranks == 1 || level.medium == medium;
  });
}

bool TuningInputs::has_equal_hosts() const {
  return std::ranges::any_of(levels, [](const Level& level) {
    return level.part == LevelPart::host && level.parts > 1 && level.ranks > 1;
  });
}

Status Allowed::parse_list(std::string_view setting, std::string_view text, bool protocols,
                           Mask& mask) {
  for (std::string_view section : split(text, ';')) {
    std::size_t first = 0, last = plan::collective_count;
    bool general = !protocols;
    if (const std::size_t colon = section.find(':'); colon != section.npos) {
      const Result<Collective> collective = plan::parse_collective(section.substr(0, colon));
      if (!collective.ok())
        return invalid_usage(
            fmt::format("{}=\"{}\": {}", setting, text, collective.status().message()));
      first = static_cast<std::size_t>(*collective);
      last = first + 1;
      section.remove_prefix(colon + 1);
      general = false;
    }
    const bool exclude = section.starts_with('^');
    general = general && !exclude;
    if (exclude) section.remove_prefix(1);
    std::uint32_t bits = 0;
    for (std::string_view token : split(section, ',')) {
      const auto known = token_bits(token, protocols);
      if (!known)
        return invalid_usage(fmt::format("{}=\"{}\": \"{}\" is not known; there are {}", setting,
                                         text, token, known_tokens(protocols)));
      bits |= *known;
    }
    for (std::size_t i = first; i < last; ++i) {
      mask[i] = exclude ? ~bits : bits;
      if (!protocols) general_ = (general_ & ~(1U << i)) | (general ? 1U << i : 0);
    }
  }
  return {};
}

Result<Allowed> Allowed::parse(const Settings& settings) {
  Allowed allowed;
  if (!settings.algorithm.empty())
    GYRE_TRY(allowed.parse_list("GYRE_ALGO", settings.algorithm, false, allowed.algorithms_));
  if (!settings.protocol.empty())
    GYRE_TRY(allowed.parse_list("GYRE_PROTO", settings.protocol, true, allowed.protocols_));
  return allowed;
}

bool Allowed::algorithm(Collective collective, const plan::Algorithm& algorithm) const {
  return algorithms_[static_cast<std::size_t>(collective)] >> index_of(algorithm) & 1;
}

bool Allowed::protocol(Collective collective, Protocol protocol) const {
  return protocols_[static_cast<std::size_t>(collective)] >> static_cast<int>(protocol) & 1;
}

namespace {

// What may carry a call out: what can do it here, of what its settings allow.
class Filter {
 public:
  Filter(const TuningInputs& inputs, const Allowed& allowed, const CallSize& size)
      : scene_(inputs), allowed_(allowed), question_(size) {
    const Collective collective = size.collective;
    is_free_ = allowed.is_general(collective) &&
               std::ranges::none_of(plan::algorithms(), [&](const plan::Algorithm& algorithm) {
                 return can_do(algorithm) && allowed.algorithm(collective, algorithm);
               });
  }

  bool takes(const plan::Algorithm& algorithm) const {
    if (!can_do(algorithm)) return false;
    if (!is_free_ && !allowed_.algorithm(question_.collective, algorithm)) return false;
    return !scene_.reproducible || !plan::sums(question_.collective) || is_exact(algorithm);
  }
  bool takes(Protocol protocol) const {
    // Among private counts each pair is on its own: there is nothing to choose.
    if (has_private_counts()) return protocol == Protocol::simple;
    if (protocol == Protocol::line128 && !(scene_.device && scene_.whole_lines)) return false;
    if (protocol == Protocol::direct && scene_.may_carry())
      return allowed_.protocol(question_.collective, protocol);
    if (protocol != Protocol::simple && !scene_.maps_all()) return false;
    return allowed_.protocol(question_.collective, protocol);
  }
  bool takes(const Row& row) const {
    if (row.mapped != scene_.maps_all()) return false;
    // The channels of GPUs go by rings over all ports of a host instead.
    if (row.needs_levels && (scene_.device || !scene_.has_equal_hosts())) return false;
    if (question_.bytes > row.max_bytes || scene_.ranks > row.max_ranks) return false;
    return takes(*plan::find_algorithm(row.algorithm));
  }

 private:
  bool has_private_counts() const { return question_.bytes == CallSize::private_bytes; }
  bool can_do(const plan::Algorithm& algorithm) const {
    return algorithm.does(question_.collective) &&
           !(algorithm.equal_counts && has_private_counts());
  }
  // Sums in rank order and rounds once, as any other such algorithm does.
  static bool is_exact(const plan::Algorithm& algorithm) {
    return algorithm.order == plan::SumOrder::rank && algorithm.roundings == plan::Roundings::one;
  }

  const TuningInputs& scene_;
  const Allowed& allowed_;
  const CallSize& question_;
  bool is_free_ = false;  // the list of algorithms for any collective has none for this one
};

// Best first.
std::vector<const Row*> rows_for(const TuningInputs& inputs, const CallSize& size,
                                 const Filter& filter) {
  const Table& table = inputs.device && inputs.maps_all() ? device_table : host_table;
  std::vector<const Row*> rows;
  for (const Row& row : table.rows(size.collective))
    if (filter.takes(row)) rows.push_back(&row);
  return rows;
}

const plan::Algorithm* first_algorithm(const Filter& filter) {
  for (const plan::Algorithm& algorithm : plan::algorithms())
    if (filter.takes(algorithm)) return &algorithm;
  return nullptr;
}

// By RDMA a receiver's word of what it lends takes a message's time, and the sender waits for it.
// Beside more bytes than these that is little: reasoned, not measured. By TCP there is no such
// word: measured with bench/compare/settings.py (bench/results/settings.jsonl).
std::uint64_t max_staged_bytes(const TuningInputs& inputs) {
  if (inputs.levels.back().medium != topology::Medium::sockets) return 512 << 10;
  return inputs.ranks == 2 ? 64 << 10 : 256 << 10;
}

// What the row says, or lent memory where the row knows of none.
Protocol preferred_protocol(const Row& row, const TuningInputs& inputs, const CallSize& size,
                            const Filter& filter) {
  const bool may_lend = inputs.may_carry() && !row.mapped &&
                        size.bytes > max_staged_bytes(inputs) && row.protocol == Protocol::simple &&
                        filter.takes(Protocol::direct);
  return may_lend ? Protocol::direct : row.protocol;
}

Status no_algorithm(const CallSize& size) {
  return invalid_usage(
      fmt::format("GYRE_ALGO (or reproducible) allows no algorithm for {}",
                  size.call.empty() ? plan::collective_name(size.collective) : size.call));
}

Status no_protocol(const TuningInputs& inputs) {
  std::string_view there_are = "the host has LL (line), Simple and Direct";
  if (inputs.may_carry())
    there_are = "some ranks do not share memory, and between those there are Simple and Direct";
  else if (!inputs.maps_all())
    there_are = "some ranks do not share memory, and between those there is only Simple";
  else if (inputs.device && !inputs.whole_lines)
    there_are =
        "between these GPUs lines of 128 bytes need not arrive whole, so there are LL, Simple and "
        "Direct";
  return invalid_usage(fmt::format("GYRE_PROTO allows no protocol that works here: {}", there_are));
}

}  // namespace

Result<Choice> choose(const TuningInputs& inputs, const Allowed& allowed, const CallSize& size) {
  const Filter filter(inputs, allowed, size);
  const std::vector<const Row*> rows = rows_for(inputs, size, filter);
  for (const Row* row : rows)
    if (const Protocol protocol = preferred_protocol(*row, inputs, size, filter);
        filter.takes(protocol))
      return Choice{plan::find_algorithm(row->algorithm), protocol};
  // The settings leave out what the table prefers: the nearest that they allow.
  const plan::Algorithm* algorithm =
      rows.empty() ? first_algorithm(filter) : plan::find_algorithm(rows.front()->algorithm);
  if (algorithm == nullptr) return no_algorithm(size);
  const Protocol preferred = rows.empty() ? Protocol::simple : rows.front()->protocol;
  for (Protocol protocol :
       {preferred, Protocol::simple, Protocol::direct, Protocol::line, Protocol::line128})
    if (filter.takes(protocol)) return Choice{algorithm, protocol};
  return no_protocol(inputs);
}

std::uint64_t piece_bytes(const TuningInputs& inputs, Protocol protocol, std::uint64_t bytes,
                          std::uint32_t chunks) {
  // A quarter of the lines, so that a message can be on its way while the next one is written.
  constexpr std::uint64_t line_payload = 56;
  if (protocol == Protocol::line) return inputs.line_count / 4 * line_payload / 64 * 64;
  constexpr std::uint64_t max_bytes = 1ULL << 40;
  const std::uint64_t all = std::min(bytes, max_bytes);
  // About four pieces of what a rank has keep both ends of a link busy; small pieces cost more in
  // flags than they gain.
  const std::uint64_t part = moves_at_once(inputs)
                                 ? divide_up(all, chunks)
                                 : divide_up(divide_up(all, std::uint64_t(inputs.ranks)), 4);
  return std::min(std::max<std::uint64_t>(round_up(part, 4096), 16 << 10),
                  max_piece_bytes(inputs, protocol, chunks));
}

std::uint64_t copied_piece_bytes(const TuningInputs& inputs, std::uint64_t bytes) {
  return std::min(round_up(divide_up(bytes, std::uint64_t(inputs.ranks)), 4096), inputs.slot_bytes);
}

}  // namespace gyre::tune
