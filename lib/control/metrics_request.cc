#include "lib/control/metrics_request.h"

#include <algorithm>

namespace gyre::control {
namespace {

bool is_latin_letter(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// RFC 9110, 5.6.2.
bool is_token(std::string_view text) {
  constexpr std::string_view marks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return is_latin_letter(c) || is_digit(c) || marks.find(c) != marks.npos;
  });
}

bool is_visible(char c) { return c > ' ' && c <= '~'; }

// RFC 9112, 5: a name, a colon, and anything that steers nothing.
bool is_field(std::string_view line) {
  const std::size_t colon = line.find(':');
  if (colon == line.npos || !is_token(line.substr(0, colon))) return false;
  return std::ranges::all_of(line.substr(colon + 1), [](char c) {
    const auto code = static_cast<unsigned char>(c);
    return c == '\t' || (code >= ' ' && code != 0x7f);
  });
}

// "GET /metrics HTTP/1.1".
RequestKind judge_request_line(std::string_view line) {
  const std::size_t first = line.find(' ');
  if (first == line.npos || !is_token(line.substr(0, first))) return RequestKind::malformed;
  const std::size_t second = line.find(' ', first + 1);
  if (second == line.npos) return RequestKind::malformed;
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, second - first - 1);
  const std::string_view version = line.substr(second + 1);
  if (target.empty() || !std::ranges::all_of(target, is_visible)) return RequestKind::malformed;
  if (version.size() != 8 || !version.starts_with("HTTP/1.") || !is_digit(version[7]))
    return RequestKind::malformed;
  if (method != "GET") return RequestKind::other_method;
  return target.substr(0, target.find('?')) == "/metrics" ? RequestKind::metrics
                                                          : RequestKind::other_path;
}

}  // namespace

RequestKind judge_request(std::string_view bytes) {
  std::string_view rest = bytes.substr(0, max_request_bytes);
  RequestKind asked = RequestKind::unclear;
  for (std::size_t end = rest.find('\n'); end != rest.npos; end = rest.find('\n')) {
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (asked == RequestKind::unclear)
      asked = judge_request_line(line);
    else if (line.empty())
      return asked;
    else if (!is_field(line))
      asked = RequestKind::malformed;
    if (asked == RequestKind::malformed) return asked;
  }
  return bytes.size() < max_request_bytes ? RequestKind::unclear : RequestKind::malformed;
}

}  // namespace gyre::control
