// Proof: the other end of a session proves that it knows a further key. So one session can serve
// several communicators that have only the two processes in common.
//
//   ChannelBinding   a value that only the two ends of one session know, and no other session has:
//                    TLS's exporter value for channel bindings (RFC 9266)
#pragma once

#include "lib/base/status.h"
#include "lib/trust/session_key.h"

#include <array>
#include <cstdint>

namespace gyre::trust {

using ChannelBinding = std::array<std::uint8_t, 32>;
using KeyProof = std::array<std::uint8_t, 32>;

enum class Prover : std::uint8_t { opener, answerer };

// HKDF of the key; it holds for this session, this number and this end of it alone, so a proof that
// is passed on or sent back proves nothing.
Result<KeyProof> prove(const SessionKey& key, const ChannelBinding& binding, Prover who,
                       std::uint64_t number);
// In a time that tells nothing.
bool is_same(const KeyProof& one, const KeyProof& other);

}  // namespace gyre::trust
