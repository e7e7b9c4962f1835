#include "lib/transport/endpoint.h"

#include "lib/base/settings.h"

#include <fmt/core.h>

#include <bit>
#include <cstring>
#include <type_traits>

namespace gyre::transport {
namespace {

static_assert(std::endian::native == std::endian::little, "the encoding is little-endian");

constexpr std::size_t max_places = 8;
constexpr std::size_t max_further_tickets = Settings::max_tcp_sockets - 1;
constexpr std::size_t max_text_bytes = 255;

struct EndpointHead {
  std::array<char, 4> magic = {'G', 'Y', 'E', '3'};
  std::uint8_t flags = 0;
  std::uint8_t place_count = 0;
  std::uint16_t further_tickets = 0;
  trust::Token process{};
  trust::Ticket ticket{};
  std::array<std::uint8_t, 32> secret{};
  std::uint32_t slot_count = 0;
  std::uint32_t line_count = 0;
  std::uint64_t slot_bytes = 0;
};
static_assert(sizeof(EndpointHead) == 104 &&
              std::has_unique_object_representations_v<EndpointHead>);

void add_text(Endpoint& bytes, std::string_view text) {
  bytes.push_back(static_cast<std::uint8_t>(text.size()));
  bytes.insert(bytes.end(), text.begin(), text.end());
}

// Behind the head: the further tickets, as they are.
bool read_tickets(const Endpoint& bytes, std::size_t count, std::vector<trust::Ticket>& tickets) {
  std::size_t at = sizeof(EndpointHead);
  if (bytes.size() - at < count * sizeof(trust::Ticket)) return false;
  tickets.resize(count);
  for (trust::Ticket& ticket : tickets) {
    std::memcpy(ticket.data(), bytes.data() + at, sizeof ticket);
    at += sizeof ticket;
  }
  return true;
}

// Behind them, the transport's name and the places: each a length byte and as many bytes, to the
// very end.
bool read_texts(const Endpoint& bytes, std::size_t at, std::size_t count,
                std::vector<std::string>& texts) {
  for (std::size_t i = 0; i < count; ++i) {
    if (at >= bytes.size()) return false;
    const std::size_t length = bytes[at++];
    if (length == 0 || bytes.size() - at < length) return false;
    texts.emplace_back(reinterpret_cast<const char*>(bytes.data()) + at, length);
    at += length;
  }
  return at == bytes.size();
}

}  // namespace

Endpoint encode_endpoint(const EndpointContents& contents) {
  EndpointHead head;
  head.flags = contents.flags;
  head.process = contents.process;
  head.ticket = contents.ticket;
  head.secret = contents.secret;
  head.slot_count = contents.shape.slot_count;
  head.line_count = contents.shape.line_count;
  head.slot_bytes = contents.shape.slot_bytes;
  Endpoint bytes(sizeof head);
  for (const trust::Ticket& ticket : contents.further_tickets) {
    ++head.further_tickets;
    bytes.insert(bytes.end(), ticket.begin(), ticket.end());
  }
  add_text(bytes, contents.transport);
  for (const std::string& place : contents.places) {
    if (place.empty() || place.size() > max_text_bytes || head.place_count == max_places) continue;
    ++head.place_count;
    add_text(bytes, place);
  }
  std::memcpy(bytes.data(), &head, sizeof head);
  return bytes;
}

Result<EndpointContents> decode_endpoint(const Endpoint& bytes, std::string_view transport,
                                         const FifoShape& shape, std::int32_t peer) {
  const auto refuse = [peer](std::string_view why) {
    return Status(Code::RemoteError, fmt::format("rank {} sent an endpoint that {}", peer, why))
        .blame({peer});
  };
  EndpointHead head;
  if (bytes.size() < sizeof head) return refuse("is too short");
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.magic != EndpointHead().magic) return refuse("has an unknown format");
  if (head.further_tickets > max_further_tickets) return refuse("has too many tickets");
  if (head.place_count > max_places) return refuse("names too many places");
  EndpointContents contents;
  std::vector<std::string> texts;
  if (!read_tickets(bytes, head.further_tickets, contents.further_tickets) ||
      !read_texts(bytes, sizeof head + head.further_tickets * sizeof(trust::Ticket),
                  head.place_count + std::size_t{1}, texts))
    return refuse("is malformed");
  if (texts[0] != transport) return refuse("belongs to another transport");
  contents.transport = transport;
  contents.places.assign(texts.begin() + 1, texts.end());
  contents.flags = head.flags;
  contents.process = head.process;
  contents.ticket = head.ticket;
  contents.secret = head.secret;
  contents.shape = {head.slot_count, head.line_count, head.slot_bytes, shape.first, shape.spreads};
  if (contents.shape != shape)
    return refuse(fmt::format(
        "describes a fifo of {} slots of {} bytes and {} lines; here it has {} of {} and {}",
        head.slot_count, head.slot_bytes, head.line_count, shape.slot_count, shape.slot_bytes,
        shape.line_count));
  return contents;
}

}  // namespace gyre::transport
