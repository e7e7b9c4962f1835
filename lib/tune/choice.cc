#include "lib/tune/choice.h"

#include "lib/tune/table.h"

#include <fmt/format.h>

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

// Names as NCCL writes collectives in NCCL_ALGO: without underscores.
std::optional<Collective> named_collective(std::string_view text) {
  std::string name = lower(text);
  std::erase(name, '_');
  for (int i = 0; i < plan::collective_count; ++i) {
    std::string known(plan::collective_name(static_cast<Collective>(i)));
    std::erase(known, '_');
    if (known == name) return static_cast<Collective>(i);
  }
  return std::nullopt;
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

std::uint64_t piece_bytes_for(const Scene& scene, Protocol protocol, std::uint64_t bytes,
                              std::uint32_t chunks) {
  // A quarter of the lines, so that a message can be on its way while the next one is written.
  constexpr std::uint64_t line_payload = 56;
  if (protocol == Protocol::line) return scene.line_count / 4 * line_payload / 64 * 64;
  // About four pieces a chunk keep both ends of a link busy; small pieces cost more in flags than
  // they gain.
  const std::uint64_t quarter = divide_up(divide_up(bytes, chunks), 4);
  return std::clamp<std::uint64_t>(round_up(quarter, 4096), 16 << 10, scene.slot_bytes);
}

}  // namespace

Status Allowed::parse_list(std::string_view setting, std::string_view text, bool protocols,
                           Mask& mask) {
  for (std::string_view section : split(text, ';')) {
    std::size_t first = 0, last = plan::collective_count;
    bool general = !protocols;
    if (const std::size_t colon = section.find(':'); colon != section.npos) {
      const auto collective = named_collective(section.substr(0, colon));
      if (!collective)
        return invalid_usage(fmt::format("{}=\"{}\": \"{}\" is not a collective", setting, text,
                                         section.substr(0, colon)));
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

Result<Choice> choose(const Scene& scene, const Allowed& allowed, const Question& question) {
  const Collective collective = question.collective;  // bindings cannot be captured, clang says
  const std::uint64_t bytes = question.bytes;
  const auto does = [&](const plan::Algorithm& algorithm) {
    return algorithm.does(collective) &&
           (!algorithm.equal_counts || bytes != Question::private_bytes);
  };
  const bool is_free = allowed.is_general(collective) &&
                       std::ranges::none_of(plan::algorithms(), [&](const auto& a) {
                         return does(a) && allowed.algorithm(collective, a);
                       });
  const auto algorithm_fits = [&](const plan::Algorithm& algorithm) {
    const bool exact = algorithm.order == plan::SumOrder::rank && algorithm.roundings == "1";
    return does(algorithm) && (is_free || allowed.algorithm(collective, algorithm)) &&
           (!scene.reproducible || !plan::sums(collective) || exact);
  };
  const auto protocol_fits = [&](Protocol protocol) {
    // Among private counts each pair is on its own: there is nothing to choose.
    if (bytes == Question::private_bytes) return protocol == Protocol::simple;
    if (protocol == Protocol::line128 && !(scene.device && scene.whole_lines)) return false;
    return allowed.protocol(collective, protocol) && (scene.mapped || protocol == Protocol::simple);
  };
  const auto made = [&](const plan::Algorithm& algorithm, Protocol protocol) {
    const std::uint32_t chunks = static_cast<std::uint32_t>(scene.ranks);
    return Choice{
        &algorithm, protocol,
        piece_bytes_for(scene, protocol, std::min<std::uint64_t>(bytes, 1ULL << 40), chunks)};
  };
  const plan::Algorithm* preferred = nullptr;
  Protocol preferred_protocol = Protocol::simple;
  const Table& table = scene.device && scene.mapped ? device_table : host_table;
  for (const Row& row : table.rows(collective)) {
    if (row.mapped != scene.mapped || bytes > row.bytes_most || scene.ranks > row.ranks_most)
      continue;
    const plan::Algorithm& algorithm = *plan::find_algorithm(row.algorithm);
    if (!algorithm_fits(algorithm)) continue;
    if (protocol_fits(row.protocol)) return made(algorithm, row.protocol);
    if (preferred == nullptr) preferred = &algorithm, preferred_protocol = row.protocol;
  }
  // The settings leave out what the table prefers: the nearest that they allow.
  const plan::Algorithm* algorithm = preferred;
  for (const plan::Algorithm& candidate : plan::algorithms())
    if (algorithm == nullptr && algorithm_fits(candidate)) algorithm = &candidate;
  if (algorithm == nullptr)
    return invalid_usage(
        fmt::format("GYRE_ALGO (or reproducible) allows no algorithm for {}",
                    question.call.empty() ? plan::collective_name(collective) : question.call));
  for (Protocol protocol :
       {preferred_protocol, Protocol::simple, Protocol::direct, Protocol::line, Protocol::line128})
    if (protocol_fits(protocol)) return made(*algorithm, protocol);
  return invalid_usage(fmt::format(
      "GYRE_PROTO allows no protocol that works here: {}",
      scene.mapped && scene.device && !scene.whole_lines
          ? "between these GPUs lines of 128 bytes need not arrive whole, so there are LL, Simple "
            "and Direct"
      : scene.mapped ? "the host has LL (line), Simple and Direct"
                     : "some ranks do not share memory, and between those there is only Simple"));
}

}  // namespace gyre::tune
