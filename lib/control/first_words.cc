#include "lib/control/first_words.h"

#include "lib/trust/session_key.h"
#include "lib/trust/tickets.h"

#include <algorithm>
#include <cstring>

namespace gyre::control {
namespace {

constexpr std::uint8_t tls_handshake = 22;  // RFC 8446 5.1, ContentType
constexpr std::size_t tls_record_head = 5;

// The key's identity stands in clear in the hello, wherever its extensions are.
std::string find_identity(std::span<const std::uint8_t> hello, std::string_view prefix) {
  const std::string_view text(reinterpret_cast<const char*>(hello.data()), hello.size());
  const std::size_t place = text.find(prefix);
  const std::size_t length = prefix.size() + trust::identity_name_length;
  if (place == text.npos || text.size() - place < length) return {};
  return std::string(text.substr(place, length));
}

}  // namespace

FirstWords judge_first_words(std::span<const std::uint8_t> bytes, std::string_view prefix) {
  using Intent = FirstWords::Intent;
  if (bytes.empty()) return {};
  const trust::TicketHello ticket;
  const std::size_t compared = std::min(bytes.size(), ticket.magic.size());
  if (std::memcmp(bytes.data(), ticket.magic.data(), compared) == 0)
    return {bytes.size() < sizeof ticket ? Intent::unclear : Intent::show_ticket, {}, {}};
  if (bytes[0] != tls_handshake) return {Intent::other, {}, "it spoke another protocol"};
  if (bytes.size() < tls_record_head) return {};
  const std::size_t record = tls_record_head + (std::size_t{bytes[3]} << 8) + bytes[4];
  if (record > max_first_words) return {Intent::other, {}, "its hello is too long"};
  if (bytes.size() < record) return {};
  return {Intent::prove_key, find_identity(bytes.first(record), prefix), {}};
}

}  // namespace gyre::control
