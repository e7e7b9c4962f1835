// The part of a Launch that lends user buffers to peers, and finds buffers that peers lend.
#include "lib/exec/launch.h"

namespace gyre::exec {
namespace {

// Less is in slots sooner than the kernel has looked the memory up.
constexpr std::uint64_t min_copied_bytes = 16 << 10;

void drop_holds(const BoundPlan& bound) {
  for (SendPort* port : bound.send_ports) {
    port->input_hold.reset();
    port->output_hold.reset();
  }
}

}  // namespace

void Launch::lend(transport::Grant& grant, bool same_address_space, std::uint32_t reach,
                  const void* buffer, std::uint64_t bytes,
                  const transport::RegionPlace& place) const {
  transport::Loan loan{.bytes = bytes, .signature = call_->signature, .reach = reach};
  if (lends_ && buffer != nullptr && same_address_space) {
    loan.region = transport::region_same_process;
    loan.offset = reinterpret_cast<std::uintptr_t>(buffer);
  } else if (lends_ && buffer != nullptr) {
    loan.region = place.region;
    loan.offset = place.offset;
    loan.descriptor = place.descriptor;
  }
  grant.loan = loan;
  // Pairs with the acquire in may_send and open_incoming.
  grant.sequence.store(call_->sequence + 1, std::memory_order_release);
}

// What may throw comes before anything is lent.
void Launch::lend_buffers() {
  // What peers that entered before have lent may be here. An error stays, and the next look tells.
  for (SendPort* port : bound_->send_ports)
    if (port->carrier != nullptr) (void)port->connection->progress();
  for (SendPort* port : bound_->send_ports) {
    if (port->carrier != nullptr)
      hold_for(*port);
    else
      lend(port->slots.view().control->sender_grant, port->same_address_space, reach_of(*port),
           call_->input, call_->input_bytes, call_->input_place);
  }
  for (std::size_t i = 0; i < bound_->receive_ports.size(); ++i) {
    ReceivePort* const port = bound_->receive_ports[i];
    if (port->carrier != nullptr) {
      lend_by_wire(*port, bound_->stored[i]);
      continue;
    }
    transport::FifoControl& control = *port->slots.view().control;
    lend(control.receiver_grant, port->same_address_space, reach_of(*port), call_->output,
         call_->output_bytes, call_->output_place);
    transport::ring_if_sleeping(control.sender_bell);
  }
}

// Marks the peer's buffer as in use. False if the peer does not lend it for this call, or not any
// more. See FifoControl.
bool Launch::borrow(transport::Grant& grant, std::atomic<std::uint64_t>& mark) const {
  mark.store(1, std::memory_order_seq_cst);
  // Pairs with the release in lend, too.
  return grant.sequence.load(std::memory_order_seq_cst) == call_->sequence + 1;
}

// After a move, before anybody is told of it: whether what it read was lent all the while. Its
// owner may have failed, waited for the mark in vain (this rank stood still), and have other values
// there since. As in a sequence lock: the fence keeps what was read before the look at the
// sequence, and pairs with the one in recall, after which the owner may write again.
bool Launch::was_lent(const LaneRun& run) {
  std::atomic_thread_fence(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < run.move.recv.count; ++i) {
    const Incoming& incoming = run.incoming[i];
    if (incoming.mark == nullptr) continue;
    if (incoming.grant->sequence.load(std::memory_order_relaxed) != call_->sequence + 1)
      return fail_pull(*run.ends->recv[run.move.recv[i]], *incoming.grant);
  }
  return true;
}

void Launch::give_back(LaneRun& run) {
  const auto clear = [](std::atomic<std::uint64_t>*& mark) {
    // Pairs with the load in recall: what was done with the buffer comes before.
    if (mark != nullptr) mark->store(0, std::memory_order_release);
    mark = nullptr;
  };
  for (std::uint32_t i = 0; i < run.move.recv.count; ++i) clear(run.incoming[i].mark);
  for (std::uint32_t i = 0; i < run.move.send.count; ++i) clear(run.outgoing[i].mark);
}

Launch::RecallResult Launch::recall() {
  RecallResult worst;
  if (!lends_) return worst;
  cut_wires();
  for (SendPort* port : bound_->send_ports)
    port->slots.view().control->sender_grant.sequence.store(0, std::memory_order_seq_cst);
  for (ReceivePort* port : bound_->receive_ports)
    port->slots.view().control->receiver_grant.sequence.store(0, std::memory_order_seq_cst);
  // Pairs with the one in was_lent.
  std::atomic_thread_fence(std::memory_order_release);
  const auto look = [&](const auto& port, const transport::Counter& mark, InUse elsewhere) {
    const InUse use = port.same_address_space ? InUse::shared : elsewhere;
    if (use <= worst.in_use || mark.value.load(std::memory_order_seq_cst) == 0) return;
    // The marks of a process that is no more stand for ever.
    if (port.peer_memory != nullptr && port.peer_memory->has_ended()) return;
    worst = {use, port.peer};
  };
  for (SendPort* port : bound_->send_ports)
    look(*port, port->slots.view().control->receiver_borrows, InUse::no);
  for (ReceivePort* port : bound_->receive_ports)
    look(*port, port->slots.view().control->sender_borrows, InUse::written);
  return worst;
}

// What a peer lends, as this process can reach it; null if it is nothing, or not what the peer
// says.
Result<std::byte*> Launch::borrowed(const transport::Loan& loan, bool same_address_space,
                                    transport::PeerMemory* memory) const {
  std::byte* const nothing = nullptr;
  if (loan.region == transport::region_staged) return nothing;
  if (loan.region == transport::region_same_process)
    return same_address_space ? reinterpret_cast<std::byte*>(loan.offset) : nothing;
  if (loan.region == transport::region_copied || memory == nullptr) return nothing;
  return memory->at(loan, call_->sequence);
}

// Where the peer has this piece in the buffer that it lends.
std::uint64_t Launch::lent_place(const LaneRun& run, const plan::Piece& piece,
                                 bool in_input) const {
  return call_->geometry.place(in_input ? plan::Buffer::input : plan::Buffer::output,
                               call_->pairs ? call_->rank : piece.chunk, run.move.round_offset);
}

// Whether all of the move's pieces lie within what the peer says that it lends.
bool Launch::stays_within(const LaneRun& run, std::uint64_t bytes, bool in_input) const {
  plan::PieceWalk walk(run.move);
  for (plan::Piece piece; walk.next(piece);) {
    const std::uint64_t begin = lent_place(run, piece, in_input);
    if (begin > bytes || piece.bytes > bytes - begin) return false;
  }
  return true;
}

// Whether the receiver can read our input where it lies. Another process says so in its grants.
bool Launch::pulls_from_us(SendPort& port, std::uint64_t bytes) const {
  if (!lends_ || call_->pre_scalar != nullptr) return false;
  if (port.same_address_space) return true;
  const std::uint32_t reach = told_reach(port);
  if (call_->input_place.region == transport::region_copied)
    return (reach & transport::reach_by_copying) != 0 && bytes >= min_copied_bytes;
  return (reach & transport::reach_by_mapping) != 0 &&
         call_->input_place.region != transport::region_staged;
}

// Straight into the output, what is only stored there; else to memory of the lane.
bool Launch::copy_incoming(LaneRun& run) {
  const plan::Move& move = run.move;
  const bool is_stored = move.step->store == plan::Buffer::output && !move.step->reduces();
  for (std::uint32_t i = 0; i < move.recv.count; ++i) {
    Incoming& incoming = run.incoming[i];
    if (incoming.remote == 0) continue;
    const std::size_t room = move.recv.count * move.bytes;
    if (!is_stored && run.copied.size() < room) run.copied.resize(room);
    std::byte* const place = is_stored ? nullptr : run.copied.data() + i * move.bytes;
    if (!copy_message(run, *run.ends->recv[move.recv[i]], incoming, place)) return false;
    incoming.base = place;
    incoming.in_input_layout = false;
  }
  return true;
}

bool Launch::copy_message(LaneRun& run, const ReceivePort& port, Incoming& incoming,
                          std::byte* room) {
  plan::PieceWalk walk(run.move);
  for (plan::Piece piece; walk.next(piece);) {
    std::byte* const target =
        room != nullptr ? room + piece.message_offset : call_->output + piece.store_offset;
    Status copied =
        port.peer_memory->copy(incoming.remote + lent_place(run, piece, true), piece.bytes, target);
    if (copied.ok()) continue;
    error_ = std::move(copied).blame({port.peer});
    return false;
  }
  return true;
}

// ------------------------------------------------------------------------------ by a wire

// A pre-op changes the input on its way out.
void Launch::hold_for(SendPort& port) const {
  if (!lends_) return;
  if (call_->pre_scalar == nullptr)
    port.input_hold = port.carrier->hold(call_->input, call_->input_bytes);
  port.output_hold = port.carrier->hold(call_->output, call_->output_bytes);
}

// Senders push only what is stored as it comes, and ask only where that may be.
void Launch::lend_by_wire(ReceivePort& port, plan::Stored stored) const {
  if (stored == plan::Stored::none) return;
  transport::Loan loan{.bytes = call_->output_bytes,
                       .signature = call_->signature,
                       .stores_all = stored == plan::Stored::all};
  if (lends_ && call_->output != nullptr) {
    loan.region = transport::region_same_process;
    loan.offset = reinterpret_cast<std::uintptr_t>(call_->output);
  }
  port.carrier->lend(loan, call_->sequence + 1);
}

// Whether the wire can put the move's message into the receiver's output: what is final, and what
// others would pull, where the receiver has said in time that it stores it as it comes.
bool Launch::lands(const LaneRun& run, const SendPort& port) const {
  const transport::Grant& grant = port.slots.view().control->receiver_grant;
  if (!is_open(grant)) return false;
  const transport::Loan loan = grant.read();
  const bool is_stored =
      plan::delivery(*run.move.step) == plan::Delivery::push || loan.stores_all != 0;
  return is_stored && loan.region != transport::region_staged && loan.bytes > 0 &&
         stays_within(run, loan.bytes, false);
}

// Once the move is done, a message that others pull lies in the step's own operand, and one that is
// pushed lies in this rank's output as well, if that is stored: the wire takes it from there. What
// the caller does not lend at either end, the wire finds in the slot, or leaves there. All ranks
// have the same geometry, so that a message can say its place in the receiver's output.
void Launch::open_by_wire(const LaneRun& run, SendPort& port, Outgoing& outgoing) const {
  const plan::Step& step = *run.move.step;
  if (run.move.bytes < transport::min_lent_bytes) return;
  const bool is_final = plan::delivery(step) == plan::Delivery::push;
  const bool by_place = !port.carrier->grants();
  const bool lands_there = by_place || lands(run, port);
  const plan::Buffer buffer = is_final ? step.store : step.local;
  const std::byte* from = nullptr;
  if (buffer == plan::Buffer::input && port.input_hold != nullptr) from = call_->input;
  if (buffer == plan::Buffer::output && port.output_hold != nullptr) from = call_->output;
  if (from == nullptr && (by_place || !lands_there)) return;
  transport::LentParts& parts = lent_parts(port.slots.view(), port.slots.tail());
  parts.count = 0;
  parts.call = by_place ? call_->sequence + 1 : 0;
  plan::PieceWalk walk(run.move);
  for (plan::Piece piece; walk.next(piece);) {
    const std::uint64_t own = is_final ? piece.store_offset : piece.local_offset;
    const std::byte* const source =
        from != nullptr ? from + own : outgoing.base + piece.message_offset;
    const std::uint64_t target = lands_there ? lent_place(run, piece, false) : piece.message_offset;
    if (!parts.add({source, target, piece.bytes})) return;
  }
  outgoing.by_wire = true;
  const bool is_pushed = by_place ? is_final : lands_there;
  outgoing.delivery = is_pushed ? transport::DeliveryMode::push : transport::DeliveryMode::pull;
  if (from != nullptr) outgoing.base = nullptr;
}

// The call ended well: all was read, and all has come.
void Launch::end_wire_loans() {
  drop_holds(*bound_);
  for (ReceivePort* port : bound_->receive_ports)
    if (port->carrier != nullptr) port->carrier->end_loan();
}

// It did not: what is under way must come to nothing, at both ends.
void Launch::cut_wires() {
  for (SendPort* port : bound_->send_ports)
    if (port->carrier != nullptr) port->carrier->cut_off();
  for (ReceivePort* port : bound_->receive_ports)
    if (port->carrier != nullptr) port->carrier->cut_off();
  drop_holds(*bound_);
}

}  // namespace gyre::exec
