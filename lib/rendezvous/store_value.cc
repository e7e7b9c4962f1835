#include "lib/rendezvous/store_value.h"

#include "lib/trust/derive.h"
#include "lib/trust/session_key.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <span>

namespace gyre::rendezvous {
namespace {

// An encrypted id: a random number, then the id's bytes, each added to a byte of a stream that
// HKDF makes of the secret and that number. No number comes twice, so no stream does. Who changes
// it in the store makes the meeting fail, as who removes it does: what ranks prove to each other is
// the secret inside.
constexpr std::size_t number_bytes = 16;
constexpr std::size_t sealed_bytes = number_bytes + trust::unique_id_bytes;

Status apply_stream(const trust::Secret& secret, std::span<const std::uint8_t> number,
                    std::span<std::uint8_t> bytes) {
  trust::EncodedId stream{};
  GYRE_TRY(trust::derive(secret, "id in a store " + trust::hexadecimal(number), stream));
  std::ranges::transform(bytes, stream, bytes.begin(), std::bit_xor<std::uint8_t>());
  return {};
}

}  // namespace

Result<std::vector<std::uint8_t>> store_value_of(const trust::UniqueId& id,
                                                 const std::optional<trust::Secret>& secret) {
  GYRE_ASSIGN(const trust::EncodedId bytes, trust::encode(id));
  if (!secret) return std::vector<std::uint8_t>(bytes.begin(), bytes.end());
  GYRE_ASSIGN(const trust::Secret number, trust::random_secret());
  std::vector<std::uint8_t> value(number.begin(), number.begin() + number_bytes);
  value.insert(value.end(), bytes.begin(), bytes.end());
  const std::span<std::uint8_t> all(value);
  GYRE_TRY(apply_stream(*secret, all.first(number_bytes), all.subspan(number_bytes)));
  return value;
}

Result<trust::UniqueId> id_of_store_value(const std::vector<std::uint8_t>& value,
                                          const std::optional<trust::Secret>& secret) {
  if (secret && value.size() == trust::unique_id_bytes)
    return invalid_usage(
        "GYRE_RENDEZVOUS_SECRET_FILE is set here, and rank 0 has put the id in clear: set it on "
        "all ranks, or on none");
  if (!secret && value.size() == sealed_bytes)
    return invalid_usage(
        "rank 0 has encrypted the id under its GYRE_RENDEZVOUS_SECRET_FILE: set that here, too");
  const std::size_t expected = secret ? sealed_bytes : trust::unique_id_bytes;
  if (value.size() != expected)
    return Status(Code::RemoteError,
                  fmt::format("the value has {} bytes, an id has {}: does another program use "
                              "this key?",
                              value.size(), expected));
  trust::EncodedId bytes;
  std::copy(value.end() - trust::unique_id_bytes, value.end(), bytes.begin());
  if (secret) GYRE_TRY(apply_stream(*secret, std::span(value).first(number_bytes), bytes));
  auto id = trust::decode_unique_id(bytes);
  if (!id.ok() && secret)
    return std::move(id).status().while_doing(
        "decrypting it (does this GYRE_RENDEZVOUS_SECRET_FILE hold the same as rank 0's?)");
  return id;
}

}  // namespace gyre::rendezvous
