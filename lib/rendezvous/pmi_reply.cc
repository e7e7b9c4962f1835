#include "lib/rendezvous/pmi_reply.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

namespace gyre::rendezvous {
namespace {

// For people: the launcher's text may hold anything, and may have the secret in it.
std::string shown_reply(std::string_view line) {
  constexpr std::size_t most = 60;
  std::string clean(line.substr(0, std::min({most, line.size(), line.find("value=")})));
  for (char& letter : clean)
    if (letter < ' ' || letter > '~') letter = '?';
  return clean.size() < line.size() ? clean + "..." : clean;
}

std::optional<std::string_view> word_of(std::string_view line, std::string_view name) {
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
    if (word.size() > name.size() && word.starts_with(name) && word[name.size()] == '=')
      return word.substr(name.size() + 1);
  }
  return std::nullopt;
}

}  // namespace

Result<std::string> read_pmi_reply(std::string_view line, std::string_view command,
                                   std::string_view wanted) {
  if (word_of(line, "cmd") != command)
    return Status(Code::RemoteError,
                  fmt::format("the launcher was to answer cmd={}, and says \"{}\"", command,
                              shown_reply(line)));
  if (const auto code = word_of(line, "rc"); code && *code != "0")
    return Status(Code::RemoteError,
                  fmt::format("the launcher refuses: \"{}\"", shown_reply(line)));
  if (wanted.empty()) return std::string();
  const auto value = word_of(line, wanted);
  if (!value || value->empty())
    return Status(Code::RemoteError, fmt::format("the launcher's answer has no {}: \"{}\"", wanted,
                                                 shown_reply(line)));
  return std::string(*value);
}

}  // namespace gyre::rendezvous
