// The part of a Launch that reduces pieces out of turn, and agrees with peers which rank does which
// piece.
#include "lib/exec/launch.h"

namespace gyre::exec {
namespace {

// Which piece a round is of the pair's, and how many that has.
struct Deal {
  std::uint32_t links;

  std::uint32_t link(std::uint64_t round) const {
    return static_cast<std::uint32_t>(round % links);
  }
  std::uint32_t place(std::uint64_t round) const {
    return static_cast<std::uint32_t>(round / links);
  }
  std::uint64_t round(std::uint32_t link, std::uint32_t place) const {
    return std::uint64_t{place} * links + link;
  }
  std::uint64_t count(std::uint32_t link, std::uint64_t rounds) const {
    return rounds > link ? (rounds - link + links - 1) / links : 0;
  }
};

std::uint64_t rounds_of(const plan::Geometry& geometry, std::uint32_t chunk) {
  return (geometry.input.bytes(chunk) + geometry.piece_bytes - 1) / geometry.piece_bytes;
}

}  // namespace

void Launch::begin_stealing(LaneRun& run) const {
  const StealableStep& shared = run.ends->shared;
  run.stealing.begin(shared);
  if (shared.step != nullptr)
    run.stealing.own_left =
        rounds_of(call_->geometry, shared.step->chunks.base + shared.step->chunks.first);
  for (std::size_t link = 0; link < run.stealing.fronts.size(); ++link)
    TakenPieces::begin(run.ends->send[link]->slots.view().control->pieces_taken.value,
                       call_->sequence);
}

// Lent for this very call.
bool Launch::is_open(const transport::Grant& grant) const {
  // Pairs with the release in lend.
  return grant.sequence.load(std::memory_order_acquire) == call_->sequence + 1;
}

bool Launch::all_have_entered(const LaneRun& run) const {
  for (std::uint32_t link = 0; link < run.ends->lane.link_count; ++link)
    if (!is_open(run.ends->recv[link]->slots.view().control->sender_grant) ||
        !is_open(run.ends->send[link]->slots.view().control->receiver_grant))
      return false;
  return true;
}

// Once all have entered, and while a piece of the own chunk is left. A pre-op changes what peers
// may not see, so nothing is shared then.
void Launch::look_up_places(LaneRun& run) const {
  StealState& stealing = run.stealing;
  stealing.reach = StealState::PeerReach::not_all;
  if (!lends_ || call_->pre_scalar != nullptr) return;
  const std::uint32_t links = run.ends->lane.link_count;
  stealing.places.resize(links);
  for (std::uint32_t link = 0; link < links; ++link) {
    ReceivePort& from = *run.ends->recv[link];
    SendPort& to = *run.ends->send[link];
    const transport::Loan input = from.slots.view().control->sender_grant.read();
    const transport::Loan output = to.slots.view().control->receiver_grant.read();
    const bool is_same_call =
        input.signature == call_->signature && output.signature == call_->signature;
    if (!is_same_call || !holds_all(plan::Buffer::input, input.bytes) ||
        !holds_all(plan::Buffer::output, output.bytes))
      return;
    // What this process lacks to map it is for the messages to tell.
    const auto read = borrowed(input, from.same_address_space, from.peer_memory);
    const auto written = borrowed(output, to.same_address_space, to.peer_memory);
    if (!read.ok() || !written.ok() || *read == nullptr || *written == nullptr) return;
    stealing.places[link] = {*read, *written};
  }
  stealing.reach = StealState::PeerReach::all;
}

// Whether a buffer of so many bytes has room for all chunks.
bool Launch::holds_all(plan::Buffer buffer, std::uint64_t bytes) const {
  const plan::Geometry& geometry = call_->geometry;
  for (std::uint32_t chunk = 0; chunk < geometry.chunk_count; ++chunk) {
    const std::uint64_t begin = geometry.place(buffer, chunk, 0);
    const std::uint64_t length = geometry.bytes(buffer, chunk);
    if (length > 0 && (begin > bytes || length > bytes - begin)) return false;
  }
  return true;
}

bool Launch::reaches_all(LaneRun& run) const {
  if (run.stealing.reach == StealState::PeerReach::unknown && run.stealing.own_left > 0 &&
      all_have_entered(run))
    look_up_places(run);
  return run.stealing.reach == StealState::PeerReach::all;
}

// Before this rank reduces a piece of its own chunk in its turn: whether it still has to.
bool Launch::own_piece_is_settled(LaneRun& run) {
  const StealableStep& shared = run.ends->shared;
  StealState& stealing = run.stealing;
  if (call_->protocol != Protocol::direct || run.move.step != shared.step) return true;
  if (stealing.own != StealState::OwnPiece::open) return true;
  (void)reaches_all(run);  // for when this rank has nothing left to do
  const Deal deal{run.ends->lane.link_count};
  const std::uint32_t link = deal.link(run.move.round), place = deal.place(run.move.round);
  const std::uint64_t count = deal.count(link, rounds_of(call_->geometry, run.move.place));
  if (place < stealing.fronts[link]) {
    stealing.own = StealState::OwnPiece::done;
    return true;
  }
  if (count > TakenPieces::most) return true;
  const auto pieces = static_cast<std::uint32_t>(count);
  auto& word = run.ends->send[link]->slots.view().control->pieces_taken.value;
  if (TakenPieces::take_front(word, call_->sequence, place, pieces)) {
    stealing.fronts[link] = place + 1;
    stealing.own = StealState::OwnPiece::taken;
    return true;
  }
  // Pairs with the release in help.
  const std::uint64_t done =
      run.ends->send[link]->slots.view().control->pieces_done.value.load(std::memory_order_acquire);
  if (DonePieces::holds_count(done, call_->sequence, pieces - place)) {
    stealing.own = StealState::OwnPiece::done;
    return true;
  }
  block(run, BlockedOn::data, nullptr, run.ends->recv[link]);
  return false;
}

void Launch::own_piece_is_sent(LaneRun& run) {
  run.stealing.own = StealState::OwnPiece::open;
  if (run.stealing.own_left > 0) --run.stealing.own_left;
}

// When no lane can go on: one piece out of turn, if there is one to be had.
bool Launch::share() {
  if (call_->protocol != Protocol::direct) return false;
  for (std::size_t i = 0; i < bound_->lanes.size(); ++i) {
    LaneRun& run = lanes_[i];
    if (run.cursor.done() || run.ends->shared.step == nullptr || !reaches_all(run)) continue;
    if (go_ahead(run)) return true;
    // Each begins with another one's.
    const std::uint32_t links = run.ends->lane.link_count;
    for (std::uint32_t k = 0; k < links; ++k)
      if (help(run, (run.ends->lane.own_place + k) % links)) return true;
  }
  return false;
}

// Of the own chunk, ahead of the messages that it is waiting for.
bool Launch::go_ahead(LaneRun& run) {
  StealState& stealing = run.stealing;
  const Deal deal{run.ends->lane.link_count};
  const plan::Chunks& own = run.ends->shared.step->chunks;
  const std::uint32_t chunk = own.base + own.first;
  const std::uint64_t rounds = rounds_of(call_->geometry, chunk);
  for (; stealing.ahead < rounds; ++stealing.ahead) {
    const std::uint32_t link = deal.link(stealing.ahead), place = deal.place(stealing.ahead);
    const std::uint64_t count = deal.count(link, rounds);
    if (count > TakenPieces::most) return false;
    if (place != stealing.fronts[link]) continue;  // reduced, or among what the peer took
    const GiveBackGuard at_the_end(aside_);
    if (!open_aside(run, chunk, stealing.ahead)) return false;
    auto& word = run.ends->send[link]->slots.view().control->pieces_taken.value;
    const auto pieces = static_cast<std::uint32_t>(count);
    if (!TakenPieces::take_front(word, call_->sequence, place, pieces)) continue;
    move_pieces(aside_);
    if (!was_lent(aside_)) return false;
    stealing.fronts[link] = place + 1;
    ++stealing.ahead;
    return true;
  }
  return false;
}

// A piece of the chunk that the peer of a link is to reduce.
bool Launch::help(LaneRun& run, std::uint32_t link) {
  if (run.stealing.none_left[link]) return false;
  const plan::Lane& lane = run.ends->lane;
  const Deal deal{lane.link_count};
  const std::uint32_t chunk = run.ends->shared.chunks[link];
  // The number of our link among the peer's: its links leave out the peer, as ours leave out us.
  const std::uint32_t ours = link < lane.own_place ? lane.own_place - 1 : lane.own_place;
  const std::uint64_t count = deal.count(ours, rounds_of(call_->geometry, chunk));
  if (count > TakenPieces::most) return false;
  transport::FifoControl& control = *run.ends->recv[link]->slots.view().control;
  const auto pieces = static_cast<std::uint32_t>(count);
  const auto place = TakenPieces::last_left(control.pieces_taken.value, call_->sequence, pieces);
  run.stealing.none_left[link] = !place;
  if (!place) return false;
  const GiveBackGuard at_the_end(aside_);
  // Taken once it is open: who has taken a piece must not fail to reduce it.
  if (!open_aside(run, chunk, deal.round(ours, *place))) return false;
  if (!TakenPieces::take_back(control.pieces_taken.value, call_->sequence, *place, pieces))
    return false;
  move_pieces(aside_);
  if (!was_lent(aside_)) return false;
  // Pairs with the acquire in own_piece_is_settled.
  control.pieces_done.value.store(DonePieces::word(call_->sequence, pieces - *place),
                                  std::memory_order_release);
  transport::ring_if_sleeping(run.ends->send[link]->slots.view().control->receiver_bell);
  return true;
}

// A piece of a chunk; borrows what all ranks lend for it. False if one of them has taken it back,
// or has left the call, as nothing is left to do.
bool Launch::open_aside(const LaneRun& run, std::uint32_t chunk, std::uint64_t round) {
  const std::uint32_t links = run.ends->lane.link_count;
  aside_step_ = *run.ends->shared.step;
  aside_step_.chunks = {0, chunk, 0, 1, 1, call_->geometry.chunk_count};
  aside_.ends = run.ends;
  aside_.move = {};
  aside_.move.step = &aside_step_;
  aside_.move.geometry = &call_->geometry;
  aside_.move.place = chunk;
  aside_.move.round = round;
  aside_.move.round_offset = round * call_->geometry.piece_bytes;
  aside_.incoming.assign(links, {});
  aside_.outgoing.assign(links, {});
  aside_.sources.resize(links + 1);
  aside_.targets.resize(links + 1);
  aside_.move.recv = aside_.move.send = {0, links, 0};  // last: these are given back
  for (std::uint32_t link = 0; link < links; ++link) {
    const StealState::PeerBuffers& place = run.stealing.places[link];
    transport::FifoControl& theirs = *run.ends->recv[link]->slots.view().control;
    transport::FifoControl& ours = *run.ends->send[link]->slots.view().control;
    aside_.incoming[link] = {.base = place.input,
                             .in_input_layout = true,
                             .mark = &theirs.receiver_borrows.value,
                             .grant = &theirs.sender_grant};
    aside_.outgoing[link] = {.base = place.output,
                             .delivery = transport::DeliveryMode::push,
                             .mark = &ours.sender_borrows.value};
    if (!borrow(theirs.sender_grant, theirs.receiver_borrows.value) ||
        !borrow(ours.receiver_grant, ours.sender_borrows.value))
      return false;
  }
  return true;
}

}  // namespace gyre::exec
