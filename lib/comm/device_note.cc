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

}  // namespace

std::string encode(const DeviceNote& note) {
  return fmt::format("{} {} {} {}", note.uuid, note.blocks, note.connections, note.channels);
}

std::optional<DeviceNote> read_device_note(std::string_view text) {
  DeviceNote note;
  const std::size_t space = text.find(' ');
  if (space == text.npos || space == 0 || space > 64) return std::nullopt;
  note.uuid = text.substr(0, space);
  text.remove_prefix(space + 1);
  for (std::uint32_t* field : {&note.blocks, &note.connections, &note.channels}) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const auto value = parse_integer(text.substr(0, end), 1, 1 << 20);
    if (!value.ok()) return std::nullopt;
    *field = static_cast<std::uint32_t>(*value);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return text.empty() ? std::optional(note) : std::nullopt;
}

std::uint32_t device_connections(const char* variable) {
  const auto value = variable != nullptr ? parse_integer(variable, 1, connections_most)
                                         : Result<std::int64_t>(connections_default);
  return value.ok() ? static_cast<std::uint32_t>(*value) : connections_default;
}

Result<DeviceShare> share_devices(std::span<const DeviceNote> notes) {
  std::map<std::string, std::uint32_t> ranks_on;
  for (const DeviceNote& note : notes) ++ranks_on[note.uuid];
  DeviceShare share{UINT32_MAX, cuda::channels_most};
  for (const DeviceNote& note : notes) {
    const std::uint32_t ranks = ranks_on[note.uuid];
    const std::uint32_t blocks = note.blocks / ranks;
    if (blocks < lanes_most)
      return invalid_usage(fmt::format(
          "{} ranks on {} do not fit: kernels may have {} blocks at one time there, {} for each "
          "rank, and a rank needs {}; put at most {} ranks on it",
          ranks, note.uuid, note.blocks, blocks, lanes_most, note.blocks / lanes_most));
    if (ranks > note.connections)
      return invalid_usage(fmt::format(
          "{} ranks of one process on {} would wait for each other's kernels: only {} streams run "
          "side by side; set CUDA_DEVICE_MAX_CONNECTIONS to {} or more before CUDA begins (at most "
          "{})",
          ranks, note.uuid, note.connections, ranks, connections_most));
    share.blocks = std::min(share.blocks, blocks);
    share.channels = std::min(share.channels, note.channels);
  }
  share.channels = std::min(share.channels, share.blocks);
  return share;
}

}  // namespace gyre::comm
