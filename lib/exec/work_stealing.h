// Work stealing: a blocked rank does work of others. Where a lane reduces its own chunk from the
// memory of all ranks into the memory of all ranks, any rank could do that: the sources and their
// order are the same. So a blocked rank takes pieces of its own chunk before the messages that
// announce them, and pieces of chunks whose owners are late. Messages, their order and their checks
// stay with the owner, who finds the arithmetic done. The only condition is that all ranks have
// entered the call: nobody but the chunk's reducer reads or writes its places in between. `verify`
// proves that for direct delivery.
//
// The pieces of a chunk are dealt to the pairs of its owner and one other rank: piece r belongs to
// link r mod links. So two ranks agree by one word between them. The owner takes a pair's pieces
// from the first one on, the other rank from the last one back.
#pragma once

#include "lib/plan/step.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace gyre::exec {

// The step of a lane that any rank could do for any other; none where `step` is null.
struct StealableStep {
  const plan::Step* step = nullptr;
  std::vector<std::uint32_t> chunks;  // that the peer of each link reduces

  static StealableStep of(const plan::Lane& lane);
};

// What two ranks have taken of the pieces of one chunk, in one call: the owner from the front, the
// other rank from the back.
struct TakenPieces {
  static constexpr std::uint32_t most = (1U << 20) - 1;  // of a pair

  // The owner's.
  static void begin(std::atomic<std::uint64_t>& word, std::uint64_t sequence);
  // Piece number `place` of `count`; false if the other rank has it.
  static bool take_front(std::atomic<std::uint64_t>& word, std::uint64_t sequence,
                         std::uint32_t place, std::uint32_t count);
  // The other rank's next one; none if none is left.
  static std::optional<std::uint32_t> last_left(const std::atomic<std::uint64_t>& word,
                                                std::uint64_t sequence, std::uint32_t count);
  // False if the owner has it, or takes another one at this very time.
  static bool take_back(std::atomic<std::uint64_t>& word, std::uint64_t sequence,
                        std::uint32_t place, std::uint32_t count);
};

// How many of them the other rank has reduced, from the last one back.
struct DonePieces {
  static std::uint64_t word(std::uint64_t sequence, std::uint32_t count);
  static bool holds_count(std::uint64_t word, std::uint64_t sequence, std::uint32_t count);
};

// Where a lane stands with its shared step.
struct StealState {
  // The piece of the move at hand: not looked at; this rank's to reduce; reduced already.
  enum class OwnPiece : std::uint8_t { open, taken, done };

  // Where the peers' buffers of this call lie: known once all have entered it. Looked up while a
  // piece of the own chunk is left, as no peer leaves the call before it has that: what it lends
  // for the next one would be read otherwise.
  struct PeerBuffers {
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
  };
  enum class PeerReach : std::uint8_t { unknown, all, not_all };

  OwnPiece own = OwnPiece::open;
  PeerReach reach = PeerReach::unknown;
  std::vector<PeerBuffers> places;    // by link
  std::uint64_t own_left = 0;         // rounds of the own chunk that have not been sent
  std::uint64_t ahead = 0;            // the first round of the own chunk that is not settled
  std::vector<std::uint32_t> fronts;  // by link: pieces of the own chunk that this rank took
  std::vector<bool> none_left;        // by link: of the peer's chunk

  void begin(const StealableStep& shared);
};

}  // namespace gyre::exec
