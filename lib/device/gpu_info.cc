#include "lib/device/gpu_info.h"

#include "lib/base/settings.h"

#include <fmt/format.h>

#include <algorithm>

namespace gyre::comm {
namespace {

constexpr std::uint32_t connections_default = 8, connections_under_mps = 2,
                        max_device_connections = 32;
constexpr std::size_t max_name = 64;    // of a UUID, or a place on a bus
constexpr std::size_t max_toward = 64;  // more GPUs than any host has
constexpr std::size_t max_held = 1024;  // communicators, of a block each
constexpr std::string_view nothing_held = "-";
constexpr std::int64_t max_count = 1 << 20;
constexpr std::int64_t max_capability = 9999;
constexpr std::int64_t max_lanes_of_nvlink = 1024;

}  // namespace

std::string encode(const GpuInfo& note) {
  std::string held;
  for (const DeviceHolding& one : note.held)
    held +=
        fmt::format("{}{}:{}:{}", held.empty() ? "" : ",", one.communicator, one.ranks, one.blocks);
  std::string text = fmt::format("{} {} {} {} {} {} {} {} {}", note.uuid, note.blocks,
                                 note.connections, note.channels, note.min_channels, note.free_mib,
                                 note.capability, note.bus_id, held.empty() ? nothing_held : held);
  for (const p2p::RouteReport& one : note.toward)
    text += fmt::format(" {}:{}:{}:{}", one.uuid, static_cast<int>(one.access),
                        p2p::path_name(one.path), one.lanes);
  return text;
}

namespace {

// Words between single marks, from the front; nothing when none is left, or an empty one.
std::optional<std::string_view> take_word(std::string_view& text, char mark) {
  const std::size_t end = std::min(text.find(mark), text.size());
  if (end == 0) return std::nullopt;
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end);
  if (text.size() == 1) return std::nullopt;  // a mark at the end
  if (!text.empty()) text.remove_prefix(1);
  return word;
}

bool take_name(std::string_view& text, char mark, std::string& name) {
  const auto word = take_word(text, mark);
  if (!word || word->size() > max_name) return false;
  name = *word;
  return true;
}

bool take_number(std::string_view& text, char mark, std::int64_t least, std::int64_t most,
                 std::uint32_t& number) {
  const auto word = take_word(text, mark);
  const auto value = parse_integer(word.value_or(""), least, most);
  if (!value.ok() || fmt::to_string(*value) != *word) return false;
  number = static_cast<std::uint32_t>(*value);
  return true;
}

std::optional<p2p::RouteReport> read_toward(std::string_view text) {
  p2p::RouteReport one;
  std::uint32_t access = 0;
  if (!take_name(text, ':', one.uuid) || !take_number(text, ':', 0, p2p::access_count - 1, access))
    return std::nullopt;
  const auto path = p2p::path_named(take_word(text, ':').value_or(""));
  if (!path || !take_number(text, ':', 0, max_lanes_of_nvlink, one.lanes) || !text.empty())
    return std::nullopt;
  one.access = static_cast<p2p::PeerAccess>(access);
  one.path = *path;
  return one;
}

bool take_holdings(std::string_view text, std::vector<DeviceHolding>& held) {
  if (text == nothing_held) return true;
  while (!text.empty()) {
    auto word = take_word(text, ',');
    DeviceHolding& one = held.emplace_back();
    if (!word || held.size() > max_held || !take_name(*word, ':', one.communicator) ||
        !take_number(*word, ':', 1, max_count, one.ranks) ||
        !take_number(*word, ':', 0, max_count, one.blocks) || !word->empty())
      return false;
  }
  return true;
}

}  // namespace

std::optional<GpuInfo> read_gpu_info(std::string_view text) {
  GpuInfo note;
  if (!take_name(text, ' ', note.uuid)) return std::nullopt;
  for (std::uint32_t* field : {&note.blocks, &note.connections, &note.channels, &note.min_channels})
    if (!take_number(text, ' ', 1, max_count, *field)) return std::nullopt;
  if (!take_number(text, ' ', 0, INT32_MAX, note.free_mib) ||
      !take_number(text, ' ', 0, max_capability, note.capability) ||
      !take_name(text, ' ', note.bus_id))
    return std::nullopt;
  const auto held = take_word(text, ' ');
  if (!held || !take_holdings(*held, note.held)) return std::nullopt;
  while (!text.empty()) {
    const auto word = take_word(text, ' ');
    const auto one = word ? read_toward(*word) : std::nullopt;
    if (!one || note.toward.size() == max_toward) return std::nullopt;
    note.toward.push_back(*one);
  }
  return note;
}

std::uint32_t device_connections(const char* variable, bool by_mps) {
  const std::uint32_t by_default = by_mps ? connections_under_mps : connections_default;
  const auto value = variable != nullptr ? parse_integer(variable, 1, max_device_connections)
                                         : Result<std::int64_t>(by_default);
  return value.ok() ? static_cast<std::uint32_t>(*value) : by_default;
}

}  // namespace gyre::comm
