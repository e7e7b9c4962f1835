// SessionKey: the key that two processes of one communicator prove to each other over TLS, derived
// from the id's secret. Its identity is sent in clear and reveals nothing of the secret.
#pragma once

#include "lib/base/status.h"
#include "lib/trust/unique_id.h"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace gyre::trust {

// Every identity begins with this, so that a listener finds it in a ClientHello.
inline constexpr std::string_view identity_prefix = "gyre-control-1-";
inline constexpr std::size_t identity_name_length = 32;
inline constexpr std::size_t identity_length = identity_prefix.size() + identity_name_length;

struct SessionKey {
  SessionKey() = default;
  SessionKey(const SessionKey&) = delete;
  SessionKey& operator=(const SessionKey&) = delete;

  std::string identity;
  Wiped<32> psk{};
  std::string_view opens = "connection";  // for errors: "its control connection closed"
};

// Depends on the secret and the epoch alone: an id of an old epoch opens nothing.
Result<std::shared_ptr<const SessionKey>> derive_control_key(const UniqueId& id);

}  // namespace gyre::trust
