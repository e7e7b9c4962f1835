#include "lib/exec/short_run.h"

#include <algorithm>

namespace gyre::exec {
using transport::copy_within_line;
using transport::MessageState;

// ------------------------------------------------------------------------------ the list of acts

void ShortRun::bind(const BoundPlan& bound, const Call& call) {
  geometry_ = call.geometry;
  base_ = {};
  base_[static_cast<std::size_t>(plan::Buffer::scratch)] = call.scratch;
  type_ = call.type;
  element_bytes_ = element_bytes(call.type);
  divisor_ = call.divisor;
  set_signature(call.signature);
  reduce_ = kernels::find_move(call.type, call.op);
  reduce_pair_ = call.op == ReduceOp::pre_mul_sum || call.divisor != 1
                     ? nullptr
                     : kernels::find_pair(call.type, call.op);
  reduce_word_ = reduce_pair_ == nullptr ? nullptr : kernels::find_word(call.type, call.op);
  by_slots_ = call.protocol != Protocol::line;
  multiplies_ = call.op == ReduceOp::pre_mul_sum;
  rank_ = bound.rank;
  find_wires(bound);
  lane_count_ = bound.lanes.size();
  if (lanes_.size() < lane_count_) lanes_.resize(lane_count_);
  is_whole_ = true;
  const std::uint64_t rounds = plan::rounds(geometry_);
  for (std::size_t i = 0; i < lane_count_; ++i) {
    ShortLane& lane = lanes_[i];
    lane.ends = &bound.lanes[i];
    lane.cursor = plan::Cursor(lane.ends->lane, geometry_, rounds);
    fill(lane);
    is_whole_ &= lane.cursor.done();
  }
  if (is_whole_ && lane_count_ == 1) {
    find_copies(lanes_[0]);
    send_early(lanes_[0]);
  }
  for (std::size_t i = 0; i < lane_count_; ++i) find_short(lanes_[i]);
  const bool is_plain =
      is_whole_ && lane_count_ == 1 && std::ranges::all_of(lanes_[0].acts, [](const ShortAct& act) {
        return act.kind != ShortKind::none && act.kind != ShortKind::relays;
      });
  plain_first_ = is_plain ? lanes_[0].first : nullptr;
  plain_end_ = is_plain ? lanes_[0].end : nullptr;
}

void ShortRun::find_wires(const BoundPlan& bound) {
  wires_in_.clear();
  wires_out_.clear();
  for (const ReceivePort* port : bound.receive_ports)
    if (port->connection->needs_progress()) wires_in_.push_back(port->connection.get());
  for (const SendPort* port : bound.send_ports)
    if (port->connection->needs_progress()) wires_out_.push_back(port->connection.get());
}

void ShortRun::begin_lists() {
  for (std::size_t i = 0; i < lane_count_; ++i) {
    ShortLane& lane = lanes_[i];
    lane.cursor = plan::Cursor(lane.ends->lane, geometry_, plan::rounds(geometry_));
    fill(lane);
    find_short(lane);
  }
}

void ShortRun::fill(ShortLane& lane) {
  lane.acts.clear();
  lane.parts.clear();
  lane.send.clear();
  lane.receive.clear();
  for (; !lane.cursor.done() && lane.acts.size() < max_acts; lane.cursor.advance())
    add_act(lane, lane.cursor.move());
}

void ShortRun::add_act(ShortLane& lane, const plan::Move& move) {
  const plan::Step& step = *move.step;
  ShortAct act;
  act.bytes = static_cast<std::uint32_t>(move.bytes);
  act.lines = transport::lines_for(move.bytes);
  act.receive_first = static_cast<std::uint32_t>(lane.receive.size());
  act.receive_count = move.recv.count;
  act.send_first = static_cast<std::uint32_t>(lane.send.size());
  act.send_count = move.send.count;
  act.part_first = static_cast<std::uint32_t>(lane.parts.size());
  act.first_chunk = step.chunks.base + move.place;
  act.local = step.local;
  act.store = step.store;
  act.finishes = step.finishes();
  if (step.local != plan::Buffer::none) act.own_place = move.recv.below(lane.ends->lane.own_place);
  for (std::uint32_t i = 0; i < move.recv.count; ++i)
    lane.receive.push_back(lane.ends->recv[move.recv[i]]);
  for (std::uint32_t i = 0; i < move.send.count; ++i)
    lane.send.push_back(lane.ends->send[move.send[i]]);
  plan::PieceWalk walk(move);
  for (plan::Piece piece; walk.next(piece); ++act.part_count)
    lane.parts.push_back({piece.chunk, static_cast<std::uint32_t>(piece.bytes),
                          piece.message_offset, piece.local_offset, piece.store_offset});
  const std::uint32_t sources = act.receive_count + (act.own_place != no_operand ? 1 : 0);
  lane.acts.push_back(act);
  if (!by_slots_ && staging_.size() < act.bytes) staging_.resize(act.bytes);
  if (!by_slots_ && act.lines > 1 && operands_.size() < std::size_t{act.receive_count} * act.bytes)
    operands_.resize(std::size_t{act.receive_count} * act.bytes);
  if (arrived_.size() < act.receive_count) arrived_.resize(act.receive_count);
  if (sources_.size() < sources) sources_.resize(sources);
  if (targets_.size() < act.send_count + 1U) targets_.resize(act.send_count + 1U);
  if (multiplies_ && product_.size() < act.bytes) product_.resize(act.bytes);
}

bool ShortRun::is_short(const ShortAct& act) const {
  const bool has_own = act.own_place != no_operand;
  const bool is_changed = multiplies_ || (act.finishes && divisor_ != 1);
  if (by_slots_ || act.part_count != 1 || act.receive_count > 1 || act.send_count > 1 ||
      is_changed || (!has_own && act.receive_count == 0))
    return false;
  if (act.lines > 1 && act.receive_count + act.send_count > 1) return false;
  if (!has_own || act.receive_count == 0) return true;
  return act.lines == 1 && reduce_pair_ != nullptr && act.elements <= kernels::max_pair_elements;
}

// Once the list is as it stays.
void ShortRun::find_short(ShortLane& lane) const {
  for (ShortAct& act : lane.acts) {
    act.elements = act.bytes / element_bytes_;
    if (!is_short(act)) continue;
    const bool has_own = act.own_place != no_operand;
    if (has_own && act.receive_count == 1)
      act.operands =
          act.own_place == 0 ? OperandOrder::own_and_arrived : OperandOrder::arrived_and_own;
    else
      act.operands = has_own ? OperandOrder::own : OperandOrder::arrived;
    act.take = act.receive_count == 1 ? &lane.receive[act.receive_first]->lines : nullptr;
    act.give = act.send_count == 1 ? &lane.send[act.send_first]->lines : nullptr;
    act.own_offset = lane.parts[act.part_first].local_offset;
    act.store_offset = lane.parts[act.part_first].store_offset;
    act.kind = kind_of(act);
  }
  lane.at = lane.first = lane.acts.data();
  lane.end = lane.first + lane.acts.size();
}

ShortRun::ShortKind ShortRun::kind_of(const ShortAct& act) {
  if (act.give != nullptr && act.take != nullptr) return ShortKind::relays;
  if (act.give != nullptr) return act.lines == 1 ? ShortKind::tells : ShortKind::tells_lines;
  if (act.operands == OperandOrder::own) return ShortKind::keeps;
  if (act.operands == OperandOrder::arrived)
    return act.lines == 1 ? ShortKind::takes : ShortKind::takes_lines;
  return act.bytes == sizeof(std::uint64_t) ? ShortKind::adds_word : ShortKind::adds;
}

// A rank may meet itself: what it sends and takes is then a copy.
void ShortRun::find_copies(ShortLane& lane) const {
  const auto is_own = [&](const auto* port) { return rank_ >= 0 && port->peer == rank_; };
  for (std::size_t i = 0; i < lane.acts.size(); ++i) {
    const ShortAct sent = lane.acts[i];
    if (sent.send_count != 1 || sent.receive_count != 0 || sent.part_count != 1 ||
        sent.store != plan::Buffer::none || multiplies_ || !is_own(lane.send[sent.send_first]))
      continue;
    const auto taken = std::find_if(lane.acts.begin() + static_cast<std::ptrdiff_t>(i),
                                    lane.acts.end(), [&](const ShortAct& one) {
                                      return one.receive_count == 1 && one.send_count == 0 &&
                                             one.local == plan::Buffer::none &&
                                             one.part_count == 1 && one.bytes == sent.bytes &&
                                             is_own(lane.receive[one.receive_first]);
                                    });
    if (taken == lane.acts.end()) continue;
    taken->local = sent.local;
    taken->own_place = 0;
    taken->receive_count = 0;
    lane.parts[taken->part_first].local_offset = lane.parts[sent.part_first].local_offset;
    lane.acts.erase(lane.acts.begin() + static_cast<std::ptrdiff_t>(i--));
  }
}

// Whether a message of the caller's input may leave before an act, as that neither changes what it
// says (in place, a chunk of the output may lie there) nor sends on its link.
bool ShortRun::may_swap(const ShortLane& lane, const ShortAct& before, const ShortAct& send) {
  if (before.send_count > 0 && before.receive_count == 0) return false;
  for (std::uint32_t i = 0; i < before.send_count; ++i)
    for (std::uint32_t k = 0; k < send.send_count; ++k)
      if (lane.send[before.send_first + i] == lane.send[send.send_first + k]) return false;
  if (before.store == plan::Buffer::none) return true;
  for (std::uint32_t i = 0; i < before.part_count; ++i)
    for (std::uint32_t k = 0; k < send.part_count; ++k)
      if (lane.parts[before.part_first + i].chunk == lane.parts[send.part_first + k].chunk)
        return false;
  return true;
}

// The lines, or else the slots, that a call takes of a link.
std::uint64_t ShortRun::room_taken(const ShortLane& lane, const SendPort& port) const {
  std::uint64_t room = 0;
  for (const ShortAct& act : lane.acts)
    for (std::uint32_t i = 0; i < act.send_count; ++i)
      if (lane.send[act.send_first + i] == &port) room += by_slots_ ? 1 : act.lines;
  return room;
}

// What a rank has from the beginning it tells all peers before it waits for any. Never more on a
// link than half of its lines, or than its slots: then no message of this call waits for room that
// only this call makes. (Half, since lines are released in quarters.)
void ShortRun::send_early(ShortLane& lane) const {
  for (const SendPort* port : lane.send) {
    const transport::FifoShape& shape = port->slots.view().shape;
    if (room_taken(lane, *port) > (by_slots_ ? shape.slot_count : shape.line_count / 2)) return;
  }
  for (std::size_t i = 1; i < lane.acts.size(); ++i) {
    const ShortAct& act = lane.acts[i];
    if (act.receive_count > 0 || act.send_count == 0 || act.local != plan::Buffer::input ||
        act.store != plan::Buffer::none)
      continue;
    for (std::size_t k = i; k > 0 && may_swap(lane, lane.acts[k - 1], lane.acts[k]); --k)
      std::swap(lane.acts[k - 1], lane.acts[k]);
  }
}

// ------------------------------------------------------------------------------ one call

ShortRun::State ShortRun::advance() {
  bool moved = false;
  for (std::size_t i = 0; i < lane_count_; ++i)
    if (!lanes_[i].is_done) moved |= run_lane(lanes_[i]);
  if (lanes_done_ == lane_count_) return State::done;
  if (stranger_ >= 0) [[unlikely]]
    return State::other_call;
  return moved ? State::moved : State::blocked;
}

[[gnu::always_inline]] inline bool ShortRun::run_lane(ShortLane& lane) {
  const ShortAct* const begin = lane.at;
  const ShortAct* act = begin;
  bool refilled = false;
  while (true) {
    if (act == lane.end) {
      if (end_list(lane)) return true;
      act = lane.at;
      refilled = true;
    }
    if (act->kind != ShortKind::none) [[likely]] {
      if (!carry_out_short(*act)) [[unlikely]] {
        if (!is_ready(lane, *act)) break;
        continue;
      }
    } else {
      if (!is_ready(lane, *act)) break;
      carry_out(lane, *act);
    }
    ++act;
  }
  lane.at = act;
  return refilled || act != begin;
}

ShortRun::State ShortRun::take_turn() {
  for (transport::Connection* wire : wires_in_)
    if (!wire->progress().ok()) return State::failed;
  return ship(advance());
}

// What the lanes leave to be sent.
ShortRun::State ShortRun::ship(State state) {
  for (transport::Connection* wire : wires_out_) {
    if (!wire->progress().ok()) return State::failed;
    if (state == State::done && !wire->flushed()) state = State::blocked;
  }
  return state;
}

// A call's first message is on its way before anything is asked of the kernel.
bool ShortRun::begin_and_take_turn(const std::byte* input, std::byte* output) {
  begin(input, output, nullptr);
  return ship(advance()) == State::done;
}

// Of a call that has come to a plain act, which has to wait. False: it is not done.
bool ShortRun::begin_at(const ShortAct* act) {
  begin(base_[static_cast<std::size_t>(plan::Buffer::input)],
        base_[static_cast<std::size_t>(plan::Buffer::output)], nullptr);
  lanes_[0].at = act;
  return false;
}

// Whether all is done; else the next list is there.
bool ShortRun::end_list(ShortLane& lane) {
  lane.at = lane.end;
  if (lane.cursor.done()) {
    lane.is_done = true;
    ++lanes_done_;
    return true;
  }
  fill(lane);
  find_short(lane);
  return false;
}

// Whether the message that the act takes from a port is here.
MessageState ShortRun::look_at(ReceivePort& port, const ShortAct& act) const {
  if (!by_slots_) return port.lines.poll_lines(act.lines, signature_);
  const MessageState seen = port.slots.look(signature_);
  if (seen != MessageState::here) return seen;
  const transport::SlotHeader note = port.slots.note();
  const bool is_whole = note.bytes == act.bytes && note.delivery == transport::DeliveryMode::staged;
  return is_whole ? MessageState::here : MessageState::other_call;
}

bool ShortRun::may_send(SendPort& port, const ShortAct& act) const {
  return by_slots_ ? port.slots.has_credit() : port.lines.has_credit(act.lines);
}

bool ShortRun::is_ready(ShortLane& lane, const ShortAct& act) {
  for (std::uint32_t i = 0; i < act.receive_count; ++i) {
    ReceivePort& port = *lane.receive[act.receive_first + i];
    const MessageState seen = look_at(port, act);
    if (seen == MessageState::here) continue;
    if (seen == MessageState::other_call) stranger_ = port.peer;
    lane.awaited_send = nullptr;
    lane.awaited_receive = &port;
    return false;
  }
  for (std::uint32_t i = 0; i < act.send_count; ++i) {
    SendPort& port = *lane.send[act.send_first + i];
    if (may_send(port, act)) continue;
    lane.awaited_send = &port;
    return false;
  }
  return true;
}

[[gnu::always_inline]] inline bool ShortRun::carry_out_short(const ShortAct& act) {
  if (act.kind != ShortKind::relays) [[likely]]
    return carry_out_plain(act);
  if (!act.take->has_line(flag_signature_) || !act.give->has_credit(1)) return false;
  relay(act);
  return true;
}

// Plain acts that are not among the most frequent ones.
bool ShortRun::carry_out_rest(const ShortAct& act) const {
  if (act.lines > 1) return carry_out_lines(act);
  std::byte* const store = store_place(act);
  if (act.kind == ShortKind::keeps) {
    if (store != own_place(act)) copy_within_line(store, own_place(act), act.bytes);
    return true;
  }
  if (!act.take->has_line(flag_signature_)) return false;
  if (act.kind == ShortKind::takes)
    copy_within_line(store, act.take->place(), act.bytes);
  else
    add(act);
  act.take->release_line();
  return true;
}

// Messages of several lines, which are only copied. Sums of them are faster by vectors, from one
// place.
bool ShortRun::carry_out_lines(const ShortAct& act) const {
  if (act.take != nullptr) {
    transport::LineReader& lines = *act.take;
    if (lines.poll_lines(act.lines, signature_) != MessageState::here) return false;
    lines.read(act.bytes, store_place(act));
    lines.release_lines(act.lines);
    return true;
  }
  const std::byte* const own = own_place(act);
  if (act.give != nullptr) {
    if (!act.give->has_credit(act.lines)) return false;
    act.give->write(own, act.bytes, signature_);
  }
  if (act.store != plan::Buffer::none && store_place(act) != own)
    kernels::copy_move(own, store_place(act), act.bytes);
  return true;
}

void ShortRun::add(const ShortAct& act) const {
  const std::byte* const arrived = act.take->place();
  std::byte* const target = act.give != nullptr ? act.give->place() : store_place(act);
  if (act.operands == OperandOrder::own_and_arrived)
    reduce_pair_(own_place(act), arrived, target, act.elements);
  else
    reduce_pair_(arrived, own_place(act), target, act.elements);
}

void ShortRun::relay(const ShortAct& act) const {
  std::byte* const target = act.give->place();
  if (act.operands == OperandOrder::arrived)
    copy_within_line(target, act.take->place(), act.bytes);
  else
    add(act);
  if (act.store != plan::Buffer::none) copy_within_line(store_place(act), target, act.bytes);
  act.give->commit_line(flag_signature_);
  act.take->release_line();
}

void ShortRun::carry_out(const ShortLane& lane, const ShortAct& act) {
  for (std::uint32_t i = 0; i < act.receive_count; ++i) {
    const ReceivePort& port = *lane.receive[act.receive_first + i];
    const bool needs_room = !by_slots_ && act.lines > 1;
    std::byte* const room = needs_room ? operands_.data() + std::size_t{i} * act.bytes : nullptr;
    arrived_[i] = by_slots_ ? port.slots.place(act.bytes) : port.lines.read(act.bytes, room);
  }
  const auto reduce_parts = [&](bool streamed) {
    streams_ = streamed;
    for (std::uint32_t i = 0; i < act.part_count; ++i)
      reduce_part(lane, act, lane.parts[act.part_first + i]);
  };
  if (by_slots_ && act.send_count == 1)
    write_paced(*lane.send[act.send_first], act.bytes, reduce_parts);
  else
    reduce_parts(false);
  send_and_release(lane, act);
}

void ShortRun::send_and_release(const ShortLane& lane, const ShortAct& act) const {
  for (std::uint32_t i = 0; i < act.send_count; ++i) {
    SendPort& port = *lane.send[act.send_first + i];
    if (by_slots_)
      port.slots.commit(act.bytes, transport::message_flag(port.slots.tail() + 1, signature_),
                        transport::DeliveryMode::staged);
    else
      port.lines.write(staging_.data(), act.bytes, signature_);
  }
  for (std::uint32_t i = 0; i < act.receive_count; ++i) {
    ReceivePort& port = *lane.receive[act.receive_first + i];
    if (by_slots_)
      port.slots.release();
    else
      port.lines.release_lines(act.lines);
  }
}

// Where a part of the message that peers get is made: in each one's slot, or once for all lines.
std::uint32_t ShortRun::add_sent(const ShortLane& lane, const ShortAct& act,
                                 const ChunkPart& part) {
  if (act.send_count == 0) return 0;
  targets_[0] = staging_.data() + part.message_offset;
  if (!by_slots_) return 1;
  for (std::uint32_t i = 0; i < act.send_count; ++i)
    targets_[i] = lane.send[act.send_first + i]->slots.place(act.bytes) + part.message_offset;
  return act.send_count;
}

// Sources in rank order, the own one at its sorted place; targets: what peers get, then what stays.
void ShortRun::reduce_part(const ShortLane& lane, const ShortAct& act, const ChunkPart& part) {
  kernels::MoveOperands move;
  if (act.finishes) move.divisor = divisor_;
  for (std::uint32_t i = 0; i <= act.receive_count; ++i) {
    if (i == act.own_place) sources_[move.source_count++] = own_operand(act, part, move);
    if (i < act.receive_count) sources_[move.source_count++] = arrived_[i] + part.message_offset;
  }
  const bool changes = move.source_count != 1 || move.pre_source >= 0 || move.divisor != 1;
  move.target_count = add_sent(lane, act, part);
  move.streamed = streams_ ? 1 : 0;
  if (act.store != plan::Buffer::none) {
    std::byte* const place = base_[static_cast<std::size_t>(act.store)] + part.store_offset;
    if (changes || place != sources_[0]) targets_[move.target_count++] = place;
  }
  if (move.target_count == 0) return;
  move.sources = sources_.data();
  move.targets = targets_.data();
  move.count = changes ? part.bytes / element_bytes_ : part.bytes;
  move.pre_scalar = pre_scalar_;
  if (changes)
    reduce_(move);
  else
    kernels::copy_move(move);
}

// A peer gets this rank's product rounded to the type; kept wider here, ranks would differ in bits.
const std::byte* ShortRun::own_operand(const ShortAct& act, const ChunkPart& part,
                                       kernels::MoveOperands& move) {
  const std::byte* const own = base_[static_cast<std::size_t>(act.local)] + part.local_offset;
  if (act.local != plan::Buffer::input || pre_scalar_ == nullptr) return own;
  if (act.receive_count == 0 || !is_float(type_) || element_bytes_ >= 4) {
    move.pre_source = static_cast<std::int32_t>(move.source_count);
    return own;
  }
  const void* const source = own;
  void* const target = product_.data();
  kernels::MoveOperands product;
  product.sources = &source;
  product.source_count = 1;
  product.targets = &target;
  product.target_count = 1;
  product.count = part.bytes / element_bytes_;
  product.pre_source = 0;
  product.pre_scalar = pre_scalar_;
  reduce_(product);
  return product_.data();
}

// ------------------------------------------------------------------------------ while it waits

bool ShortRun::could_move() {
  for (std::size_t i = 0; i < lane_count_; ++i) {
    ShortLane& lane = lanes_[i];
    const bool stands = !lane.is_done && lane.at != lane.end;
    if (stands && (is_ready(lane, *lane.at) || stranger_ >= 0)) return true;
  }
  return false;
}

Blocked ShortRun::blocked() const {
  for (std::size_t i = 0; i < lane_count_; ++i) {
    const ShortLane& lane = lanes_[i];
    if (lane.is_done) continue;
    const std::uint32_t chunk = lane.at != lane.end ? lane.at->first_chunk : std::uint32_t{0};
    if (lane.awaited_send != nullptr)
      return {BlockedOn::credit, lane.awaited_send->peer, lane.awaited_send->channel, chunk};
    if (lane.awaited_receive != nullptr)
      return {BlockedOn::data, lane.awaited_receive->peer, lane.awaited_receive->channel, chunk};
  }
  return {};
}

}  // namespace gyre::exec
