// UniqueId: the id that the ranks of one communicator pass round, out of band, to find and to trust
// each other. Opaque to callers, 128 bytes. It contains the communicator's secret, so keep it
// secret.
#pragma once

#include "lib/base/status.h"
#include "lib/trust/identity.h"
#include "lib/trust/wiped.h"

#include <array>
#include <cstdint>
#include <string>

namespace gyre::trust {

inline constexpr std::size_t unique_id_bytes = 128;
using Secret = Wiped<32>;
using EncodedId = Wiped<unique_id_bytes>;

struct UniqueId {
  Secret secret{};            // from getrandom, or from a launcher; never sent, logged or in argv
  Token root_host{};          // host of the root process
  std::string root_listener;  // abstract name of the root's listener; at most 30 bytes
  std::string root_address;  // "1.2.3.4:port" or "[::1]:port" of the root's listener; empty if none
  std::uint32_t epoch = 0;
};

// 128 bytes, with version and checksum; decode refuses anything else with a clear text.
Result<EncodedId> encode(const UniqueId& id);
Result<UniqueId> decode_unique_id(const std::array<std::uint8_t, unique_id_bytes>& bytes);
// Eight hexadecimal digits of a hash, for logs and errors.
std::string short_name(const UniqueId& id);
Result<Secret> random_secret();
// Where all ranks have the secret beforehand and share a host, no id needs passing: the root also
// listens at a name derived from the secret, and the others make the id themselves.
Result<std::string> listener_name_of(const Secret& secret);
Result<UniqueId> id_on_this_host(const Secret& secret);

}  // namespace gyre::trust
