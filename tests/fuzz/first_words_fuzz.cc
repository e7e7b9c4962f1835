// The first bytes that an unauthenticated client sends to a listener. A judgement of a prefix must
// hold for the whole.
#include "lib/control/first_words.h"
#include "lib/trust/session_key.h"
#include "tests/fuzz/input.h"

namespace first_words_fuzz {

using namespace gyre;
using namespace gyre::control;

int take_input(const std::uint8_t* data, std::size_t size) {
  using Intent = FirstWords::Intent;
  const std::span<const std::uint8_t> bytes(data, std::min(size, max_first_words));
  FirstWords before;
  for (std::size_t length = 0; length <= bytes.size(); ++length) {
    // Exactly as long, so that a look beyond the end is seen.
    const auto first = bytes.first(length);
    const std::vector<std::uint8_t> beginning(first.begin(), first.end());
    const FirstWords words = judge_first_words(beginning, trust::identity_prefix);
    GYRE_DEMAND(before.intent == Intent::unclear || words.intent == before.intent);
    GYRE_DEMAND(before.intent == Intent::unclear || words.identity == before.identity);
    GYRE_DEMAND((words.intent == Intent::other) == !words.fault.empty());
    GYRE_DEMAND(words.intent != Intent::show_ticket || length >= 40);
    GYRE_DEMAND(words.identity.empty() || (words.intent == Intent::prove_key &&
                                           words.identity.size() == trust::identity_length &&
                                           words.identity.starts_with(trust::identity_prefix)));
    before = words;
  }
  return 0;
}

GYRE_FUZZ_TARGET(first_words)

}  // namespace first_words_fuzz
