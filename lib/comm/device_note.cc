#include "lib/comm/device_note.h"

#include "lib/base/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace gyre::comm {
namespace {

// Lanes of the widest plan that the tuner takes: a double tree, up and down.
constexpr std::uint32_t lanes_most = 4;
constexpr std::uint32_t connections_default = 8, connections_most = 32;
constexpr std::size_t name_most = 64;    // of a UUID, or a place on a bus
constexpr std::size_t toward_most = 64;  // more GPUs than any host has
constexpr std::int64_t lanes_of_nvlink_most = 1024;

}  // namespace

std::string encode(const DeviceNote& note) {
  std::string text = fmt::format("{} {} {} {} {}", note.uuid, note.blocks, note.connections,
                                 note.channels, note.bus_id);
  for (const p2p::Toward& one : note.toward)
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
  if (!word || word->size() > name_most) return false;
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

std::optional<p2p::Toward> read_toward(std::string_view text) {
  p2p::Toward one;
  std::uint32_t access = 0;
  if (!take_name(text, ':', one.uuid) || !take_number(text, ':', 0, p2p::access_count - 1, access))
    return std::nullopt;
  const auto path = p2p::path_named(take_word(text, ':').value_or(""));
  if (!path || !take_number(text, ':', 0, lanes_of_nvlink_most, one.lanes) || !text.empty())
    return std::nullopt;
  one.access = static_cast<p2p::Access>(access);
  one.path = *path;
  return one;
}

}  // namespace

std::optional<DeviceNote> read_device_note(std::string_view text) {
  DeviceNote note;
  if (!take_name(text, ' ', note.uuid)) return std::nullopt;
  for (std::uint32_t* field : {&note.blocks, &note.connections, &note.channels})
    if (!take_number(text, ' ', 1, 1 << 20, *field)) return std::nullopt;
  if (!take_name(text, ' ', note.bus_id)) return std::nullopt;
  while (!text.empty()) {
    const auto word = take_word(text, ' ');
    const auto one = word ? read_toward(*word) : std::nullopt;
    if (!one || note.toward.size() == toward_most) return std::nullopt;
    note.toward.push_back(*one);
  }
  return note;
}

std::uint32_t device_connections(const char* variable) {
  const auto value = variable != nullptr ? parse_integer(variable, 1, connections_most)
                                         : Result<std::int64_t>(connections_default);
  return value.ok() ? static_cast<std::uint32_t>(*value) : connections_default;
}

Result<DeviceShare> share_devices(std::span<const DeviceNote> notes,
                                  std::span<const std::uint32_t> processes) {
  std::map<std::string, std::uint32_t> ranks_on;
  std::map<std::pair<std::uint32_t, std::string>, std::uint32_t> ranks_of_process_on;
  for (std::size_t rank = 0; rank < notes.size(); ++rank) {
    ++ranks_on[notes[rank].uuid];
    ++ranks_of_process_on[{processes[rank], notes[rank].uuid}];
  }
  DeviceShare share{UINT32_MAX, cuda::channels_most};
  for (std::size_t rank = 0; rank < notes.size(); ++rank) {
    const DeviceNote& note = notes[rank];
    const std::uint32_t ranks = ranks_on[note.uuid];
    const std::uint32_t blocks = note.blocks / ranks;
    if (blocks < lanes_most)
      return invalid_usage(fmt::format(
          "{} ranks on {} do not fit: kernels may have {} blocks at one time there, {} for each "
          "rank, and a rank needs {}; put at most {} ranks on it",
          ranks, note.uuid, note.blocks, blocks, lanes_most, note.blocks / lanes_most));
    const std::uint32_t beside = ranks_of_process_on[{processes[rank], note.uuid}];
    if (beside > note.connections)
      return invalid_usage(fmt::format(
          "{} ranks of one process on {} would wait for each other's kernels: only {} streams run "
          "side by side; set CUDA_DEVICE_MAX_CONNECTIONS to {} or more before CUDA begins (at most "
          "{})",
          beside, note.uuid, note.connections, beside, connections_most));
    share.blocks = std::min(share.blocks, blocks);
    share.channels = std::min(share.channels, note.channels);
  }
  share.channels = std::min(share.channels, share.blocks);
  return share;
}

}  // namespace gyre::comm
