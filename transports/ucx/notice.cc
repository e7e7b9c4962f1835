#include "transports/ucx/notice.h"

#include "lib/trust/wire.h"

#include <cstring>

namespace gyre::transport {
namespace {

// FNV-1a, 64 bits.
std::uint64_t checksum_of(std::span<const std::uint8_t> bytes) {
  std::uint64_t sum = 0xcbf29ce484222325;
  for (const std::uint8_t byte : bytes) sum = (sum ^ byte) * 0x100000001b3;
  return sum;
}

}  // namespace

std::optional<UcpNotice> read_ucp_notice(std::span<const std::byte> bytes) {
  UcpNotice notice;
  if (bytes.size() != sizeof notice) return std::nullopt;
  std::memcpy(&notice, bytes.data(), sizeof notice);
  const bool is_ours = notice.magic == UcpNotice::ucp_magic &&
                       notice.version == UcpNotice::ucp_version && notice.reserved == 0 &&
                       static_cast<std::uint8_t>(notice.kind) < ucp_notice_kinds;
  return is_ours ? std::optional(notice) : std::nullopt;
}

std::vector<std::uint8_t> encode(const UcpPlace& place) {
  trust::Writer writer;
  writer.put(place.link);
  writer.put_text(place.listener);
  writer.put_rest(
      {reinterpret_cast<const std::uint8_t*>(place.worker.data()), place.worker.size()});
  std::vector<std::uint8_t> bytes = writer.take();
  trust::Writer summed;
  summed.put(checksum_of(bytes));
  summed.put_rest(bytes);
  return summed.take();
}

std::optional<UcpPlace> decode_ucp_place(std::span<const std::uint8_t> bytes) {
  trust::Reader reader(bytes);
  std::uint64_t sum = 0;
  if (!reader.get(sum)) return std::nullopt;
  const std::span<const std::uint8_t> summed = reader.rest();
  UcpPlace place;
  trust::Reader parts(summed);
  if (sum != checksum_of(summed) || !parts.get(place.link) ||
      !parts.get_text(place.listener, max_ucp_listener))
    return std::nullopt;
  const std::span<const std::uint8_t> worker = parts.rest();
  if (worker.empty() || worker.size() > max_ucp_address) return std::nullopt;
  place.worker.assign(worker.begin(), worker.end());
  return place;
}

std::vector<std::uint8_t> encode(const UcpHello& hello) {
  trust::Writer writer;
  writer.put(hello.ticket);
  writer.put_rest(encode(hello.sender));
  return writer.take();
}

std::optional<UcpHello> decode_ucp_hello(std::span<const std::uint8_t> bytes) {
  UcpHello hello;
  trust::Reader reader(bytes);
  if (!reader.get(hello.ticket)) return std::nullopt;
  std::optional<UcpPlace> place = decode_ucp_place(reader.rest());
  if (!place) return std::nullopt;
  hello.sender = std::move(*place);
  return hello;
}

}  // namespace gyre::transport
