// The host move loops, every table entry against the element-at-a-time oracle, bit for bit.
// "[.soak]" takes the whole product of shapes where the default run draws from it.
#include "kernels/cpu/move.h"

#include "kernels/cpu/move_table.h"
#include "tests/support/catch.h"
#include "tests/support/kernels/move_trial.h"

#include <array>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace move_test {

using namespace gyre;
using namespace gyre::kernels;

namespace {

constexpr std::uint64_t max_elements = 5003;
constexpr std::uint32_t max_sources = 17;

// Under settings of the calling thread that reductions must not take over. They are kept.
template <typename Body>
auto in_odd_environment(const Body& body) {
#if defined(__SSE__)
  constexpr unsigned flush_and_round_up = 0x1f80 | 0x8040 | 0x4000;  // FTZ, DAZ, towards +Inf
  _mm_setcsr(flush_and_round_up);
  const auto result = body();
  const unsigned after = _mm_getcsr();
  _mm_setcsr(0x1f80);
  CHECK((after & ~0x3fU) == flush_and_round_up);
  return result;
#else
  return body();
#endif
}

std::vector<Adjustment> adjustments(ElementType type, ReduceOp op, std::uint32_t sources,
                                    Random& random) {
  std::vector<Adjustment> all = {{}};
  if (!is_sum(op)) return all;
  const int last = static_cast<int>(sources) - 1;
  const auto scalar = [&] { return random_code(type, random); };
  if (op == ReduceOp::sum) all.push_back({static_cast<int>(random() % sources), scalar(), 3});
  if (op == ReduceOp::avg) all.push_back({-1, 0, 8});
  if (op == ReduceOp::avg) all.push_back({-1, 0, 6});
  if (op == ReduceOp::avg) all.push_back({-1, 0, 1000003});
  if (op == ReduceOp::pre_mul_sum) all.push_back({0, scalar(), 1});
  if (op == ReduceOp::pre_mul_sum && last > 0) all.push_back({last, scalar(), 1});
  return all;
}

const std::vector<std::uint64_t> counts = {0, 1, 15, 61, 256, 1021, max_elements};

std::vector<Shape> all_shapes(std::uint32_t sources) {
  std::vector<Shape> shapes;
  for (std::uint64_t count : counts)
    for (std::uint32_t targets : {1U, 2U, 3U})
      for (int in_place : {-1, 0, static_cast<int>(sources) - 1})
        for (std::uint64_t misalignment : {0U, 1U, 8U, 60U})
          for (bool skewed : {false, true})
            for (std::uint32_t streamed : {0U, 1U, 6U})
              shapes.push_back({count, targets, in_place, misalignment, skewed, streamed});
  return shapes;
}

// Shapes `stride` apart, from a random start: with a stride prime to the product, each value of
// each axis comes up.
void check_table(std::uint64_t stride) {
  Random random(tests::rng_seed());
  for (ElementType type : all_types())
    for (ReduceOp op : ops_of(type))
      for (std::uint32_t sources : {1U, 2U, 3U, 4U, 5U, 8U, 9U, max_sources})
        for (const Adjustment& adjust : adjustments(type, op, sources, random)) {
          const Trial trial = Trial::random(type, op, sources, adjust, max_elements, random);
          const std::vector<Shape> shapes = all_shapes(sources);
          for (InstructionSet set : sets_here())
            for (std::uint64_t i = random() % stride; i < shapes.size(); i += stride)
              trial.check(set, shapes[i]);
        }
}

TEST_CASE("every table entry gives the oracle's bits in every shape") { check_table(41); }
TEST_CASE("every table entry gives the oracle's bits in the whole product", "[.soak]") {
  check_table(1);
}

TEST_CASE("every pair of special values gives the oracle's bits in both orders") {
  for (ElementType type : all_types()) {
    std::vector<std::vector<Code>> pairs;
    for (Code a : special_codes(type))
      for (Code b : special_codes(type)) pairs.push_back({a, b});
    for (ReduceOp op : ops_of(type)) Trial(type, op, 2, {}, pairs).check_whole();
    for (std::uint32_t divisor : {2U, 3U, 255U, 256U, 257U, 4294967295U})
      Trial(type, ReduceOp::avg, 2, {-1, 0, divisor}, pairs).check_whole();
    for (Code scalar : special_codes(type))
      Trial(type, ReduceOp::pre_mul_sum, 2, {1, scalar, 1}, pairs).check_whole();
  }
}

TEST_CASE("the function of two sources alone gives the bits of the general one") {
  for (ElementType type : all_types())
    for (ReduceOp op : ops_of(type)) {
      const PairFunction pair = find_pair(type, op);
      const auto bytes = static_cast<std::uint32_t>(element_bytes(type));
      if (bytes != 2 && type != ElementType::float8_e4m3 && type != ElementType::float8_e5m2)
        CHECK((pair != nullptr) == (op != ReduceOp::avg && op != ReduceOp::pre_mul_sum));
      if (pair == nullptr) continue;
      for (Code a : special_codes(type))
        for (Code b : special_codes(type)) {
          // Of a count that no vector is filled by, at odd places.
          std::array<std::byte, 3 * 8 + 1> first{}, second{}, wanted{}, got{};
          for (std::uint32_t i = 0; i < 3; ++i) {
            std::memcpy(&first[1 + i * bytes], i == 1 ? &b : &a, bytes);
            std::memcpy(&second[1 + i * bytes], i == 2 ? &a : &b, bytes);
          }
          const void* sources[] = {&first[1], &second[1]};
          void* targets[] = {&wanted[1]};
          find_move(type, op)({sources, 2, targets, 1, 3});
          pair(&first[1], &second[1], &got[1], 3);
          if (wanted != got)
            FAIL_CHECK(op_name(op) << " of " << element_name(type) << " " << a << " and " << b);
        }
    }
}

TEST_CASE("the function of two words gives the bits of the general one, in either order") {
  for (ElementType type : all_types())
    for (ReduceOp op : ops_of(type)) {
      const WordFunction word = find_word(type, op);
      CHECK((word != nullptr) == (find_pair(type, op) != nullptr));
      if (word == nullptr) continue;
      const auto bytes = static_cast<std::uint32_t>(element_bytes(type));
      const std::uint64_t count = sizeof(std::uint64_t) / bytes;
      for (Code a : special_codes(type))
        for (Code b : special_codes(type)) {
          std::uint64_t first = 0, second = 0, wanted = 0;
          for (std::uint64_t i = 0; i < count; ++i) {
            std::memcpy(reinterpret_cast<std::byte*>(&first) + i * bytes, i % 2 == 1 ? &b : &a,
                        bytes);
            std::memcpy(reinterpret_cast<std::byte*>(&second) + i * bytes, i % 3 == 1 ? &a : &b,
                        bytes);
          }
          const void* sources[] = {&first, &second};
          void* targets[] = {&wanted};
          find_move(type, op)({sources, 2, targets, 1, count});
          const std::uint64_t got = word(first, second), swapped = word(second, first);
          const std::uint64_t elsewhere = in_odd_environment([&] { return word(first, second); });
          if (got != wanted || swapped != wanted || elsewhere != wanted)
            FAIL_CHECK(op_name(op) << " of " << element_name(type) << " " << a << " and " << b);
        }
    }
}

TEST_CASE("every pair of 8-bit numbers gives the oracle's bits") {
  for (ElementType type : all_types()) {
    if (element_bytes(type) != 1) continue;
    std::vector<std::vector<Code>> pairs;
    for (Code a = 0; a < 256; ++a)
      for (Code b = 0; b < 256; ++b) pairs.push_back({a, b});
    for (ReduceOp op : ops_of(type)) Trial(type, op, 2, {}, pairs).check_whole();
    Trial(type, ReduceOp::avg, 2, {-1, 0, 7}, pairs).check_whole();
  }
}

TEST_CASE("every 16-bit float next to a few others gives the oracle's bits") {
  for (ElementType type : {ElementType::float16, ElementType::bfloat16}) {
    std::vector<std::vector<Code>> pairs;
    for (Code a = 0; a < 65536; ++a) {
      pairs.push_back({a, a ^ 0x8001});  // cancels to the last place
      pairs.push_back({oracle::float_code(1.5, type), a});
    }
    for (ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max})
      Trial(type, op, 2, {}, pairs).check_whole();
  }
}

// float16 arithmetic in one instruction must round as by way of float32 does: each `stride`th first
// operand with every second one.
void check_native_float16(std::uint32_t stride) {
  const std::uint32_t codes = 65536;
  std::vector<std::uint16_t> first(codes), second(codes), wide(codes), native(codes);
  for (std::uint32_t b = 0; b < codes; ++b) second[b] = static_cast<std::uint16_t>(b);
  const void* sources[] = {first.data(), second.data()};
  for (std::uint32_t a = 0; a < codes; a += stride) {
    std::fill(first.begin(), first.end(), static_cast<std::uint16_t>(a));
    for (ReduceOp op : {ReduceOp::sum, ReduceOp::prod}) {
      void* to_wide[] = {wide.data()};
      void* to_native[] = {native.data()};
      find_move(ElementType::float16, op, InstructionSet::avx2)({sources, 2, to_wide, 1, codes});
      find_move(ElementType::float16, op)({sources, 2, to_native, 1, codes});
      if (wide != native) FAIL_CHECK(op_name(op) << " of float16 " << a << " and another");
    }
  }
}

TEST_CASE("float16 rounds the same natively and by way of float32") { check_native_float16(37); }
TEST_CASE("every pair of float16 rounds the same natively and by way of float32", "[.soak]") {
  check_native_float16(1);
}

struct Fact {
  ElementType type;
  ReduceOp op;
  std::vector<Code> sources;
  Code result;
};

TEST_CASE("NaN, Inf, signed zeros, subnormals and overflow come out as documented") {
  using enum ElementType;
  const Fact facts[] = {
      {float32, ReduceOp::sum, {0x7f800000, 0xff800000}, 0x7fc00000},  // Inf - Inf
      {float32, ReduceOp::sum, {0xffc12345, 0x3f800000}, 0x7fc00000},
      {float32, ReduceOp::max, {0x3f800000, 0x7f800001}, 0x7fc00000},  // signalling
      {float32, ReduceOp::min, {0xffc00000, 0x3f800000}, 0x7fc00000},
      {float32, ReduceOp::min, {0x00000000, 0x80000000}, 0x80000000},
      {float32, ReduceOp::min, {0x80000000, 0x00000000}, 0x80000000},
      {float32, ReduceOp::max, {0x80000000, 0x00000000}, 0x00000000},
      {float32, ReduceOp::max, {0x00000000, 0x80000000}, 0x00000000},
      {float32, ReduceOp::sum, {0x00000001, 0x00000001}, 0x00000002},
      {float32, ReduceOp::sum, {0x7f7fffff, 0x7f7fffff}, 0x7f800000},
      {float64, ReduceOp::sum, {0x7ff0000000000000, 0xfff0000000000000}, 0x7ff8000000000000},
      {float64, ReduceOp::sum, {1, 1}, 2},
      {float64, ReduceOp::max, {0x7ff0000000000001, 0}, 0x7ff8000000000000},
      {float16, ReduceOp::sum, {0x7bff, 0x7bff}, 0x7c00},
      {float16, ReduceOp::sum, {0x7c00, 0xfc00}, 0x7e00},
      {float16, ReduceOp::sum, {0x0001, 0x0001}, 0x0002},
      {float16, ReduceOp::min, {0xfe01, 0x3c00}, 0x7e00},
      {float16, ReduceOp::sum, {0x7bff, 0x7bff, 0xfbff}, 0x7bff},  // float32 in between
      {bfloat16, ReduceOp::sum, {0x7f80, 0xff80}, 0x7fc0},
      {bfloat16, ReduceOp::sum, {0x7f7f, 0x7f7f}, 0x7f80},
      {bfloat16, ReduceOp::sum, {0x0001, 0x0001}, 0x0002},
      {bfloat16, ReduceOp::max, {0x8000, 0x0000}, 0x0000},
      {float8_e4m3, ReduceOp::sum, {0x7e, 0x7e}, 0x7f},        // 448 + 448: no Inf to be
      {float8_e4m3, ReduceOp::sum, {0x7e, 0x58}, 0x7e},        // 464: a tie, to even
      {float8_e4m3, ReduceOp::sum, {0x7e, 0x58, 0x01}, 0x7f},  // a little more
      {float8_e4m3, ReduceOp::prod, {0xfe, 0x7e}, 0x7f},
      {float8_e4m3, ReduceOp::min, {0xff, 0x38}, 0x7f},
      {float8_e4m3, ReduceOp::sum, {0x01, 0x01}, 0x02},
      {float8_e5m2, ReduceOp::sum, {0x7b, 0x7b}, 0x7c},
      {float8_e5m2, ReduceOp::sum, {0x7c, 0xfc}, 0x7f},
      {float8_e5m2, ReduceOp::sum, {0xfb, 0xfb}, 0xfc},
      {float8_e5m2, ReduceOp::max, {0x7d, 0x3c}, 0x7f},
      {int8, ReduceOp::sum, {0x7f, 0x01}, 0x80},
      {int32, ReduceOp::prod, {0x80000000, 0xffffffff}, 0x80000000},
      {int64, ReduceOp::min, {0x8000000000000000, 1}, 0x8000000000000000},
      {uint64, ReduceOp::min, {0x8000000000000000, 1}, 1},
  };
  for (const Fact& fact : facts) {
    INFO(element_name(fact.type) << " " << op_name(fact.op) << " to " << std::hex << fact.result);
    CHECK(oracle::reduce(fact.sources, fact.type, fact.op, {}) == fact.result);
    const auto sources = static_cast<std::uint32_t>(fact.sources.size());
    Trial(fact.type, fact.op, sources, {}, std::vector(67, fact.sources)).check_whole();
  }
}

TEST_CASE("an integer average divides the wrapped sum and truncates towards zero") {
  struct Average {
    Code a, b;
    std::uint32_t divisor;
    Code result;
  };
  for (const Average& average : {Average{0xf9, 0, 2, 0xfd},     // -7 / 2 = -3
                                 Average{0x7f, 0x7f, 2, 0xff},  // 254 wraps to -2
                                 Average{0x9c, 0, 300, 0}}) {
    const Adjustment adjust{-1, 0, average.divisor};
    const std::vector<Code> sources{average.a, average.b};
    CHECK(oracle::reduce(sources, ElementType::int8, ReduceOp::avg, adjust) == average.result);
    Trial(ElementType::int8, ReduceOp::avg, 2, adjust, std::vector(67, sources)).check_whole();
  }
}

TEST_CASE("1024 ones sum to exactly 1024 in one move") {
  for (ElementType type : {ElementType::float16, ElementType::bfloat16, ElementType::float32}) {
    const Code one = oracle::float_code(1, type);
    const std::vector<std::vector<Code>> ones(200, std::vector<Code>(1024, one));
    CHECK(oracle::reduce(ones[0], type, ReduceOp::sum, {}) == oracle::float_code(1024, type));
    Trial(type, ReduceOp::sum, 1024, {}, ones).check_whole();
  }
}

TEST_CASE("the thread's rounding and flush-to-zero settings change no bit and are kept") {
  Random random(tests::rng_seed());
  for (ElementType type : all_types())
    for (ReduceOp op : ops_of(type)) {
      const Trial trial = Trial::random(type, op, 3, {}, max_elements, random);
      for (InstructionSet set : sets_here()) {
        const Shape shape{trial.count(), 1, -1, 0, false, 0};
        const bool right = in_odd_environment([&] { return trial.passes(set, shape); });
        if (!right) FAIL_CHECK(trial.describe(set, shape));
      }
    }
}

// Pages between two that may not be touched.
class Fenced {
 public:
  explicit Fenced(std::uint64_t bytes)
      : page_(static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE))),
        inside_((bytes + page_ - 1) / page_ * page_),
        memory_(mmap(nullptr, inside_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    REQUIRE(memory_ != MAP_FAILED);
    REQUIRE(mprotect(begin(), inside_, PROT_READ | PROT_WRITE) == 0);
  }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  ~Fenced() { munmap(memory_, inside_ + 2 * page_); }
  std::byte* begin() const { return static_cast<std::byte*>(memory_) + page_; }
  std::byte* end() const { return begin() + inside_; }

 private:
  std::uint64_t page_, inside_;
  void* memory_;
};

TEST_CASE("no move touches a byte beside its ranges") {
  const Fenced a(4096), b(4096), c(4096);
  for (ElementType type : all_types())
    for (InstructionSet set : sets_here())
      for (std::uint32_t streamed : {0U, 1U})
        for (std::uint64_t count = 0; count <= 300; ++count) {
          const std::uint64_t bytes = count * element_bytes(type);
          for (bool at_end : {false, true}) {
            const auto place = [&](const Fenced& f) {
              return at_end ? f.end() - bytes : f.begin();
            };
            const void* sources[] = {place(a), place(b)};
            void* targets[] = {place(c)};
            MoveOperands move{sources, 2, targets, 1, count};
            move.streamed = streamed;
            find_move(type, ReduceOp::sum, set)(move);  // a fault is the failure
            move.source_count = 1;
            find_move(type, ReduceOp::sum, set)(move);
            move.divisor = 3;
            find_move(type, ReduceOp::avg, set)(move);
          }
        }
}

TEST_CASE("a copy in place does not write its source") {
  const Fenced read_only(4096), other(4096);
  const void* source = read_only.begin();
  REQUIRE(mprotect(read_only.begin(), 4096, PROT_READ) == 0);
  for (InstructionSet set : sets_here())
    for (std::uint32_t target_count : {1U, 2U})
      for (std::uint64_t count : {20U, 1000U}) {
        void* targets[] = {read_only.begin(), other.begin()};
        MoveOperands move{&source, 1, targets, target_count, count};
        move.streamed = count == 1000 ? 1 : 0;
        find_move(ElementType::float32, ReduceOp::max, set)(move);  // a fault is the failure
        copy_move(move, set);
      }
}

TEST_CASE("bytes are copied to every target but the source itself") {
  const bool usual = copies_by_string;
  copies_by_string = GENERATE(false, true);
  Random random(tests::rng_seed());
  std::vector<std::byte> content(70'000);
  for (std::byte& byte : content) byte = static_cast<std::byte>(random());
  for (InstructionSet set : sets_here())
    for (std::uint64_t bytes : {0U, 1U, 63U, 64U, 65U, 511U, 4099U, 70'000U})
      for (std::uint32_t target_count : {1U, 2U, 3U, 16U, 17U, 40U})
        for (std::uint32_t streamed : {0U, 1U, 0xfffffffeU}) {
          Place source(content, bytes, bytes % 5);
          std::vector<Place> targets;
          std::vector<void*> to;
          for (std::uint32_t t = 0; t < target_count; ++t) {
            targets.emplace_back(std::vector<std::byte>(), bytes, 7 * t % 64);
            to.push_back(t == target_count / 2 && t > 0 ? source.data() : targets[t].data());
          }
          const void* from = source.data();
          MoveOperands move{&from, 1, to.data(), target_count, bytes};
          move.streamed = streamed;
          copy_move(move, set);
          bool right = source.holds(content, bytes);
          for (std::uint32_t t = 0; t < target_count; ++t)
            right &= to[t] == from || targets[t].holds(content, bytes);
          CHECK(right);
        }
  copies_by_string = usual;
}

TEST_CASE("a better instruction set is used for every pair") {
  for (InstructionSet set : {InstructionSet::avx2, InstructionSet::avx512}) {
    if (set > best_instruction_set()) continue;
    const auto lesser = static_cast<InstructionSet>(static_cast<int>(set) - 1);
    for (ElementType type : all_types())
      for (ReduceOp op : ops_of(type))
        CHECK(find_move(type, op, set) != find_move(type, op, lesser));
  }
  CHECK(find_move(ElementType::float32, ReduceOp::sum) ==
        find_move(ElementType::float32, ReduceOp::sum, best_instruction_set()));
}

#ifdef __x86_64__
TEST_CASE("the best instruction set is what the compiler's own look at the processor finds") {
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  CHECK((best_instruction_set() >= InstructionSet::avx2) ==
        static_cast<bool>(__builtin_cpu_supports("avx2")));
  CHECK((best_instruction_set() >= InstructionSet::avx512) == avx512);
}
#endif

TEST_CASE("a pair that does not exist has a function that touches nothing") {
  for (ElementType type : all_types())
    for (int o = 0; o < reduce_op_count; ++o) {
      const auto op = static_cast<ReduceOp>(o);
      const bool bitwise = op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
      CHECK(supported(type, op) == !(bitwise && is_float(type)));
      REQUIRE(find_move(type, op) != nullptr);
      if (supported(type, op)) continue;
      const void* nowhere[] = {nullptr, nullptr};
      void* no_target[] = {nullptr};
      find_move(type, op)({nowhere, 2, no_target, 1, 100});
    }
}

}  // namespace

}  // namespace move_test
