// A rank's answer to peers that have waited too long: its position in its calls. Input: the
// message.
#include "lib/comm/whereabouts.h"
#include "tests/fuzz/input.h"

#include <algorithm>

namespace whereabouts_fuzz {

using namespace gyre;

int take_input(const std::uint8_t* data, std::size_t size) {
  constexpr int ranks = 16;
  const control::MessageBytes message(data, data + size);
  const auto seen = comm::decode_whereabouts(message, ranks);
  if (!seen) return 0;
  for (const auto& wait : {seen->collective, seen->transfers}) {
    GYRE_DEMAND(wait.peer < ranks);
    GYRE_DEMAND(static_cast<int>(wait.what) < blocked_on_count);
  }
  GYRE_DEMAND(seen->standing <= comm::Whereabouts::Standing::waits);
  GYRE_DEMAND(
      std::ranges::none_of(seen->elsewhere, [](char one) { return one >= 0 && one < ' '; }));
  // But for words that cannot be shown, it is the same again.
  const control::MessageBytes again = encode(*seen);
  GYRE_DEMAND(again.size() == message.size());
  GYRE_DEMAND(encode(*comm::decode_whereabouts(again, ranks)) == again);
  return 0;
}

GYRE_FUZZ_TARGET(whereabouts)

}  // namespace whereabouts_fuzz
