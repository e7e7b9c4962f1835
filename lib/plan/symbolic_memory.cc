#include "lib/plan/symbolic_memory.h"

namespace gyre::plan {

void SymbolicMemory::Cell::clear() {
  value = {};
  is_input = is_stored = false;
  written = {};
  reads.clear();
}

void SymbolicMemory::begin(std::uint64_t user_cells, std::uint64_t scratch_cells, bool in_place) {
  in_place_ = in_place;
  input_.resize(user_cells);
  output_.resize(in_place ? 0 : user_cells);
  scratch_.resize(scratch_cells);
  for (std::vector<Cell>* cells : {&input_, &output_, &scratch_})
    for (Cell& cell : *cells) cell.clear();
}

void SymbolicMemory::bring(std::uint64_t index, const SymbolicValue& value) {
  input_[index].value = value;
  input_[index].is_input = true;
}

Result<SymbolicMemory::Cell*> SymbolicMemory::find(CellAddress at) {
  std::vector<Cell>* cells = at.buffer == Buffer::scratch ? &scratch_ : &input_;
  if (at.buffer == Buffer::output && !in_place_) cells = &output_;
  if (at.index >= cells->size()) return internal_error("beyond the end of the buffer");
  return &(*cells)[at.index];
}

Result<SymbolicValue> SymbolicMemory::read(CellAddress at, const Accessor& access) {
  GYRE_ASSIGN(Cell * cell, find(at));
  if (at.buffer == Buffer::input && !cell->is_input) {
    return internal_error(cell->is_stored ? "the input is read after it was overwritten"
                                          : "the input is read where this rank brings nothing");
  }
  if (at.buffer != Buffer::input && !cell->is_stored) {
    return internal_error("it is read before anything was stored there");
  }
  if (cell->written.time > access.clock[cell->written.worker]) {
    return internal_error("nothing orders the read after the write before it");
  }
  const Moment now{access.worker, access.clock[access.worker]};
  for (Moment& read : cell->reads) {
    if (read.worker != now.worker) continue;
    read.time = now.time;
    return cell->value;
  }
  cell->reads.push_back(now);
  return cell->value;
}

Status SymbolicMemory::write(CellAddress at, const SymbolicValue& value, const Accessor& access) {
  if (at.buffer == Buffer::input) return internal_error("the input is written");
  GYRE_ASSIGN(Cell * cell, find(at));
  // In place, a copy of the input to the output is no write at all.
  const bool already_there = cell->is_input && cell->value == value;
  cell->is_stored = true;
  if (already_there) return {};
  if (cell->written.time > access.clock[cell->written.worker]) {
    return internal_error("nothing orders the write after the write before it");
  }
  for (const Moment& read : cell->reads) {
    if (read.time > access.clock[read.worker]) {
      return internal_error("nothing orders the write after a read before it");
    }
  }
  cell->reads.clear();
  cell->written = {access.worker, access.clock[access.worker]};
  cell->value = value;
  cell->is_input = false;
  return {};
}

bool SymbolicMemory::holds(std::uint64_t index, SymbolicValue* value) const {
  const Cell& cell = in_place_ ? input_[index] : output_[index];
  if (cell.is_stored) *value = cell.value;
  return cell.is_stored;
}

}  // namespace gyre::plan
