// The benchmarks' checks: right data passes, and every kind of wrong data is found, for each type
// and operation. The move loops make the right data. They were written apart from the checks, and
// are not tested here.
#include "bench/runner/check.h"
#include "bench/runner/statistics.h"
#include "kernels/cpu/move.h"
#include "tests/support/catch.h"

#include <fmt/core.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace bench_check_test {

using namespace gyre;
using namespace gyre::bench;

namespace {

constexpr std::uint64_t count = 1000;

constexpr ReduceOp all_ops[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::max,
                                ReduceOp::min, ReduceOp::avg,  ReduceOp::band,
                                ReduceOp::bor, ReduceOp::bxor, ReduceOp::pre_mul_sum};

using Data = std::vector<unsigned char>;

// All ranks' inputs, combined one after the other with a rounding to the type after each: what a
// ring does, the most roundings that a plan may have.
Data ring_result(const Recipe& recipe, int ranks, std::uint64_t elements) {
  const std::uint64_t bytes = elements * element_bytes(recipe.type);
  const bool scaled = recipe.op == ReduceOp::pre_mul_sum;
  Data sum, next(bytes);
  for (int rank = 0; rank < ranks; ++rank) {
    fill_inputs(recipe, rank, 0, elements, next.data());
    std::uint64_t factor = factor_bits(recipe.type, rank);
    if (rank == 0) sum = next;
    const void* sources[] = {sum.data(), next.data()};
    void* target = sum.data();
    kernels::MoveOperands move;
    move.sources = rank == 0 ? sources + 1 : sources;
    move.source_count = rank == 0 ? 1 : 2;
    move.targets = &target;
    move.target_count = 1;
    move.count = elements;
    move.pre_source = scaled ? static_cast<int>(move.source_count) - 1 : -1;
    move.pre_scalar = scaled ? &factor : nullptr;
    if (recipe.op == ReduceOp::avg && rank == ranks - 1)
      move.divisor = static_cast<std::uint32_t>(ranks);
    kernels::find_move(recipe.type, recipe.op)(move);
  }
  return sum;
}

template <typename Visitor>
void for_each_recipe(Visitor visit) {
  for (int type = 0; type < element_type_count; ++type)
    for (const ReduceOp op : all_ops) {
      const Recipe recipe = {static_cast<ElementType>(type), op, 7};
      if (!kernels::supported(recipe.type, op)) continue;
      INFO(element_name(recipe.type) << " " << op_name(op));
      visit(recipe);
    }
}

}  // namespace

TEST_CASE("right results pass, for each type and operation, from 1 to 33 ranks") {
  for_each_recipe([](const Recipe& recipe) {
    for (const int ranks : {1, 2, 3, 8, 33}) {
      const Data right = ring_result(recipe, ranks, count);
      const CheckOutcome outcome = check_reduction(recipe, ranks, 0, count, right.data());
      INFO(ranks << " ranks: " << outcome.first);
      CHECK(outcome.wrong == 0);
    }
  });
}

TEST_CASE("one wrong bit that matters is found wherever it is, and nothing else is blamed") {
  for_each_recipe([](const Recipe& recipe) {
    const std::uint64_t size = element_bytes(recipe.type);
    const Data right = ring_result(recipe, 3, count);
    for (const std::uint64_t at : {std::uint64_t{0}, count / 2, count - 1}) {
      Data wrong = right;
      wrong[at * size + size - 1] ^= 0x40;  // the highest bit of an exponent
      const CheckOutcome outcome = check_reduction(recipe, 3, 0, count, wrong.data());
      CHECK(outcome.wrong == 1);
      CHECK(outcome.first.find(fmt::format("element {} is", at)) == 0);
    }
  });
}

TEST_CASE("a result that lacks a rank, or is of other data, is wrong in many elements") {
  for_each_recipe([](const Recipe& recipe) {
    const Data lacks = ring_result(recipe, 3, count);
    // The minimum of three is that of four in three elements of four; an 8-bit sum of four with two
    // bits of mantissa is often as far off by rounding alone.
    CHECK(check_reduction(recipe, 4, 0, count, lacks.data()).wrong > count / 40);
    const Data stale = ring_result({recipe.type, recipe.op, recipe.seed + 1}, 4, count);
    CHECK(check_reduction(recipe, 4, 0, count, stale.data()).wrong > count / 12);
  });
}

TEST_CASE("elements that moved by one place are wrong") {
  for_each_recipe([](const Recipe& recipe) {
    const Data right = ring_result(recipe, 2, count + 1);
    const std::uint64_t size = element_bytes(recipe.type);
    CHECK(check_reduction(recipe, 2, 1, count, right.data() + size).wrong == 0);
    CHECK(check_reduction(recipe, 2, 0, count, right.data() + size).wrong > count / 12);
  });
}

TEST_CASE("NaN and infinity never pass for a finite sum") {
  const Recipe recipe = {ElementType::float32, ReduceOp::sum, 3};
  Data data = ring_result(recipe, 2, count);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 0.0F}) {
    std::memcpy(data.data() + 40, &bad, sizeof bad);
    CHECK(check_reduction(recipe, 2, 0, count, data.data()).wrong == 1);
  }
}

TEST_CASE("the bound is tight: a sum that was rounded to half before its time is found") {
  // Two floats added exactly and then cut to 11 bits break the bound of a 24-bit sum.
  const Recipe recipe = {ElementType::float32, ReduceOp::sum, 3};
  Data data = ring_result(recipe, 2, count);
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, data.data() + i * 4, 4);
    bits &= ~((1U << 13) - 1);
    std::memcpy(data.data() + i * 4, &bits, 4);
  }
  CHECK(check_reduction(recipe, 2, 0, count, data.data()).wrong > count * 9 / 10);
  // Three units in the last place of the larger operands is more than one addition can do.
  data = ring_result(recipe, 2, count);
  for (std::uint64_t i = 0; i < count; ++i) {
    float value = 0;
    std::memcpy(&value, data.data() + i * 4, 4);
    value += 3 * std::ldexp(1.0F, -23);
    std::memcpy(data.data() + i * 4, &value, 4);
  }
  CHECK(check_reduction(recipe, 2, 0, count, data.data()).wrong > count * 9 / 10);
}

TEST_CASE("decoding agrees with the processor for the formats that it has") {
  for (const float value : {0.0F, -0.0F, 1.5F, 3.4e38F, 1e-40F, -1.2e-45F}) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, 4);
    CHECK(Float32::decode(bits) == static_cast<double>(value));
  }
  CHECK(Float32::largest() == static_cast<double>(std::numeric_limits<float>::max()));
  CHECK(Float32::smallest_subnormal() ==
        static_cast<double>(std::numeric_limits<float>::denorm_min()));
  CHECK(Half::largest() == 65504);
  CHECK(Half::decode(1) == std::ldexp(1.0, -24));
  CHECK(std::isinf(Half::decode(0x7c00)));
  CHECK(std::isnan(Half::decode(0x7c01)));
  CHECK(Float8E4M3::largest() == 448);
  CHECK(Float8E4M3::decode(0x01) == std::ldexp(1.0, -9));
  CHECK(std::isnan(Float8E4M3::decode(0x7f)));
  CHECK(Float8E4M3::decode(0x7e) == 448);
  CHECK(Float8E5M2::largest() == 57344);
  CHECK(std::isinf(Float8E5M2::decode(0xfc)));
  CHECK(Bfloat16::decode(0x3fc0) == 1.5);
  CHECK(Float64::decode(0x3ff8000000000000ULL) == 1.5);
}

TEST_CASE("a copy must be the bits of the right rank") {
  for (int type = 0; type < element_type_count; ++type) {
    const Recipe recipe = {static_cast<ElementType>(type), ReduceOp::sum, 11};
    const std::uint64_t size = element_bytes(recipe.type);
    Data data(count * size);
    fill_inputs(recipe, 2, 5, count, data.data());
    CHECK(check_copy(recipe, 2, 5, count, data.data()).wrong == 0);
    CHECK(check_copy(recipe, 1, 5, count, data.data()).wrong > count / 2);
    data[3 * size] ^= 1;
    const CheckOutcome outcome = check_copy(recipe, 2, 5, count, data.data());
    CHECK(outcome.wrong == 1);
    CHECK(outcome.first == "element 8 is not rank 2's input");
  }
}

TEST_CASE("inputs at any address are the same") {
  const Recipe recipe = {ElementType::float64, ReduceOp::sum, 1};
  Data aligned(count * 8), shifted(count * 8 + 1);
  fill_inputs(recipe, 0, 0, count, aligned.data());
  fill_inputs(recipe, 0, 0, count, shifted.data() + 1);
  CHECK(std::memcmp(aligned.data(), shifted.data() + 1, count * 8) == 0);
  CHECK(check_copy(recipe, 0, 0, count, shifted.data() + 1).wrong == 0);
}

TEST_CASE("each byte of a guard is watched") {
  Data guard(guard_bytes);
  write_guard(guard.data());
  CHECK(damaged_guard_bytes(guard.data()) == 0);
  for (std::uint64_t i = 0; i < guard_bytes; ++i) {
    guard[i] ^= 1;
    CHECK(damaged_guard_bytes(guard.data()) == 1);
    guard[i] ^= 1;
  }
}

TEST_CASE("bytes that changed are counted, and no others") {
  Data data(1000, 7);
  CHECK(changed_bytes(data.data(), data.size(), 7) == 0);
  CHECK(changed_bytes(data.data(), data.size(), 8) == 1000);
  data[0] = data[500] = data[999] = 8;
  CHECK(changed_bytes(data.data(), data.size(), 7) == 3);
  CHECK(changed_bytes(data.data() + 1, data.size() - 2, 7) == 1);
  CHECK(changed_bytes(data.data(), 0, 8) == 0);
}

TEST_CASE("outputs that differ in one bit have different fingerprints") {
  Data data(77);
  fill_inputs({ElementType::uint8, ReduceOp::sum, 1}, 0, 0, data.size(), data.data());
  const std::uint64_t before = fingerprint(data.data(), data.size());
  CHECK(fingerprint(data.data(), data.size() - 1) != before);
  for (std::size_t bit = 0; bit < data.size() * 8; ++bit) {
    data[bit / 8] ^= static_cast<unsigned char>(1 << (bit % 8));
    CHECK(fingerprint(data.data(), data.size()) != before);
    data[bit / 8] ^= static_cast<unsigned char>(1 << (bit % 8));
  }
}

TEST_CASE("percentiles are times that occurred") {
  std::vector<double> times;
  for (int i = 200; i >= 1; --i) times.push_back(i);
  const IterationStatistics s = summarize(times);
  CHECK(s.least == 1);
  CHECK(s.most == 200);
  CHECK(s.p50 == 101);
  CHECK(s.p95 == 190);
  CHECK(s.p99 == 198);
  CHECK(s.mean == Approx(100.5));
  CHECK(s.deviation == Approx(std::sqrt((200.0 * 200.0 - 1) / 12)));
  CHECK(summarize(std::vector<double>{3}).p99 == 3);
  CHECK(summarize({}).most == 0);
}

}  // namespace bench_check_test
