// The 128 bytes of a unique id, as a caller passes them. A flag repairs the checksum, so that the
// fuzzer reaches the checks behind it.
#include "lib/trust/address.h"
#include "lib/trust/session_key.h"
#include "lib/trust/unique_id.h"
#include "tests/fuzz/input.h"

#include <openssl/evp.h>

namespace unique_id_fuzz {

using namespace gyre;
using namespace gyre::trust;

namespace {

using Bytes = std::array<std::uint8_t, unique_id_bytes>;

void repair_checksum(Bytes& bytes) {
  constexpr std::size_t covered = 124;
  std::array<std::uint8_t, EVP_MAX_MD_SIZE> digest;
  EVP_Digest(bytes.data(), covered, digest.data(), nullptr, EVP_sha256(), nullptr);
  std::copy_n(digest.begin(), bytes.size() - covered, bytes.begin() + covered);
}

bool same(const UniqueId& a, const UniqueId& b) {
  return a.secret == b.secret && a.root_host == b.root_host && a.root_listener == b.root_listener &&
         a.root_address == b.root_address && a.epoch == b.epoch;
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const bool repair = input.take_flag();
  Bytes bytes{};
  const auto given = input.take_bytes(bytes.size());
  std::copy(given.begin(), given.end(), bytes.begin());
  if (repair) repair_checksum(bytes);

  const auto id = decode_unique_id(bytes);
  if (!id.ok()) return 0;
  GYRE_DEMAND(id->root_listener.size() <= 30);
  GYRE_DEMAND(id->root_address.empty() || parse_address(id->root_address).ok());
  const auto again = encode(*id);
  GYRE_DEMAND(again.ok());
  const auto copy = decode_unique_id(*again);
  GYRE_DEMAND(copy.ok() && same(*copy, *id));
  GYRE_DEMAND(short_name(*id).size() == 8);
  return 0;
}

GYRE_FUZZ_TARGET(unique_id)

}  // namespace unique_id_fuzz
