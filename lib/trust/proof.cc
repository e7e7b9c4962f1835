#include "lib/trust/proof.h"

#include "lib/trust/derive.h"

#include <fmt/core.h>
#include <openssl/crypto.h>

namespace gyre::trust {

Result<KeyProof> prove(const SessionKey& key, const ChannelBinding& binding, Prover who,
                       std::uint64_t number) {
  const std::string label =
      fmt::format("control proof {} {} {}", who == Prover::opener ? "opener" : "answerer", number,
                  hexadecimal(binding));
  KeyProof proof;
  GYRE_TRY(derive(key.psk, label, proof));
  return proof;
}

bool is_same(const KeyProof& one, const KeyProof& other) {
  return CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

}  // namespace gyre::trust
