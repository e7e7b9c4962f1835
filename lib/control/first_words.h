// FirstWords: judges by its first bytes what an unauthenticated client at a listener wants. The
// bytes stay in the kernel until that is clear. It knows no sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace gyre::control {

// A ClientHello with one key share and one key identity has about 350 bytes.
inline constexpr std::size_t max_first_words = 1024;

struct FirstWords {
  enum class Intent { unclear, show_ticket, prove_key, other };
  Intent intent = Intent::unclear;
  // prove_key: the identity that its ClientHello names; empty if none of this kind is in it.
  std::string identity;
  std::string_view fault;  // other: what it did wrong
};

// `bytes` is what there is so far, cut at max_first_words. Unclear: more must come. `prefix` is
// how the identities begin that are looked for.
FirstWords judge_first_words(std::span<const std::uint8_t> bytes, std::string_view prefix);

}  // namespace gyre::control
