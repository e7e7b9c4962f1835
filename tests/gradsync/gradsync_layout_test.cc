// lib/gradsync's value types: buckets, shares of units, and sums without rounding.
#include "lib/gradsync/buckets.h"
#include "lib/gradsync/exact_sum.h"
#include "lib/gradsync/shard_layout.h"
#include "tests/support/catch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace gradsync_layout_test {

using namespace gyre;
using namespace gyre::gradsync;

TEST_CASE("buckets are full at their limit, hold one type, and leave big tensors alone",
          "[gradsync]") {
  const auto tensor = [](std::uint64_t count, ElementType type) {
    Tensor made;
    made.count = count;
    made.type = type;
    return made;
  };
  const std::vector<Tensor> tensors = {
      tensor(16, ElementType::float32), tensor(1, ElementType::float32),
      tensor(8, ElementType::float64),  tensor(1000, ElementType::float32),
      tensor(16, ElementType::float32), tensor(3, ElementType::float16)};
  std::vector<std::size_t> order = {0, 1, 2, 3, 4, 5};
  const std::vector<Bucket> buckets = lay_out(tensors, order, {.first_bytes = 64, .bytes = 4000});
  REQUIRE(buckets.size() == 6);
  CHECK(buckets[0] == Bucket{ElementType::float32, 16, {{0, 0}}});  // full at 64 bytes
  CHECK(buckets[1] == Bucket{ElementType::float64, 8, {{2, 0}}});
  CHECK(buckets[2] == Bucket{ElementType::float32, 16, {{1, 0}}});  // before a big one
  CHECK(buckets[3] == Bucket{ElementType::float32, 1008, {{3, 0}}});
  CHECK(buckets[4] == Bucket{ElementType::float16, 32, {{5, 0}}});
  CHECK(buckets[5] == Bucket{ElementType::float32, 16, {{4, 0}}});
  std::uint64_t slices = 0;
  for (const Bucket& bucket : lay_out(tensors, order, {.first_bytes = 1 << 20, .bytes = 1 << 20})) {
    CHECK(bucket.slices.size() == (bucket.type == ElementType::float32 ? 4U : 1U));
    for (const Slice& slice : bucket.slices)
      CHECK(slice.first * element_bytes(bucket.type) % slice_alignment == 0);
    slices += bucket.slices.size();
  }
  CHECK(slices == tensors.size());
}

TEST_CASE("an exact sum depends on nobody's order", "[gradsync]") {
  std::mt19937_64 random(5);
  std::uniform_int_distribution<int> exponent(-298, 200);
  std::vector<double> numbers(3000);
  for (double& number : numbers)  // multiples of 2^-298, as sums of squares of float32 are
    number = std::ldexp(static_cast<double>(random() % 1000000), std::max(-298, exponent(random)));
  ExactSum once;
  once.add(numbers);
  for (int round = 0; round < 5; ++round) {
    std::shuffle(numbers.begin(), numbers.end(), random);
    std::vector<ExactSum> ranks(static_cast<std::size_t>(round) + 1);
    for (std::size_t i = 0; i < numbers.size(); ++i) ranks[i % ranks.size()].add(numbers[i]);
    for (std::size_t rank = 1; rank < ranks.size(); ++rank)
      for (std::size_t word = 0; word < ExactSum::word_count; ++word)
        ranks[0].words()[word] += ranks[rank].words()[word];
    CHECK(ranks[0].value() == once.value());
  }
  std::sort(numbers.begin(), numbers.end());
  long double sum = 0;
  for (const double number : numbers) sum += number;
  CHECK(once.value() == Approx(static_cast<double>(sum)).epsilon(1e-15));
  ExactSum small;
  small.add(std::ldexp(1.0, -298));
  small.add(1);
  small.add(std::ldexp(1.0, 260));
  CHECK(small.value() == std::ldexp(1.0, 260));
  CHECK_FALSE(small.overflows());
  for (const double number : {std::numeric_limits<double>::infinity(), std::ldexp(1.0, 400),
                              std::numeric_limits<double>::quiet_NaN(), -1.0}) {
    ExactSum over;
    over.add(number);
    CHECK(over.overflows());
  }
}

TEST_CASE("shares have each element of a unit once", "[gradsync]") {
  const int factor = GENERATE(1, 2, 3, 4, 7, 64);
  std::vector<Tensor> tensors;
  for (const auto& [count, unit] :
       {std::pair(130, 0), {7, 0}, {1000, 1}, {64, 2}, {1, 2}, {6400, 3}}) {
    Tensor tensor;
    tensor.count = static_cast<std::uint64_t>(count);
    tensor.unit = static_cast<std::size_t>(unit);
    tensors.push_back(tensor);
  }
  const auto layouts = lay_out_units(tensors, static_cast<std::uint64_t>(factor));
  REQUIRE(layouts.ok());
  std::vector<std::uint64_t> next(tensors.size(), 0);
  for (const UnitLayout& layout : *layouts) {
    CHECK(layout.share_count % 64 == 0);
    for (std::uint64_t share = 0; share < layout.shares; ++share)
      for (const ShardPiece& piece : layout.pieces_of(share)) {
        CHECK(piece.first == next[piece.tensor]);
        next[piece.tensor] += piece.count;
        CHECK(piece.offset + piece.count <= layout.share_count);
      }
  }
  for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor)
    CHECK(next[tensor] == tensors[tensor].count);
}

}  // namespace gradsync_layout_test
