#include "lib/control/cause.h"

#include "lib/trust/wire.h"

#include <fmt/core.h>

#include <algorithm>

namespace gyre::control {
namespace {

constexpr std::size_t max_message = 4096;
constexpr std::size_t max_culprits = 1 << 16;
constexpr int max_runs = 12;

// What a communicator can fail with. In progress is no failure: who was told so would ask for ever.
bool is_failure_code(std::uint8_t code) {
  return code != static_cast<std::uint8_t>(Code::Success) &&
         code != static_cast<std::uint8_t>(Code::InProgress) &&
         code <= static_cast<std::uint8_t>(Code::Aborted);
}

}  // namespace

std::string rank_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  int runs = 0;
  for (std::size_t i = 0; i < ranks.size();) {
    if (++runs > max_runs) return text + fmt::format(" and {} more", ranks.size() - i);
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (i > 0) text += ", ";
    text += end - i == 1   ? fmt::format("{}", ranks[i])
            : end - i == 2 ? fmt::format("{}, {}", ranks[i], ranks[i + 1])
                           : fmt::format("{}-{}", ranks[i], ranks[end - 1]);
    i = end;
  }
  return text;
}

std::string process_text(const std::vector<int>& ranks, const trust::ProcessIdentity& process) {
  return fmt::format("{} (host {}, pid {})",
                     ranks.empty() ? "the process that made the unique id" : rank_text(ranks),
                     process.host_name, process.pid);
}

std::vector<std::uint8_t> encode_cause(const Status& cause) {
  trust::Writer writer;
  writer.put(static_cast<std::uint8_t>(cause.code()));
  writer.put_text(cause.message().substr(0, max_message));
  const std::size_t count = std::min(cause.culprits().size(), max_culprits);
  writer.put(static_cast<std::uint32_t>(count));
  for (std::size_t i = 0; i < count; ++i)
    writer.put(static_cast<std::uint32_t>(cause.culprits()[i]));
  return writer.take();
}

std::optional<Status> decode_cause(std::span<const std::uint8_t> bytes, int size) {
  trust::Reader reader(bytes);
  std::uint8_t code = 0;
  std::string message;
  std::uint32_t count = 0;
  if (!reader.get(code) || !is_failure_code(code) || !reader.get_words(message, max_message) ||
      !reader.get(count) || count > max_culprits || reader.left() != count * sizeof count)
    return std::nullopt;
  std::vector<int> culprits;
  for (std::uint32_t i = 0; i < count; ++i) {
    std::uint32_t rank = 0;
    if (!reader.get(rank) || rank > INT32_MAX) return std::nullopt;
    // Ranks may differ in the very size: the words name those that are none here.
    if (size == 0 || static_cast<int>(rank) < size) culprits.push_back(static_cast<int>(rank));
  }
  // In order and each once, whatever the peer's order: people read them as runs.
  std::ranges::sort(culprits);
  culprits.erase(std::unique(culprits.begin(), culprits.end()), culprits.end());
  return Status(static_cast<Code>(code), std::move(message)).blame(std::move(culprits));
}

}  // namespace gyre::control
