// The part of a Launch that moves pieces: it finds a piece's sources and targets, and does the
// move.
#include "lib/exec/launch.h"

#include <algorithm>

namespace gyre::exec {

using transport::DeliveryMode;

// One chunk's part of a move. Compilers make one function of it: it is taken for each message.
class Launch::PieceAct {
 public:
  PieceAct(const Launch& launch, LaneRun& run, const plan::Piece& piece)
      : launch_(launch),
        call_(*launch.call_),
        run_(run),
        move_(run.move),
        step_(*run.move.step),
        piece_(piece) {
    act_.sources = run.sources.data();
    act_.targets = run.targets.data();
    if (step_.finishes()) act_.divisor = call_.divisor;
  }

  // In rank order, the own one at its sorted place.
  [[gnu::always_inline]] void gather_sources() {
    const std::uint32_t own_place =
        step_.local == plan::Buffer::none ? ~0U : move_.recv.below(run_.ends->lane.own_place);
    for (std::uint32_t i = 0; i <= move_.recv.count; ++i) {
      if (i == own_place) add_source(own_source());
      if (i < move_.recv.count) add_source(arrived(run_.incoming[i]));
    }
  }

  // What peers get, then what stays here.
  [[gnu::always_inline]] void gather_targets() {
    for (std::uint32_t i = 0; i < move_.send.count; ++i) {
      const Outgoing& outgoing = run_.outgoing[i];
      if (outgoing.base == nullptr) continue;
      if (outgoing.delivery == DeliveryMode::push && !outgoing.by_wire)
        add_output(outgoing.base + launch_.lent_place(run_, piece_, false));
      else
        add_sent(outgoing.base + piece_.message_offset);
    }
    if (step_.store == plan::Buffer::output) {
      std::byte* const place = call_.output + piece_.store_offset;
      if (changes() || place != run_.sources[0]) add_output(place);
    } else if (step_.store == plan::Buffer::scratch) {
      add_target(call_.scratch + piece_.store_offset);
    }
  }

  void carry_out() {
    if (act_.target_count == 0) return;
    if (!changes()) {
      act_.count = piece_.bytes;
      return kernels::copy_move(act_);
    }
    act_.count = piece_.bytes / launch_.element_bytes_;
    act_.pre_scalar = call_.pre_scalar;
    launch_.reduce_(act_);
  }

 private:
  // Whether values change on the way; else bits are copied.
  bool changes() const {
    return act_.source_count != 1 || act_.pre_source >= 0 || act_.divisor != 1;
  }

  void add_source(const std::byte* place) { run_.sources[act_.source_count++] = place; }

  const std::byte* own_source() {
    const std::byte* base = step_.local == plan::Buffer::input    ? call_.input
                            : step_.local == plan::Buffer::output ? call_.output
                                                                  : call_.scratch;
    const std::byte* own = base + piece_.local_offset;
    if (step_.local != plan::Buffer::input || call_.pre_scalar == nullptr) return own;
    if (move_.recv.count > 0 && is_float(call_.type) && launch_.element_bytes_ < 4)
      return launch_.rounded_product(run_, own, piece_.bytes);
    act_.pre_source = static_cast<std::int32_t>(act_.source_count);
    return own;
  }

  // Where this chunk's part of what came in lies.
  const std::byte* arrived(const Incoming& incoming) const {
    if (incoming.base == nullptr) return call_.output + piece_.store_offset;
    if (!incoming.in_input_layout) return incoming.base + piece_.message_offset;
    return incoming.base + launch_.lent_place(run_, piece_, true);
  }

  void add_target(std::byte* place) { run_.targets[act_.target_count++] = place; }

  void add_sent(std::byte* place) {
    if (run_.streams) act_.streamed |= 1U << act_.target_count;
    add_target(place);
  }

  // What is read here, too, is in the cache: past it, a store would be the slower one.
  void add_output(std::byte* place) {
    const void* const* const first = run_.sources.data();
    const void* const* const end = first + act_.source_count;
    if (call_.streamed && act_.target_count < 32 && std::find(first, end, place) == end)
      act_.streamed |= 1U << act_.target_count;
    add_target(place);
  }

  const Launch& launch_;
  const Call& call_;
  LaneRun& run_;
  const plan::Move& move_;
  const plan::Step& step_;
  const plan::Piece& piece_;
  kernels::MoveOperands act_;
};

void Launch::move_message(LaneRun& run) {
  if (call_->pace == nullptr) return write_message(run);
  call_->pace->time(run.move.bytes, [&] { write_message(run); });
}

// Its slot is written at the link's pace, if it is one message in a slot.
void Launch::write_message(LaneRun& run) {
  const auto move = [&](bool streamed) {
    run.streams = streamed;
    move_pieces(run);
  };
  if (run.move.send.count != 1) return move(false);
  const Outgoing& outgoing = run.outgoing[0];
  const bool is_in_slot = outgoing.base != nullptr && outgoing.delivery == DeliveryMode::staged;
  if (!is_in_slot) return move(false);
  write_paced(*run.ends->send[run.move.send[0]], run.move.bytes, move);
}

// Flat: the walk is shared by code that compilers see here, too, and would be called for each
// piece.
[[gnu::flatten]] void Launch::move_pieces(LaneRun& run) {
  plan::PieceWalk walk(run.move);
  for (plan::Piece piece; walk.next(piece);) {
    PieceAct act(*this, run, piece);
    act.gather_sources();
    act.gather_targets();
    act.carry_out();
  }
}

// A peer gets this rank's product rounded to the type; kept wider here, ranks would differ in bits.
[[gnu::noinline]] const std::byte* Launch::rounded_product(LaneRun& run, const std::byte* own,
                                                           std::uint64_t bytes) const {
  if (run.product.size() < bytes) run.product.resize(bytes);
  const void* source = own;
  void* target = run.product.data();
  kernels::MoveOperands act;
  act.sources = &source;
  act.source_count = 1;
  act.targets = &target;
  act.target_count = 1;
  act.count = bytes / element_bytes_;
  act.pre_source = 0;
  act.pre_scalar = call_->pre_scalar;
  reduce_(act);
  return run.product.data();
}

}  // namespace gyre::exec
