#include "lib/exec/work_stealing.h"

#include "lib/plan/cursor.h"

namespace gyre::exec {
namespace {

// A word of a fifo: the call's sequence above, a count or two below.
constexpr int taken_bits = 20;
constexpr int done_bits = 24;

constexpr std::uint64_t taken_word(std::uint64_t sequence, std::uint32_t front,
                                   std::uint32_t back) {
  return sequence << 2 * taken_bits | std::uint64_t{front} << taken_bits | back;
}

constexpr std::uint32_t low(std::uint64_t word, int bits) {
  return static_cast<std::uint32_t>(word & ((1ULL << bits) - 1));
}

bool reduces_all_for_all(const plan::Lane& lane, const plan::Step& step) {
  return step.recv_count == lane.link_count && step.send_count == lane.link_count &&
         step.local == plan::Buffer::input && step.store == plan::Buffer::output &&
         step.finishes() && !step.paired() && step.chunks.repeat == 1 && step.chunks.span == 1 &&
         plan::delivery(step) == plan::Delivery::push;
}

}  // namespace

StealableStep StealableStep::of(const plan::Lane& lane) {
  StealableStep shared;
  if (!lane.leads_to_all || lane.link_count == 0) return shared;
  constexpr std::uint32_t nowhere = plan::max_chunks;
  std::vector<std::uint32_t> chunks(lane.link_count, nowhere);
  for (std::uint32_t i = 0; i < lane.step_count; ++i) {
    const plan::Step& step = lane.steps[i];
    if (reduces_all_for_all(lane, step)) shared.step = &step;
    if (step.receives() || step.send_count != 1 || step.local != plan::Buffer::input ||
        step.chunks.span != 1 || plan::delivery(step) != plan::Delivery::pull)
      continue;
    std::uint32_t link = step.send_first, place = step.chunks.first;
    for (std::uint32_t repeat = 0; repeat < step.chunks.repeat; ++repeat) {
      chunks[link] = step.chunks.base + place;
      link = plan::turned(link, step.send_stride, lane.link_count);
      place = plan::turned(place, step.chunks.stride, step.chunks.wrap);
    }
  }
  for (const std::uint32_t chunk : chunks)
    if (chunk == nowhere) return {};
  shared.chunks = std::move(chunks);
  return shared.step != nullptr ? shared : StealableStep{};
}

void StealState::begin(const StealableStep& shared) {
  own = OwnPiece::open;
  reach = PeerReach::unknown;
  own_left = 0;
  ahead = 0;
  fronts.assign(shared.chunks.size(), 0);
  none_left.assign(shared.chunks.size(), false);
}

// Before the owner enters the call, so that whoever sees that it has finds the word begun. Who is
// still in an earlier call has nothing left to take there, and nothing of this one.
void TakenPieces::begin(std::atomic<std::uint64_t>& word, std::uint64_t sequence) {
  // Pairs, by the grant that follows, with the acquire in is_open.
  word.store(taken_word(sequence, 0, 0), std::memory_order_relaxed);
}

// The bytes are told of by the messages and by pieces_done; these settle only who acts.
bool TakenPieces::take_front(std::atomic<std::uint64_t>& word, std::uint64_t sequence,
                             std::uint32_t place, std::uint32_t count) {
  std::uint64_t seen = word.load(std::memory_order_relaxed);
  // Nobody else writes the front: only the back may change meanwhile.
  while (place + low(seen, taken_bits) < count)
    if (word.compare_exchange_weak(seen, taken_word(sequence, place + 1, low(seen, taken_bits)),
                                   std::memory_order_relaxed))
      return true;
  return false;
}

// The back is the other rank's alone to write: what it found is still there when it takes it.
std::optional<std::uint32_t> TakenPieces::last_left(const std::atomic<std::uint64_t>& word,
                                                    std::uint64_t sequence, std::uint32_t count) {
  const std::uint64_t seen = word.load(std::memory_order_relaxed);
  const std::uint32_t front = low(seen >> taken_bits, taken_bits), back = low(seen, taken_bits);
  const bool is_of_this_call = taken_word(sequence, front, back) == seen;
  if (!is_of_this_call || front + back >= count) return std::nullopt;
  return count - 1 - back;
}

bool TakenPieces::take_back(std::atomic<std::uint64_t>& word, std::uint64_t sequence,
                            std::uint32_t place, std::uint32_t count) {
  std::uint64_t seen = word.load(std::memory_order_relaxed);
  const std::uint32_t front = low(seen >> taken_bits, taken_bits), back = low(seen, taken_bits);
  return taken_word(sequence, front, back) == seen && back == count - 1 - place && front <= place &&
         word.compare_exchange_strong(seen, seen + 1, std::memory_order_relaxed);
}

std::uint64_t DonePieces::word(std::uint64_t sequence, std::uint32_t count) {
  return sequence << done_bits | count;
}

bool DonePieces::holds_count(std::uint64_t word, std::uint64_t sequence, std::uint32_t count) {
  return word >> done_bits == DonePieces::word(sequence, 0) >> done_bits &&
         low(word, done_bits) >= count;
}

}  // namespace gyre::exec
