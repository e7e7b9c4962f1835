// The scalar reference of every move. It defines the results of the vector tables, and runs where
// no table overrides it. A block of accumulators stays in the first-level cache, so each source is
// read once and each target written once, however many there are.
#include "kernels/cpu/float_environment.h"
#include "kernels/cpu/move_table.h"
#include "kernels/cpu/narrow_float.h"
#include "kernels/cpu/quotient.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace gyre::kernels {
namespace {

// How one element type is read, kept while it is combined, and written.
template <typename IntegerLanes>
struct IntegerElement {
  using Stored = IntegerLanes;
  using Accumulator = IntegerLanes;
  // Arithmetic that may wrap is done unsigned, and wide enough that C++ promotes it to no int.
  using Wrapping = std::conditional_t<sizeof(IntegerLanes) == 8, std::uint64_t, std::uint32_t>;

  static Accumulator widen(Stored stored) { return stored; }
  static Stored narrow(Accumulator value) { return value; }
  static Accumulator add(Accumulator a, Accumulator b) {
    return static_cast<IntegerLanes>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
  }
  static Accumulator multiply(Accumulator a, Accumulator b) {
    return static_cast<IntegerLanes>(static_cast<Wrapping>(a) * static_cast<Wrapping>(b));
  }
  static Accumulator minimum(Accumulator a, Accumulator b) { return b < a ? b : a; }
  static Accumulator maximum(Accumulator a, Accumulator b) { return a < b ? b : a; }
  static Accumulator divide(Accumulator a, std::uint32_t divisor) { return quotient(a, divisor); }
};

template <typename Float, typename Bits, Bits canonical_nan>
struct FloatElement {
  using Stored = Float;
  using Accumulator = Float;

  static Float nan() { return __builtin_bit_cast(Float, canonical_nan); }
  static bool negative(Float a) {
    return (__builtin_bit_cast(Bits, a) >> (8 * sizeof(Bits) - 1)) != 0;
  }
  static Accumulator widen(Stored stored) { return stored; }
  static Stored narrow(Accumulator value) { return value == value ? value : nan(); }
  static Accumulator add(Accumulator a, Accumulator b) { return a + b; }
  static Accumulator multiply(Accumulator a, Accumulator b) { return a * b; }
  static Accumulator minimum(Accumulator a, Accumulator b) {
    if (a != a || b != b) return nan();
    if (a == b) return negative(a) ? a : b;  // equal, or zeros of either sign
    return a < b ? a : b;
  }
  static Accumulator maximum(Accumulator a, Accumulator b) {
    if (a != a || b != b) return nan();
    if (a == b) return negative(a) ? b : a;
    return a < b ? b : a;
  }
  static Accumulator divide(Accumulator a, std::uint32_t divisor) {
    return a / static_cast<Float>(divisor);
  }
};

using Float32Element = FloatElement<float, std::uint32_t, Float32Bits::canonical_nan>;
using Float64Element = FloatElement<double, std::uint64_t, 0x7ff8000000000000>;

template <typename Format, typename Code>
struct NarrowElement : Float32Element {
  using Stored = Code;
  static float widen(Code code) { return __builtin_bit_cast(float, Format::widen(code)); }
  static Code narrow(float value) {
    return static_cast<Code>(Format::narrow(__builtin_bit_cast(std::uint32_t, value)));
  }
};

// The reductions, by the names that table_row lists them under.
struct Add {
  template <typename E>
  static auto apply(auto a, auto b) {
    return E::add(a, b);
  }
};
struct Multiply {
  template <typename E>
  static auto apply(auto a, auto b) {
    return E::multiply(a, b);
  }
};
struct Minimum {
  template <typename E>
  static auto apply(auto a, auto b) {
    return E::minimum(a, b);
  }
};
struct Maximum {
  template <typename E>
  static auto apply(auto a, auto b) {
    return E::maximum(a, b);
  }
};
struct And {
  template <typename E, typename T>
  static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <typename E, typename T>
  static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <typename E, typename T>
  static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

constexpr std::uint64_t block_elements = 512;

template <typename Element>
struct Block {
  using Stored = typename Element::Stored;
  using Accumulator = typename Element::Accumulator;
  Accumulator values[block_elements];
  std::uint64_t count;

  static Stored read(const void* source, std::uint64_t index) {
    Stored stored;
    std::memcpy(&stored, static_cast<const std::byte*>(source) + index * sizeof stored,
                sizeof stored);
    return stored;
  }

  void set(const void* source, std::uint64_t begin) {
    for (std::uint64_t i = 0; i < count; ++i) values[i] = Element::widen(read(source, begin + i));
  }
  void scale(Accumulator factor) {
    for (std::uint64_t i = 0; i < count; ++i) values[i] = Element::multiply(values[i], factor);
  }
  template <typename Op>
  void combine(const Block& other) {
    for (std::uint64_t i = 0; i < count; ++i)
      values[i] = Op::template apply<Element>(values[i], other.values[i]);
  }
  void divide(std::uint32_t divisor) {
    for (std::uint64_t i = 0; i < count; ++i) values[i] = Element::divide(values[i], divisor);
  }
  void write(void* target, std::uint64_t begin) const {
    std::byte* place = static_cast<std::byte*>(target) + begin * sizeof(Stored);
    for (std::uint64_t i = 0; i < count; ++i) {
      const Stored stored = Element::narrow(values[i]);
      std::memcpy(place + i * sizeof stored, &stored, sizeof stored);
    }
  }
};

template <typename Element, typename Op, bool adjusted>
[[gnu::noinline]] void reduce(const MoveOperands& move) {
  Block<Element> sum;
  Block<Element> next;
  for (std::uint64_t begin = 0; begin < move.count; begin += block_elements) {
    sum.count = next.count = std::min(block_elements, move.count - begin);
    for (std::uint32_t s = 0; s < move.source_count; ++s) {
      Block<Element>& block = s == 0 ? sum : next;
      block.set(move.sources[s], begin);
      if (adjusted && static_cast<std::int32_t>(s) == move.pre_source)
        block.scale(Element::widen(Block<Element>::read(move.pre_scalar, 0)));
      if (s > 0) sum.template combine<Op>(next);
    }
    if (adjusted && move.divisor != 1) sum.divide(move.divisor);
    for (std::uint32_t t = 0; t < move.target_count; ++t) sum.write(move.targets[t], begin);
  }
}

void copy_bytes(const MoveOperands& move) {
  for (std::uint32_t t = 0; t < move.target_count; ++t)
    if (move.targets[t] != move.sources[0] && move.count > 0)
      std::memcpy(move.targets[t], move.sources[0], move.count);
}

template <typename Element, typename Op, bool may_adjust>
void entry(const MoveOperands& move) {
  const bool adjusted = may_adjust && (move.pre_source >= 0 || move.divisor != 1);
  if (move.source_count == 1 && !adjusted) {
    MoveOperands bytes = move;
    bytes.count *= sizeof(typename Element::Stored);
    return copy_bytes(bytes);
  }
  if constexpr (std::is_floating_point_v<typename Element::Accumulator>) {
    if (adjusted) return with_float_environment<reduce<Element, Op, may_adjust>>(move);
    with_float_environment<reduce<Element, Op, false>>(move);
  } else {
    if (adjusted) return reduce<Element, Op, may_adjust>(move);
    reduce<Element, Op, false>(move);
  }
}

template <typename Element>
constexpr void table_row(MoveTable& table, ElementType type) {
  table.at(type, ReduceOp::sum) = entry<Element, Add, true>;
  table.at(type, ReduceOp::avg) = entry<Element, Add, true>;
  table.at(type, ReduceOp::pre_mul_sum) = entry<Element, Add, true>;
  table.at(type, ReduceOp::prod) = entry<Element, Multiply, false>;
  table.at(type, ReduceOp::min) = entry<Element, Minimum, false>;
  table.at(type, ReduceOp::max) = entry<Element, Maximum, false>;
  if constexpr (std::is_integral_v<typename Element::Accumulator>) {
    table.at(type, ReduceOp::band) = entry<Element, And, false>;
    table.at(type, ReduceOp::bor) = entry<Element, Or, false>;
    table.at(type, ReduceOp::bxor) = entry<Element, Xor, false>;
  }
}

// ------------------------------------------------------------------------------ two sources

template <typename Element, typename Op>
[[gnu::noinline]] void reduce_two(const void* const& first, const void* const& second,
                                  void* const& target, const std::uint64_t& count) {
  using Values = Block<Element>;
  auto* const place = static_cast<std::byte*>(target);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto stored = Element::narrow(Op::template apply<Element>(
        Element::widen(Values::read(first, i)), Element::widen(Values::read(second, i))));
    std::memcpy(place + i * sizeof stored, &stored, sizeof stored);
  }
}

template <typename Element, typename Op>
void pair_entry(const void* first, const void* second, void* target, std::uint64_t count) {
  if constexpr (std::is_floating_point_v<typename Element::Accumulator>)
    with_float_environment<reduce_two<Element, Op>>(first, second, target, count);
  else
    reduce_two<Element, Op>(first, second, target, count);
}

// Elements of a word, in their order in memory.
template <typename Element>
using WordElements =
    std::array<typename Element::Stored, sizeof(std::uint64_t) / sizeof(typename Element::Stored)>;

template <typename Element, typename Op>
[[gnu::always_inline]] inline std::uint64_t word_of(std::uint64_t first, std::uint64_t second) {
  static_assert(std::is_same_v<typename Element::Stored, typename Element::Accumulator>);
  const auto a = std::bit_cast<WordElements<Element>>(first);
  const auto b = std::bit_cast<WordElements<Element>>(second);
  WordElements<Element> sum;
  bool all_are_numbers = true;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    sum[i] = Op::template apply<Element>(Element::widen(a[i]), Element::widen(b[i]));
    all_are_numbers &= sum[i] == sum[i];
  }
  if (!all_are_numbers) [[unlikely]]
    for (typename Element::Stored& one : sum) one = Element::narrow(one);
  return std::bit_cast<std::uint64_t>(sum);
}

template <typename Element, typename Op>
[[gnu::noinline]] void reduce_words(const std::uint64_t& first, const std::uint64_t& second,
                                    std::uint64_t* const& sum) {
  *sum = word_of<Element, Op>(first, second);
}

template <typename Element, typename Op>
std::uint64_t word_entry(std::uint64_t first, std::uint64_t second) {
  if constexpr (std::is_floating_point_v<typename Element::Accumulator>) {
    if (!FloatEnvironment::is_usual()) [[unlikely]] {
      std::uint64_t sum = 0;
      with_float_environment<reduce_words<Element, Op>>(first, second, &sum);
      return sum;
    }
  }
  return word_of<Element, Op>(first, second);
}

template <typename Element, typename Op>
struct PairEntry {
  static constexpr PairFunction function = pair_entry<Element, Op>;
};
template <typename Element, typename Op>
struct WordEntry {
  static constexpr WordFunction function = word_entry<Element, Op>;
};

// Entry: one of those two.
template <template <typename, typename> typename Entry, typename Element>
auto entry_of(ReduceOp op) -> decltype(+Entry<Element, Add>::function) {
  switch (op) {
    case ReduceOp::sum:
      return Entry<Element, Add>::function;
    case ReduceOp::prod:
      return Entry<Element, Multiply>::function;
    case ReduceOp::min:
      return Entry<Element, Minimum>::function;
    case ReduceOp::max:
      return Entry<Element, Maximum>::function;
    default:
      break;
  }
  if constexpr (std::is_integral_v<typename Element::Accumulator>) {
    if (op == ReduceOp::band) return Entry<Element, And>::function;
    if (op == ReduceOp::bor) return Entry<Element, Or>::function;
    if (op == ReduceOp::bxor) return Entry<Element, Xor>::function;
  }
  return nullptr;
}

template <template <typename, typename> typename Entry>
auto find_entry(ElementType type, ReduceOp op) -> decltype(entry_of<Entry, Float32Element>(op)) {
  switch (type) {
    case ElementType::int8:
      return entry_of<Entry, IntegerElement<std::int8_t>>(op);
    case ElementType::uint8:
      return entry_of<Entry, IntegerElement<std::uint8_t>>(op);
    case ElementType::int32:
      return entry_of<Entry, IntegerElement<std::int32_t>>(op);
    case ElementType::uint32:
      return entry_of<Entry, IntegerElement<std::uint32_t>>(op);
    case ElementType::int64:
      return entry_of<Entry, IntegerElement<std::int64_t>>(op);
    case ElementType::uint64:
      return entry_of<Entry, IntegerElement<std::uint64_t>>(op);
    case ElementType::float32:
      return entry_of<Entry, Float32Element>(op);
    case ElementType::float64:
      return entry_of<Entry, Float64Element>(op);
    default:
      return nullptr;
  }
}

constexpr MoveTable make_table() {
  MoveTable table;
  table_row<IntegerElement<std::int8_t>>(table, ElementType::int8);
  table_row<IntegerElement<std::uint8_t>>(table, ElementType::uint8);
  table_row<IntegerElement<std::int32_t>>(table, ElementType::int32);
  table_row<IntegerElement<std::uint32_t>>(table, ElementType::uint32);
  table_row<IntegerElement<std::int64_t>>(table, ElementType::int64);
  table_row<IntegerElement<std::uint64_t>>(table, ElementType::uint64);
  table_row<Float32Element>(table, ElementType::float32);
  table_row<Float64Element>(table, ElementType::float64);
  table_row<NarrowElement<Float16, std::uint16_t>>(table, ElementType::float16);
  table_row<NarrowElement<BFloat16, std::uint16_t>>(table, ElementType::bfloat16);
  table_row<NarrowElement<Float8E4M3, std::uint8_t>>(table, ElementType::float8_e4m3);
  table_row<NarrowElement<Float8E5M2, std::uint8_t>>(table, ElementType::float8_e5m2);
  table.copy = copy_bytes;
  return table;
}

}  // namespace

constinit const MoveTable reference_table = make_table();

PairFunction find_pair(ElementType type, ReduceOp op) { return find_entry<PairEntry>(type, op); }

WordFunction find_word(ElementType type, ReduceOp op) { return find_entry<WordEntry>(type, op); }

}  // namespace gyre::kernels
