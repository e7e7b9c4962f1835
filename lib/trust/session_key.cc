#include "lib/trust/session_key.h"

#include "lib/trust/derive.h"

#include <fmt/core.h>

namespace gyre::trust {

Result<std::shared_ptr<const SessionKey>> derive_control_key(const UniqueId& id) {
  auto key = std::make_shared<SessionKey>();
  std::array<std::uint8_t, 16> name;
  GYRE_TRY(derive(id.secret, fmt::format("control identity {}", id.epoch), name));
  GYRE_TRY(derive(id.secret, fmt::format("control psk {}", id.epoch), key->psk));
  key->identity = std::string(identity_prefix) + hexadecimal(name);
  key->opens = "control connection";
  return std::shared_ptr<const SessionKey>(std::move(key));
}

}  // namespace gyre::trust
