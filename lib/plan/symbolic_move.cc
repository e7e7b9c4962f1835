// One move of a symbolic run: the meaning of receiving, reducing, storing and sending.
#include "lib/plan/multicast.h"
#include "lib/plan/symbolic_run.h"

#include <fmt/core.h>

#include <algorithm>

namespace gyre::plan {

namespace {

CellAddress cell(const Geometry& geometry, Buffer buffer, std::uint64_t offset) {
  return {buffer, offset / geometry.piece_bytes};
}

// What is in a cell while a wire may be writing there: nobody can use it.
SymbolicValue in_flight(SymbolicValue value) {
  value.label = ~std::uint64_t{0};
  return value;
}

}  // namespace

void SymbolicRun::Act::begin(Worker& by) {
  worker = &by;
  move = &by.move;
  pieces.clear();
  for_each_piece(*move, [this](const Piece& piece) { pieces.push_back(piece); });
  received.clear();
  own.clear();
  operands.clear();
  values.clear();
  was_pushed = false;
  pulled = 0;
}

Status SymbolicRun::perform(Worker& worker) {
  act_.begin(worker);
  GYRE_TRY(claim_ends(act_));
  ++worker.clock[worker.index];

  GYRE_TRY(receive(act_));
  GYRE_TRY(read_own(act_));
  GYRE_TRY(reduce(act_));
  GYRE_TRY(store(act_));
  spare_.insert(spare_.end(), act_.received.begin(), act_.received.end());
  return send(act_);
}

std::uint32_t SymbolicRun::new_message() {
  if (spare_.empty()) {
    messages_.emplace_back();
    return static_cast<std::uint32_t>(messages_.size() - 1);
  }
  const std::uint32_t number = spare_.back();
  spare_.pop_back();
  return number;
}

// Each end of a FIFO belongs to one lane.
Status SymbolicRun::claim_ends(const Act& act) {
  const std::int64_t claimant = act.worker->index;
  const auto claim = [claimant](std::int64_t& owner, const Fifo& fifo) -> Status {
    if (owner < 0) owner = claimant;
    if (owner == claimant) return {};
    return internal_error(
        fmt::format("another lane has this end of the link from {} to {}", fifo.from, fifo.to));
  };
  for (std::uint32_t i = 0; i < act.move->recv.count; ++i) {
    Fifo& fifo = fifos_[act.worker->in[act.move->recv[i]]];
    GYRE_TRY(claim(fifo.receiver, fifo));
  }
  for (std::uint32_t i = 0; i < act.move->send.count; ++i) {
    Fifo& fifo = fifos_[act.worker->out[act.move->send[i]]];
    GYRE_TRY(claim(fifo.sender, fifo));
  }
  return {};
}

Status SymbolicRun::receive(Act& act) {
  VectorClock& clock = act.worker->clock;
  for (std::uint32_t i = 0; i < act.move->recv.count; ++i) {
    Fifo& fifo = fifos_[act.worker->in[act.move->recv[i]]];
    const std::uint32_t number = fifo.messages.front();
    fifo.messages.erase(fifo.messages.begin());
    act.received.push_back(number);
    const SymbolicMessage& message = messages_[number];
    for (std::size_t w = 0; w < clock.size(); ++w) clock[w] = std::max(clock[w], message.clock[w]);

    if (message.values.size() != act.pieces.size()) {
      return internal_error(fmt::format("rank {} sends {} pieces where {} are expected", fifo.from,
                                        message.values.size(), act.pieces.size()));
    }
    if (message.delivery == Delivery::pull) {
      GYRE_TRY(read_where_it_lies(act, message, message.cells));
      act.pulled += message.cells.empty() || message.cells[0].buffer == Buffer::input;
    }
    if (message.delivery == Delivery::push) {
      GYRE_TRY(check_landing(act, message));
      act.was_pushed = true;
    }
    GYRE_TRY(read_where_it_lies(act, message, message.origin));
    act.operands.push_back(&message.values);
  }
  switch_sums_ +=
      takes_from_all(act.worker->lane, *act.move) && act.pulled == act.move->recv.count ? 1 : 0;
  return {};
}

Status SymbolicRun::read_where_it_lies(const Act& act, const SymbolicMessage& message,
                                       const std::vector<CellAddress>& cells) {
  for (std::size_t k = 0; k < cells.size(); ++k) {
    Result<SymbolicValue> value =
        memory(message.source).read(cells[k], {act.worker->index, act.worker->clock});
    if (!value.ok()) {
      return std::move(value).status().while_doing(
          fmt::format("pulling chunk {} from rank {}", act.pieces[k].chunk, message.source));
    }
    if (*value == message.values[k]) continue;
    return internal_error(
        fmt::format("rank {} overwrote a message before it was pulled", message.source));
  }
  return {};
}

// A pushed message is already where it belongs, so it must belong there and nowhere else.
Status SymbolicRun::check_landing(const Act& act, const SymbolicMessage& message) {
  const Step& step = *act.move->step;
  if (step.local != Buffer::none || step.recv_count != 1 || step.store != Buffer::output) {
    return internal_error(
        fmt::format("rank {} pushes into a step that does more than store", message.source));
  }
  const bool lands_now = is_carried(message.source, act.worker->rank);
  const Accessor access{act.worker->index, act.worker->clock};
  for (std::size_t k = 0; k < act.pieces.size(); ++k) {
    const CellAddress here = cell(*act.move->geometry, Buffer::output, act.pieces[k].store_offset);
    const Result<SymbolicValue> value = memory(act.worker->rank).read(here, access);
    const SymbolicValue expected = lands_now ? in_flight(message.values[k]) : message.values[k];
    if (value.ok() && *value == expected && here.index == message.cells[k].index) {
      if (lands_now) GYRE_TRY(memory(act.worker->rank).write(here, message.values[k], access));
      continue;
    }
    return internal_error(fmt::format("chunk {} is not where rank {} pushed it",
                                      act.pieces[k].chunk, message.source));
  }
  return {};
}

// Operands are in rank order, the own one at its place.
Status SymbolicRun::read_own(Act& act) {
  const Buffer local = act.move->step->local;
  if (local == Buffer::none) return {};
  for (const Piece& piece : act.pieces) {
    Result<SymbolicValue> value = memory(act.worker->rank)
                                      .read(cell(*act.move->geometry, local, piece.local_offset),
                                            {act.worker->index, act.worker->clock});
    if (!value.ok()) {
      return std::move(value).status().while_doing(
          fmt::format("reading the own chunk {}", piece.chunk));
    }
    act.own.push_back(*value);
  }
  const auto place = static_cast<std::ptrdiff_t>(act.move->recv.below(act.worker->lane.own_place));
  act.operands.insert(act.operands.begin() + place, &act.own);
  return {};
}

Status SymbolicRun::reduce(Act& act) {
  const bool finishes = act.move->step->finishes();
  for (std::size_t k = 0; k < act.pieces.size(); ++k) {
    act.parts.clear();
    SymbolicValue value = (*act.operands.front())[k];
    for (const std::vector<SymbolicValue>* operand : act.operands) {
      const SymbolicValue& part = (*operand)[k];
      if (part.bytes != act.pieces[k].bytes) {
        return internal_error(fmt::format("{} bytes arrive where chunk {} has {}", part.bytes,
                                          act.pieces[k].chunk, act.pieces[k].bytes));
      }
      if (part.label != value.label || part.piece != value.piece) {
        return internal_error(
            fmt::format("pieces of the chunks {} and {} meet", value.label, part.label));
      }
      if (part.finished && (act.operands.size() > 1 || finishes)) {
        return internal_error(fmt::format("chunk {} is summed after it was finished", part.label));
      }
      act.parts.push_back(part.contribution);
    }
    if (act.parts.size() > 1) value.contribution = contributions_.sum(act.parts);
    if (finishes) value.finished = true;
    act.values.push_back(value);
  }
  return {};
}

Status SymbolicRun::store(const Act& act) {
  const Buffer buffer = act.move->step->store;
  if (buffer == Buffer::none) return {};
  for (std::size_t k = 0; k < act.pieces.size(); ++k) {
    const Piece& piece = act.pieces[k];
    if (buffer == Buffer::output && !contract_.gets(act.worker->rank, piece.chunk)) {
      return internal_error(
          fmt::format("chunk {} is stored, which this rank does not get", piece.chunk));
    }
    if (act.was_pushed) continue;
    Status written = memory(act.worker->rank)
                         .write(cell(*act.move->geometry, buffer, piece.store_offset),
                                act.values[k], {act.worker->index, act.worker->clock});
    if (written.ok()) continue;
    return std::move(written).while_doing(fmt::format("storing chunk {}", piece.chunk));
  }
  return {};
}

// A link is direct or staged as a whole; its two ends agree on that.
Delivery SymbolicRun::delivery_on(const Move& move, std::uint32_t fifo) const {
  if (machine_.delivering == DeliveryPolicy::staged) return Delivery::staged;
  const Fifo& link = fifos_[fifo];
  if (is_carried(link.from, link.to) && link.is_stored && delivery(*move.step) == Delivery::pull) {
    return Delivery::push;
  }
  const bool by_lot = ((fifo + 1) * 0x9e3779b97f4a7c15U ^ machine_.seed) >> 40 & 1;
  const bool is_staged = machine_.delivering == DeliveryPolicy::mixed && by_lot;
  return is_staged ? Delivery::staged : delivery(*move.step);
}

Status SymbolicRun::send(const Act& act) {
  std::uint32_t pushed = 0;
  for (std::uint32_t i = 0; i < act.move->send.count; ++i) {
    const std::uint32_t number = act.worker->out[act.move->send[i]];
    Fifo& fifo = fifos_[number];
    const std::uint32_t slot = new_message();
    SymbolicMessage& message = messages_[slot];
    message.values = act.values;
    message.clock = act.worker->clock;
    message.delivery = delivery_on(*act.move, number);
    message.source = act.worker->rank;
    message.cells.clear();
    message.origin.clear();
    if (message.delivery == Delivery::push) {
      GYRE_TRY(push(act, fifo.to, message));
      ++pushed;
    }
    if (message.delivery == Delivery::pull) add_own_cells(act, Delivery::pull, message.cells);
    if (is_carried(fifo.from, fifo.to))
      add_own_cells(act, delivery(*act.move->step), message.origin);
    fifo.messages.push_back(slot);
  }
  switch_stores_ +=
      sends_to_all(act.worker->lane, *act.move) && pushed == act.move->send.count ? 1 : 0;
  return {};
}

// Where a message lies at its sender's once the move is done; empty if it is in a slot alone.
void SymbolicRun::add_own_cells(const Act& act, Delivery by,
                                std::vector<CellAddress>& cells) const {
  const Step& step = *act.move->step;
  for (const Piece& piece : act.pieces) {
    if (by == Delivery::pull) {
      cells.push_back(cell(*act.move->geometry, step.local, piece.local_offset));
    } else if (by == Delivery::push && step.store == Buffer::output) {
      cells.push_back(cell(*act.move->geometry, step.store, piece.store_offset));
    }
  }
}

Status SymbolicRun::push(const Act& act, std::int32_t peer, SymbolicMessage& message) {
  const Geometry& there = geometries_[static_cast<std::size_t>(peer)];
  for (std::size_t k = 0; k < act.pieces.size(); ++k) {
    // In an all-to-all the receiver numbers it by this rank.
    const std::uint32_t chunk =
        contract_.pairs() ? static_cast<std::uint32_t>(act.worker->rank) : act.pieces[k].chunk;
    const std::uint64_t offset = there.place(Buffer::output, chunk, act.move->round_offset);
    message.cells.push_back(cell(there, Buffer::output, offset));
    const bool takes_time = is_carried(act.worker->rank, peer);
    const SymbolicValue value = takes_time ? in_flight(act.values[k]) : act.values[k];
    Status written =
        memory(peer).write(message.cells.back(), value, {act.worker->index, act.worker->clock});
    if (written.ok()) continue;
    return std::move(written).while_doing(fmt::format("pushing chunk {} to rank {}", chunk, peer));
  }
  return {};
}

}  // namespace gyre::plan
