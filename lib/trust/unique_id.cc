// The 128 bytes of a unique id:
//
//   0   8 magic, with the version as its last byte
//   8  32 secret
//  40  16 host of the root
//  56   4 epoch
//  60   1 length of the root's listener name, 30 the name, zeroes behind it
//  91   1 address family (0, 4, 6), 16 host, 2 port of the root's listener
// 110  14 zeroes
// 124   4 first bytes of SHA-256 over the 124 before: a cut or mixed-up id is told at once
#include "lib/trust/unique_id.h"

#include "lib/trust/address.h"
#include "lib/trust/derive.h"
#include "lib/trust/openssl.h"

#include <fmt/core.h>
#include <openssl/evp.h>

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <sys/random.h>

namespace gyre::trust {
namespace {

using Bytes128 = std::array<std::uint8_t, unique_id_bytes>;

constexpr std::array<std::uint8_t, 8> magic = {'G', 'Y', 'R', 'E', '-', 'I', 'D', 1};
constexpr std::size_t secret_at = 8, host_at = 40, epoch_at = 56, listener_at = 60,
                      max_listener = 30;
constexpr std::size_t family_at = 91, address_at = 92, port_at = 108, zeroes_at = 110;
constexpr std::size_t checksum_at = 124, checksum_bytes = 4;

Status write_checksum(const Bytes128& bytes, std::uint8_t* target) {
  begin_openssl();
  std::array<std::uint8_t, EVP_MAX_MD_SIZE> digest;
  if (EVP_Digest(bytes.data(), checksum_at, digest.data(), nullptr, EVP_sha256(), nullptr) != 1)
    return internal_error("SHA-256 failed");
  std::memcpy(target, digest.data(), checksum_bytes);
  return {};
}

Status put_address(const std::string& text, Bytes128& bytes) {
  if (text.empty()) return {};
  GYRE_ASSIGN(const SocketAddress address, parse_address(text));
  if (address.family() == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &address.storage, sizeof v4);
    bytes[family_at] = 4;
    std::memcpy(&bytes[address_at], &v4.sin_addr, 4);
    std::memcpy(&bytes[port_at], &v4.sin_port, 2);
    return {};
  }
  sockaddr_in6 v6;
  std::memcpy(&v6, &address.storage, sizeof v6);
  bytes[family_at] = 6;
  std::memcpy(&bytes[address_at], &v6.sin6_addr, 16);
  std::memcpy(&bytes[port_at], &v6.sin6_port, 2);
  return {};
}

std::string get_address(const Bytes128& bytes) {
  if (bytes[family_at] == 0) return {};
  std::uint16_t port = 0;
  std::memcpy(&port, &bytes[port_at], 2);
  char host[INET6_ADDRSTRLEN] = {};
  const bool v4 = bytes[family_at] == 4;
  inet_ntop(v4 ? AF_INET : AF_INET6, &bytes[address_at], host, sizeof host);
  return v4 ? fmt::format("{}:{}", host, ntohs(port)) : fmt::format("[{}]:{}", host, ntohs(port));
}

Status check_layout(const Bytes128& bytes) {
  if (!std::equal(magic.begin(), magic.end() - 1, bytes.begin()))
    return invalid_argument("the unique id was not made by gyreGetUniqueId, or not passed whole");
  if (bytes[7] != magic[7])
    return invalid_argument(
        fmt::format("the unique id has version {}, this library reads version {}: all ranks must "
                    "run the same library",
                    bytes[7], magic[7]));
  std::array<std::uint8_t, checksum_bytes> sum;
  GYRE_TRY(write_checksum(bytes, sum.data()));
  if (!std::equal(sum.begin(), sum.end(), bytes.begin() + checksum_at))
    return invalid_argument("the unique id is damaged: its checksum does not fit");
  const std::uint8_t family = bytes[family_at];
  const bool zeroes = std::all_of(bytes.begin() + zeroes_at, bytes.begin() + checksum_at,
                                  [](std::uint8_t byte) { return byte == 0; });
  if (bytes[listener_at] > max_listener || (family != 0 && family != 4 && family != 6) || !zeroes)
    return invalid_argument("the unique id is malformed");
  return {};
}

}  // namespace

Result<EncodedId> encode(const UniqueId& id) {
  if (id.root_listener.size() > max_listener)
    return invalid_argument(
        fmt::format("listener name '{}' is longer than 30 bytes", id.root_listener));
  EncodedId encoded;
  Bytes128& bytes = encoded.bytes;
  std::copy(magic.begin(), magic.end(), bytes.begin());
  std::copy(id.secret.begin(), id.secret.end(), &bytes[secret_at]);
  std::copy(id.root_host.begin(), id.root_host.end(), &bytes[host_at]);
  std::memcpy(&bytes[epoch_at], &id.epoch, sizeof id.epoch);
  bytes[listener_at] = static_cast<std::uint8_t>(id.root_listener.size());
  std::copy(id.root_listener.begin(), id.root_listener.end(), &bytes[listener_at + 1]);
  GYRE_TRY(put_address(id.root_address, bytes));
  GYRE_TRY(write_checksum(bytes, &bytes[checksum_at]));
  return encoded;
}

Result<UniqueId> decode_unique_id(const Bytes128& bytes) {
  GYRE_TRY(check_layout(bytes));
  UniqueId id;
  std::memcpy(id.secret.data(), &bytes[secret_at], id.secret.size());
  std::memcpy(id.root_host.data(), &bytes[host_at], id.root_host.size());
  std::memcpy(&id.epoch, &bytes[epoch_at], sizeof id.epoch);
  id.root_listener.assign(reinterpret_cast<const char*>(&bytes[listener_at + 1]),
                          bytes[listener_at]);
  id.root_address = get_address(bytes);
  return id;
}

std::string short_name(const UniqueId& id) {
  std::array<std::uint8_t, 4> name{};
  if (!derive(id.secret, fmt::format("name {}", id.epoch), name).ok()) return "????????";
  return hexadecimal(name);
}

Result<Secret> random_secret() {
  Secret secret;
  if (getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size()))
    return Status::from_errno("getrandom for a secret", errno);
  return secret;
}

Result<std::string> listener_name_of(const Secret& secret) {
  std::array<std::uint8_t, 12> name;
  GYRE_TRY(derive(secret, "door name", name));
  return "gyre-" + hexadecimal(name);
}

Result<UniqueId> id_on_this_host(const Secret& secret) {
  UniqueId id;
  id.secret = secret;
  GYRE_ASSIGN(const ProcessIdentity self, describe_this_process());
  id.root_host = self.host;
  GYRE_ASSIGN(id.root_listener, listener_name_of(secret));
  return id;
}

}  // namespace gyre::trust
