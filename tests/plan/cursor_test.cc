// lib/plan/cursor.h against a direct implementation of its definition, which uses divisions.
#include "lib/plan/cursor.h"

#include "lib/plan/algorithms.h"
#include "tests/support/catch.h"

#include <algorithm>
#include <random>

namespace cursor_test {

using namespace gyre;
using namespace gyre::plan;

namespace {

struct Expected {
  std::uint32_t step = 0;
  std::uint32_t repeat = 0;
  std::uint64_t round = 0;
  std::vector<std::uint32_t> recv;
  std::vector<std::uint32_t> send;
  std::vector<Piece> pieces;
};

std::uint64_t modulo(std::int64_t value, std::int64_t size) {
  return static_cast<std::uint64_t>((value % size + size) % size);
}

std::vector<std::uint32_t> expected_links(const LinkRange& range, std::uint32_t repeat,
                                          std::uint32_t link_count) {
  std::vector<std::uint32_t> links;
  for (std::uint32_t k = 0; k < range.count; ++k) {
    const std::int64_t link = std::int64_t{range.first} + std::int64_t{repeat} * range.stride + k;
    links.push_back(static_cast<std::uint32_t>(modulo(link, link_count)));
  }
  std::sort(links.begin(), links.end());
  return links;
}

std::uint64_t piece_size(std::uint64_t whole, std::uint64_t round, std::uint64_t piece_bytes) {
  return std::min(piece_bytes, whole - std::min(whole, round * piece_bytes));
}

Expected expected_move(const Lane& lane, const Geometry& geometry, std::uint32_t index,
                       std::uint32_t repeat, std::uint64_t round) {
  const Step& step = lane.steps[index];
  const Chunks& chunks = step.chunks;
  Expected move{index,
                repeat,
                round,
                expected_links(step.recv(), repeat, lane.link_count),
                expected_links(step.send(), repeat, lane.link_count),
                {}};
  std::uint64_t message_offset = 0;
  const auto add = [&](std::uint32_t at, std::uint32_t k) {
    const std::int64_t place = chunks.first + std::int64_t{at} * chunks.stride + k;
    const auto chunk = static_cast<std::uint32_t>(chunks.base + modulo(place, chunks.wrap));
    const auto offset = [&](Buffer buffer) -> std::uint64_t {
      if (buffer == Buffer::none) return 0;
      if (buffer == Buffer::scratch) return chunk * geometry.piece_bytes;
      const Layout& layout = buffer == Buffer::input ? geometry.input : geometry.output;
      return layout.offset(chunk) + round * geometry.piece_bytes;
    };
    const Layout& sizes = step.sized_by() == Buffer::output ? geometry.output : geometry.input;
    const std::uint64_t bytes = piece_size(sizes.bytes(chunk), round, geometry.piece_bytes);
    if (bytes == 0) return;
    move.pieces.push_back({chunk, bytes, message_offset, offset(step.local), offset(step.store)});
    message_offset += bytes;
  };
  const std::uint32_t end = step.packed() ? chunks.repeat : repeat + 1;
  for (std::uint32_t at = repeat; at < end; ++at)
    for (std::uint32_t k = 0; k < chunks.span; ++k) add(at, k);
  return move;
}

std::vector<Expected> expected_walk(const Lane& lane, const Geometry& geometry,
                                    std::uint64_t rounds) {
  std::vector<Expected> moves;
  const auto visit = [&](std::uint32_t index, std::uint32_t repeat, std::uint64_t round) {
    Expected move = expected_move(lane, geometry, index, repeat, round);
    if (!move.pieces.empty() || lane.steps[index].always_sends()) moves.push_back(std::move(move));
  };
  for (std::uint64_t round = 0; round < rounds; ++round) {
    for (std::uint32_t index = 0; index < lane.step_count; ++index) {
      const bool paired = lane.steps[index].paired();
      const bool packed = lane.steps[index].packed();
      const std::uint32_t repeats = packed ? 1 : lane.steps[index].chunks.repeat;
      for (std::uint32_t repeat = 0; repeat < repeats; ++repeat) {
        visit(index, repeat, round);
        if (paired) visit(index + 1, repeat, round);
      }
      if (paired) ++index;
    }
  }
  return moves;
}

bool same_links(const MoveLinks& links, const std::vector<std::uint32_t>& expected) {
  if (links.count != expected.size()) return false;
  for (std::uint32_t i = 0; i < links.count; ++i) {
    if (links[i] != expected[i]) return false;
  }
  for (std::uint32_t place = 0; place < 12; ++place) {
    const auto below = std::count_if(expected.begin(), expected.end(),
                                     [&](std::uint32_t link) { return link < place; });
    if (links.below(place) != static_cast<std::uint64_t>(below)) return false;
  }
  return true;
}

bool same_piece(const Piece& a, const Piece& b) {
  return a.chunk == b.chunk && a.bytes == b.bytes && a.message_offset == b.message_offset &&
         a.local_offset == b.local_offset && a.store_offset == b.store_offset;
}

// The number of moves, after comparing each of them.
std::size_t compare_walks(const Lane& lane, const Geometry& geometry, std::uint64_t rounds) {
  const std::vector<Expected> moves = expected_walk(lane, geometry, rounds);
  Cursor cursor(lane, geometry, rounds);
  for (const Expected& expected : moves) {
    REQUIRE_FALSE(cursor.done());
    const Move move = cursor.move();
    REQUIRE(move.step_index == expected.step);
    REQUIRE(move.repeat == expected.repeat);
    REQUIRE(move.round == expected.round);
    REQUIRE(same_links(move.recv, expected.recv));
    REQUIRE(same_links(move.send, expected.send));
    std::vector<Piece> pieces;
    for_each_piece(move, [&](const Piece& piece) { pieces.push_back(piece); });
    REQUIRE(std::equal(pieces.begin(), pieces.end(), expected.pieces.begin(), expected.pieces.end(),
                       same_piece));
    std::uint64_t bytes = 0;
    for (const Piece& piece : pieces) bytes += piece.bytes;
    REQUIRE(move.bytes == bytes);
    cursor.advance();
  }
  REQUIRE(cursor.done());
  return moves.size();
}

// A valid lane of any shape, more varied than any builder makes.
class RandomLane {
 public:
  explicit RandomLane(std::uint64_t seed) : random_(seed) {
    chunk_count_ = 1 + below(9);
    for (std::uint32_t i = below(7); i > 0; --i) {
      links_.push_back({static_cast<std::int32_t>(links_.size()), 0});
    }
    for (std::uint32_t i = 1 + below(6); i > 0; --i) add_step();
    steps_.back().flags &= static_cast<std::uint16_t>(~step_flag::paired);
  }

  Lane lane() const {
    return {links_.data(), steps_.data(), static_cast<std::uint32_t>(links_.size()),
            static_cast<std::uint32_t>(steps_.size()), 0};
  }
  std::uint32_t chunk_count() const { return chunk_count_; }
  std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(random_() % limit); }

 private:
  std::int32_t signed_below(std::uint32_t limit) {
    return static_cast<std::int32_t>(below(2 * limit + 1)) - static_cast<std::int32_t>(limit);
  }

  void add_step() {
    const bool second = !steps_.empty() && steps_.back().paired();
    const auto link_count = static_cast<std::uint32_t>(links_.size());
    Step step;
    step.local = static_cast<Buffer>(1 + below(3));
    step.store = below(2) == 0 ? Buffer::none : Buffer::output;
    step.chunks.wrap = 1 + below(chunk_count_);
    step.chunks.base = below(chunk_count_ - step.chunks.wrap + 1);
    step.chunks.first = below(step.chunks.wrap);
    step.chunks.span = below(step.chunks.wrap + 1);
    step.chunks.stride = signed_below(step.chunks.wrap);
    step.chunks.repeat = second ? steps_.back().chunks.repeat : 1 + below(7);
    if (below(4) == 0) step.flags = step_flag::always_send;
    if (!second && below(3) == 0) step.flags |= step_flag::paired;
    const bool alone = !second && !step.paired();
    if (alone && below(3) == 0) step.flags |= step_flag::pack;
    if (link_count > 0) {
      step.recv_first = below(link_count);
      step.recv_count = below(link_count + 1);
      step.recv_stride = static_cast<std::int16_t>(signed_below(link_count));
      step.send_first = below(link_count);
      step.send_count = below(link_count + 1);
      step.send_stride = static_cast<std::int16_t>(signed_below(link_count));
      if (step.packed()) step.recv_stride = step.send_stride = 0;
    }
    steps_.push_back(step);
  }

  std::mt19937_64 random_;
  std::uint32_t chunk_count_ = 1;
  std::vector<Link> links_;
  std::vector<Step> steps_;
};

Plan ring_plan(Collective collective, std::int32_t rank_count, std::int32_t rank) {
  PlanRequest request;
  request.collective = collective;
  request.rank_count = rank_count;
  request.rank = rank;
  Result<Plan> plan = build_plan("ring", request);
  REQUIRE(plan.ok());
  return std::move(plan).value();
}

}  // namespace

TEST_CASE("a cursor walks any lane as its definition says", "[plan][cursor]") {
  std::size_t moves = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    CAPTURE(seed);
    RandomLane random(seed);
    const std::uint32_t count = random.chunk_count();
    std::vector<Extent> in(count);
    std::vector<Extent> out(count);
    for (std::uint32_t chunk = 0; chunk < count; ++chunk) {
      in[chunk] = {random.below(1000), random.below(50)};
      out[chunk] = {random.below(1000), random.below(3) == 0 ? 0 : in[chunk].bytes};
    }
    Geometry geometry{Layout::listed(in.data()), Layout::listed(out.data()), 1 + random.below(20),
                      count};
    moves += compare_walks(random.lane(), geometry, rounds(geometry));
    const std::uint64_t chunk_bytes = 1 + random.below(40);
    geometry.input =
        Layout::even(chunk_bytes, chunk_bytes * count - random.below(30) % chunk_bytes);
    geometry.output = geometry.input;
    moves += compare_walks(random.lane(), geometry, rounds(geometry));
  }
  CHECK(moves > 100000);
}

TEST_CASE("an all-reduce's output is stored once, every byte of it", "[plan][cursor]") {
  for (const std::int32_t n : {1, 2, 3, 8}) {
    for (const std::uint64_t total : {0ULL, 1ULL, 7ULL, 64ULL, 1000ULL, 4097ULL}) {
      for (const std::uint64_t piece_bytes : {1ULL, 16ULL, 100ULL, 8192ULL}) {
        CAPTURE(n, total, piece_bytes);
        const Plan plan = ring_plan(Collective::all_reduce, n, n / 2);
        const auto ranks = static_cast<std::uint64_t>(n);
        const Layout layout = Layout::even((total + ranks - 1) / ranks, total);
        const Geometry geometry{layout, layout, piece_bytes, plan.chunk_count()};
        std::vector<int> stored(total, 0);
        for (Cursor cursor(plan.lane(0), geometry, rounds(geometry)); !cursor.done();
             cursor.advance()) {
          const Move move = cursor.move();
          if (!move.step->stores()) continue;
          for_each_piece(move, [&](const Piece& piece) {
            for (std::uint64_t i = 0; i < piece.bytes; ++i) ++stored.at(piece.store_offset + i);
          });
        }
        CHECK(std::count(stored.begin(), stored.end(), 1) == static_cast<std::ptrdiff_t>(total));
      }
    }
  }
}

TEST_CASE("without bytes nothing moves but tokens, once", "[plan][cursor]") {
  const Link link{0, 0};
  Step steps[2];
  steps[0].local = Buffer::input;
  steps[0].send_count = 1;
  steps[1].send_count = 1;
  steps[1].chunks.span = 0;
  steps[1].flags = step_flag::always_send;
  const Lane lane{&link, steps, 1, 2, 0};
  const Geometry geometry{Layout::even(0, 0), Layout::even(0, 0), 64, 1};
  CHECK(rounds(geometry) == 1);
  Cursor cursor(lane, geometry, rounds(geometry));
  REQUIRE_FALSE(cursor.done());
  CHECK(cursor.move().step_index == 1);
  CHECK(cursor.move().bytes == 0);
  cursor.advance();
  CHECK(cursor.done());
}

TEST_CASE("offsets beyond 4 GiB are whole", "[plan][cursor]") {
  constexpr std::uint64_t gigabyte = 1ULL << 30;
  const Plan plan = ring_plan(Collective::all_gather, 3, 0);
  const Layout layout = Layout::even(5 * gigabyte + 8, 15 * gigabyte);
  const Geometry geometry{layout, layout, 2 * gigabyte, 3};
  CHECK(rounds(geometry) == 3);
  std::uint64_t end = 0;
  std::uint64_t bytes = 0;
  for (Cursor cursor(plan.lane(0), geometry, rounds(geometry)); !cursor.done(); cursor.advance()) {
    for_each_piece(cursor.move(), [&](const Piece& piece) {
      end = std::max(end, piece.store_offset + piece.bytes);
      bytes += piece.bytes;
    });
  }
  CHECK(end == 15 * gigabyte);
  CHECK(bytes == 15 * gigabyte);  // each chunk is stored once
}

TEST_CASE("a buffer may hold only some of the chunks, with room between them", "[plan][cursor]") {
  Layout layout = Layout::even(10, 40);
  layout.stride_bytes = 100;  // one channel's share of each block
  layout.origin = 30;
  CHECK(layout.offset(2) == 230);
  layout.first = 2;  // only the own block
  CHECK(layout.offset(2) == 30);
  CHECK(layout.bytes(3) == 10);
  CHECK(layout.bytes(4) == 0);
}

TEST_CASE("a lane without steps is done at once", "[plan][cursor]") {
  const Geometry geometry{Layout::even(8, 8), Layout::even(8, 8), 8, 1};
  CHECK(Cursor(Lane{}, geometry, 5).done());
  CHECK(Cursor().done());
}

}  // namespace cursor_test
