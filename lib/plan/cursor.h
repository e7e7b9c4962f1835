// Cursor: the only code that turns (step, repeat, round) into links, offsets and bytes, tails
// included. The host engine, CUDA kernels, the verifier and the printer walk a lane with it. Shared
// with device code: plain values, no allocation, no division while it walks. Words: a piece is the
// part of a chunk that one round moves, at most Geometry::piece_bytes. A move is one repeat of one
// step in one round, or all repeats if they are packed. It has at most one message, one slot, on
// each of its links.
#pragma once

#include "lib/plan/step.h"

#include <cstdint>

namespace gyre::plan {

struct Extent {
  std::uint64_t offset = 0;  // in bytes, from the start of the buffer
  std::uint64_t bytes = 0;
};

// Where the chunks of a buffer lie: in a table, or evenly spaced.
struct Layout {
  const Extent* table = nullptr;   // one for each chunk, or null: then the rest holds
  std::uint64_t chunk_bytes = 0;   // of a full chunk
  std::uint64_t total_bytes = 0;   // of all chunks; the last ones are short or empty
  std::uint64_t stride_bytes = 0;  // from a chunk to the next
  std::uint64_t origin = 0;        // offset of chunk `first`
  std::uint32_t first = 0;         // lowest chunk that lies in this buffer

  // Chunk after chunk, without gaps.
  GYRE_HOST_DEVICE static constexpr Layout even(std::uint64_t chunk_bytes,
                                                std::uint64_t total_bytes) {
    return {nullptr, chunk_bytes, total_bytes, chunk_bytes, 0, 0};
  }
  // Chunks of any length anywhere; the table outlives the Layout.
  GYRE_HOST_DEVICE static constexpr Layout listed(const Extent* table) {
    return {table, 0, 0, 0, 0, 0};
  }

  GYRE_HOST_DEVICE constexpr std::uint64_t bytes(std::uint32_t chunk) const {
    if (table != nullptr) return table[chunk].bytes;
    const std::uint64_t before = chunk * chunk_bytes;
    if (before >= total_bytes) return 0;
    return total_bytes - before < chunk_bytes ? total_bytes - before : chunk_bytes;
  }
  GYRE_HOST_DEVICE constexpr std::uint64_t offset(std::uint32_t chunk) const {
    if (table != nullptr) return table[chunk].offset;
    return origin + (chunk - first) * stride_bytes;
  }
};

// What a Launch binds a plan to.
struct Geometry {
  Layout input;
  Layout output;
  std::uint64_t piece_bytes = 1;  // at most a slot divided by the plan's largest span
  std::uint32_t chunk_count = 0;  // entries of the tables

  // A scratch chunk is as long as the input's chunk of the same number, one piece at a time.
  GYRE_HOST_DEVICE constexpr std::uint64_t bytes(Buffer buffer, std::uint32_t chunk) const {
    return buffer == Buffer::output ? output.bytes(chunk) : input.bytes(chunk);
  }
  // Where the piece that begins `round_offset` bytes into a chunk lies in its buffer.
  GYRE_HOST_DEVICE constexpr std::uint64_t place(Buffer buffer, std::uint32_t chunk,
                                                 std::uint64_t round_offset) const {
    if (buffer == Buffer::input) return input.offset(chunk) + round_offset;
    if (buffer == Buffer::output) return output.offset(chunk) + round_offset;
    return buffer == Buffer::scratch ? chunk * piece_bytes : 0;
  }
  GYRE_HOST_DEVICE constexpr std::uint64_t piece(Buffer buffer, std::uint32_t chunk,
                                                 std::uint64_t round_offset) const {
    const std::uint64_t whole = bytes(buffer, chunk);
    if (whole <= round_offset) return 0;
    return whole - round_offset < piece_bytes ? whole - round_offset : piece_bytes;
  }
};

// Rounds until every chunk of the layout is done.
GYRE_HOST_DEVICE constexpr std::uint64_t rounds(const Layout& layout, std::uint64_t piece_bytes,
                                                std::uint32_t chunk_count) {
  std::uint64_t longest = layout.table != nullptr ? 0 : layout.bytes(0);
  for (std::uint32_t chunk = 0; layout.table != nullptr && chunk < chunk_count; ++chunk) {
    if (layout.table[chunk].bytes > longest) longest = layout.table[chunk].bytes;
  }
  return (longest + piece_bytes - 1) / piece_bytes;
}

// Rounds of every lane of this rank. At least one, so that tokens are exchanged without bytes too.
GYRE_HOST_DEVICE constexpr std::uint64_t rounds(const Geometry& geometry) {
  const std::uint64_t in = rounds(geometry.input, geometry.piece_bytes, geometry.chunk_count);
  const std::uint64_t out = rounds(geometry.output, geometry.piece_bytes, geometry.chunk_count);
  const std::uint64_t most = in > out ? in : out;
  return most > 1 ? most : 1;
}

// The links of one move. links[i] ascends with i, which is rank order, wherever the cyclic range
// begins; it is an index into Lane::links.
struct MoveLinks {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  std::uint32_t wrapped = 0;  // how many of them lie beyond the end: links 0, 1, ...

  GYRE_HOST_DEVICE constexpr std::uint32_t operator[](std::uint32_t i) const {
    return i < wrapped ? i : first + (i - wrapped);
  }
  // How many lie below `place`: with Lane::own_place, the place of the own operand.
  GYRE_HOST_DEVICE constexpr std::uint32_t below(std::uint32_t place) const {
    const std::uint32_t low = wrapped < place ? wrapped : place;
    const std::uint32_t straight = count - wrapped;
    if (place <= first) return low;
    return low + (place - first < straight ? place - first : straight);
  }
};

struct ChunkRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

// The chunks of one repeat, in message order; the second range if the span wraps.
struct ChunkSpan {
  ChunkRange head;
  ChunkRange tail;

  // `place` is where the repeat begins, before base.
  GYRE_HOST_DEVICE static constexpr ChunkSpan at(const Chunks& chunks, std::uint32_t place) {
    const std::uint32_t to_end = chunks.wrap - place;
    const std::uint32_t count = chunks.span < to_end ? chunks.span : to_end;
    return {{chunks.base + place, count}, {chunks.base, chunks.span - count}};
  }
};

// `at` plus `by`, modulo `size`; |by| <= size.
GYRE_HOST_DEVICE constexpr std::uint32_t turned(std::uint32_t at, std::int32_t by,
                                                std::uint32_t size) {
  std::int64_t sum = static_cast<std::int64_t>(at) + by;
  if (sum < 0) sum += size;
  if (sum >= static_cast<std::int64_t>(size)) sum -= size;
  return static_cast<std::uint32_t>(sum);
}

// One chunk's part of a message. Offsets are in bytes; those of an absent buffer are zero.
struct Piece {
  std::uint32_t chunk = 0;
  std::uint64_t bytes = 0;
  std::uint64_t message_offset = 0;
  std::uint64_t local_offset = 0;
  std::uint64_t store_offset = 0;
};

struct Move {
  const Step* step = nullptr;
  const Geometry* geometry = nullptr;
  std::uint32_t step_index = 0;
  std::uint32_t repeat = 0;
  std::uint64_t round = 0;
  std::uint64_t round_offset = 0;  // round * piece_bytes
  std::uint64_t bytes = 0;         // of the message; zero only for a token
  std::uint32_t place = 0;         // of its first chunk, before base
  MoveLinks recv;
  MoveLinks send;
};

// The pieces of a move in message order: `for (Piece p; walk.next(p);)`.
class PieceWalk {
 public:
  // The move outlives the walk.
  GYRE_HOST_DEVICE constexpr explicit PieceWalk(const Move& move)
      : move_(move), place_(move.place), repeats_left_(move.step->repeats_of_move()) {
    begin_repeat();
  }

  GYRE_HOST_DEVICE constexpr bool next(Piece& piece) {
    const Geometry& geometry = *move_.geometry;
    const Step& step = *move_.step;
    while (true) {
      if (here_.count == 0) {
        if (!begin_range()) return false;
        continue;
      }
      const std::uint32_t chunk = here_.first++;
      --here_.count;
      const std::uint64_t bytes = geometry.piece(step.sized_by(), chunk, move_.round_offset);
      if (bytes == 0) continue;
      piece = {chunk, bytes, message_offset_, geometry.place(step.local, chunk, move_.round_offset),
               geometry.place(step.store, chunk, move_.round_offset)};
      message_offset_ += bytes;
      return true;
    }
  }

 private:
  GYRE_HOST_DEVICE constexpr void begin_repeat() {
    const ChunkSpan span = ChunkSpan::at(move_.step->chunks, place_);
    here_ = span.head;
    tail_ = span.tail;
    --repeats_left_;
  }

  GYRE_HOST_DEVICE constexpr bool begin_range() {
    if (tail_.count > 0) {
      here_ = tail_;
      tail_.count = 0;
      return true;
    }
    if (repeats_left_ == 0) return false;
    place_ = turned(place_, move_.step->chunks.stride, move_.step->chunks.wrap);
    begin_repeat();
    return true;
  }

  const Move& move_;
  std::uint64_t message_offset_ = 0;
  ChunkRange here_;
  ChunkRange tail_;
  std::uint32_t place_;
  std::uint32_t repeats_left_;
};

template <typename Visit>
GYRE_HOST_DEVICE constexpr void for_each_piece(const Move& move, Visit&& visit) {
  PieceWalk walk(move);
  for (Piece piece; walk.next(piece);) visit(piece);
}

class Cursor {
 public:
  Cursor() = default;  // done
  // Stands on the first move. Lane's arrays and the geometry outlive the cursor.
  GYRE_HOST_DEVICE constexpr Cursor(const Lane& lane, const Geometry& geometry,
                                    std::uint64_t rounds)
      : lane_(lane), geometry_(&geometry), rounds_(lane.step_count == 0 ? 0 : rounds) {
    if (done()) return;
    enter(0);
    skip_empty();
  }

  GYRE_HOST_DEVICE constexpr bool done() const { return round_ == rounds_; }
  // To the next move that has bytes, or always sends.
  GYRE_HOST_DEVICE constexpr void advance() {
    next();
    skip_empty();
  }

  GYRE_HOST_DEVICE constexpr const Lane& lane() const { return lane_; }
  GYRE_HOST_DEVICE constexpr const Step& step() const { return lane_.steps[step_]; }
  GYRE_HOST_DEVICE constexpr std::uint32_t step_index() const { return step_; }
  GYRE_HOST_DEVICE constexpr std::uint32_t repeat() const { return repeat_; }
  GYRE_HOST_DEVICE constexpr std::uint64_t round() const { return round_; }

  // Not to be called when done.
  GYRE_HOST_DEVICE constexpr Move move() const {
    const Step& at = step();
    Move result;
    result.step = &at;
    result.geometry = geometry_;
    result.step_index = step_;
    result.repeat = repeat_;
    result.round = round_;
    result.round_offset = round_offset_;
    result.place = here_.chunk;
    result.bytes = message_bytes();
    result.recv = links(here_.recv, at.recv_count);
    result.send = links(here_.send, at.send_count);
    return result;
  }

 private:
  // Where a repeat of a step begins: its first chunk (before base) and first links.
  struct Place {
    std::uint32_t chunk = 0;
    std::uint32_t recv = 0;
    std::uint32_t send = 0;
  };

  GYRE_HOST_DEVICE constexpr MoveLinks links(std::uint32_t first, std::uint32_t count) const {
    const std::uint32_t to_end = lane_.link_count - first;
    return {first, count, count > to_end ? count - to_end : 0};
  }

  GYRE_HOST_DEVICE constexpr std::uint64_t bytes_of(const ChunkRange& range) const {
    std::uint64_t bytes = 0;
    for (std::uint32_t i = 0; i < range.count; ++i) {
      bytes += geometry_->piece(step().sized_by(), range.first + i, round_offset_);
    }
    return bytes;
  }

  GYRE_HOST_DEVICE constexpr std::uint64_t message_bytes() const {
    const Chunks& chunks = step().chunks;
    std::uint64_t bytes = 0;
    std::uint32_t place = here_.chunk;
    for (std::uint32_t left = step().repeats_of_move(); left > 0; --left) {
      const ChunkSpan span = ChunkSpan::at(chunks, place);
      bytes += bytes_of(span.head) + bytes_of(span.tail);
      place = turned(place, chunks.stride, chunks.wrap);
    }
    return bytes;
  }

  GYRE_HOST_DEVICE static constexpr Place begin(const Step& step) {
    return {step.chunks.first, step.recv_first, step.send_first};
  }

  GYRE_HOST_DEVICE constexpr void enter(std::uint32_t index) {
    step_ = index;
    repeat_ = 0;
    second_ = false;
    here_ = begin(lane_.steps[index]);
    if (lane_.steps[index].paired()) other_ = begin(lane_.steps[index + 1]);
  }

  GYRE_HOST_DEVICE constexpr void swap_pair() {
    const Place other = other_;
    other_ = here_;
    here_ = other;
    second_ = !second_;
  }

  GYRE_HOST_DEVICE constexpr void next() {
    const Step& left = step();
    const std::uint32_t repeats = left.moves();
    if (left.paired() || repeat_ + 1 < repeats) {
      here_.chunk = turned(here_.chunk, left.chunks.stride, left.chunks.wrap);
      here_.recv = turned(here_.recv, left.recv_stride, lane_.link_count);
      here_.send = turned(here_.send, left.send_stride, lane_.link_count);
    }
    if (left.paired()) {
      swap_pair();
      ++step_;
    } else if (repeat_ + 1 < repeats) {
      ++repeat_;
      if (second_) {
        swap_pair();
        --step_;
      }
    } else if (step_ + 1 < lane_.step_count) {
      enter(step_ + 1);
    } else {
      ++round_;
      round_offset_ += geometry_->piece_bytes;
      enter(0);
    }
  }

  GYRE_HOST_DEVICE constexpr bool empty() const {
    const Chunks& chunks = step().chunks;
    const Buffer buffer = step().sized_by();
    std::uint32_t place = here_.chunk;
    for (std::uint32_t left = step().repeats_of_move(); left > 0; --left) {
      std::uint32_t at = place;
      for (std::uint32_t k = 0; k < chunks.span; ++k) {
        if (geometry_->bytes(buffer, chunks.base + at) > round_offset_) return false;
        at = at + 1 < chunks.wrap ? at + 1 : 0;
      }
      place = turned(place, chunks.stride, chunks.wrap);
    }
    return true;
  }

  GYRE_HOST_DEVICE constexpr void skip_empty() {
    while (!done() && !step().always_sends() && empty()) next();
  }

  Lane lane_;
  const Geometry* geometry_ = nullptr;
  std::uint64_t round_ = 0;
  std::uint64_t rounds_ = 0;
  std::uint64_t round_offset_ = 0;
  std::uint32_t step_ = 0;
  std::uint32_t repeat_ = 0;
  Place here_;   // of the repeat it stands on
  Place other_;  // of the other step of a pair
  bool second_ = false;
};

}  // namespace gyre::plan
