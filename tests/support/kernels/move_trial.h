// A move tried against the oracle: some sources of a type, their expected result, and whether a
// function gives exactly that, and touches nothing else, in a given shape of memory.
#pragma once

#include "kernels/cpu/move.h"
#include "tests/support/catch.h"
#include "tests/support/kernels/move_oracle.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace gyre::kernels {

using oracle::Adjustment;
using oracle::Code;
using Random = std::mt19937_64;

inline std::vector<ElementType> all_types() {
  std::vector<ElementType> types;
  for (int t = 0; t < element_type_count; ++t) types.push_back(static_cast<ElementType>(t));
  return types;
}

inline std::vector<ReduceOp> ops_of(ElementType type) {
  std::vector<ReduceOp> ops;
  for (int o = 0; o < reduce_op_count; ++o)
    if (supported(type, static_cast<ReduceOp>(o))) ops.push_back(static_cast<ReduceOp>(o));
  return ops;
}

inline std::vector<InstructionSet> sets_here() {
  std::vector<InstructionSet> sets;
  for (int s = 0; s <= static_cast<int>(best_instruction_set()); ++s)
    sets.push_back(static_cast<InstructionSet>(s));
  return sets;
}

inline bool is_sum(ReduceOp op) {
  return op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::pre_mul_sum;
}

inline Code sign_bit(ElementType type) { return Code{1} << (8 * element_bytes(type) - 1); }

// Zeros, ones, least and greatest, Inf, quiet and signalling NaNs, of either sign.
inline std::vector<Code> special_codes(ElementType type) {
  std::vector<Code> codes = {0, 1, 2, 3, sign_bit(type) - 1};
  if (is_float(type)) {
    codes.push_back(oracle::float_code(1, type));
    codes.push_back(oracle::float_code(3, type));
    const Code infinity = oracle::float_code(std::numeric_limits<double>::infinity(), type);
    for (Code near : {infinity, infinity - 1, infinity - 2}) codes.push_back(near);
    if (type != ElementType::float8_e4m3) codes.push_back(infinity + 1);
    const Code min_normal = infinity & (~infinity + 1);
    for (Code near : {min_normal, min_normal - 1, min_normal + 1}) codes.push_back(near);
  }
  const std::size_t positive = codes.size();
  for (std::size_t i = 0; i < positive; ++i) codes.push_back(codes[i] | sign_bit(type));
  return codes;
}

inline Code random_code(ElementType type, Random& random) {
  const Code mask = sign_bit(type) | (sign_bit(type) - 1);
  const std::uint64_t kind = random() % 16;
  if (kind == 0) {
    const std::vector<Code> special = special_codes(type);
    return special[random() % special.size()];
  }
  if (kind < 4 || !is_float(type)) return random() & mask;
  // Values of like size, so that sums round and do not just keep the largest.
  const double value = std::ldexp(static_cast<double>(random() >> 11), -53) * 4 - 2;
  return oracle::float_code(oracle::rounded(value, type), type);
}

inline void append(std::vector<std::byte>& bytes, Code code, ElementType type) {
  const std::uint32_t size = element_bytes(type);
  bytes.resize(bytes.size() + size);
  std::memcpy(bytes.data() + bytes.size() - size, &code, size);
}

// Memory with a known rim, in which `bytes` lie at a chosen misalignment.
class Place {
 public:
  Place() : Place({}, 0, 0) {}
  Place(const std::vector<std::byte>& content, std::uint64_t bytes, std::uint64_t misalignment)
      : memory_(bytes + 4 * rim, std::byte{0xa5}) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ = (0 - address) % rim + rim + misalignment;
    if (!content.empty()) std::memcpy(data(), content.data(), bytes);
  }
  std::byte* data() { return memory_.data() + begin_; }
  // The content, and around it what was there before.
  bool holds(const std::vector<std::byte>& content, std::uint64_t bytes) {
    const auto is_rim = [](std::byte byte) { return byte == std::byte{0xa5}; };
    const auto first = memory_.begin() + static_cast<std::ptrdiff_t>(begin_);
    const auto last = first + static_cast<std::ptrdiff_t>(bytes);
    return std::all_of(memory_.begin(), first, is_rim) &&
           std::all_of(last, memory_.end(), is_rim) &&
           (bytes == 0 || std::memcmp(data(), content.data(), bytes) == 0);
  }

 private:
  static constexpr std::uint64_t rim = 64;
  std::vector<std::byte> memory_;
  std::uint64_t begin_ = 0;
};

// Everything about a move but its numbers.
struct Shape {
  std::uint64_t count;
  std::uint32_t targets;
  int in_place;                // the first target is this source; -1: none
  std::uint64_t misalignment;  // of the sources; that of the targets differs with `skewed`
  bool skewed;
  std::uint32_t streamed;
};

// Some sources of a type, what they must give, and whether a function gives it in every shape.
class Trial {
 public:
  Trial(ElementType type, ReduceOp op, std::uint32_t sources, const Adjustment& adjust,
        std::vector<std::vector<Code>> elements)
      : type_(type), op_(op), source_count_(sources), adjust_(adjust), contents_(sources) {
    for (const std::vector<Code>& codes : elements) {
      for (std::uint32_t s = 0; s < sources; ++s) append(contents_[s], codes[s], type);
      append(expected_, oracle::reduce(codes, type, op, adjust), type);
    }
  }

  static Trial random(ElementType type, ReduceOp op, std::uint32_t sources,
                      const Adjustment& adjust, std::uint64_t count, Random& random) {
    std::vector<std::vector<Code>> elements(count, std::vector<Code>(sources));
    for (auto& codes : elements)
      for (Code& code : codes) code = random_code(type, random);
    return Trial(type, op, sources, adjust, std::move(elements));
  }

  std::uint64_t count() const { return expected_.size() / element_bytes(type_); }

  bool passes(InstructionSet set, const Shape& shape) const {
    const std::uint64_t bytes = shape.count * element_bytes(type_);
    std::vector<Place> sources;
    std::vector<Place> targets;
    std::vector<const void*> from;
    std::vector<void*> to;
    for (std::uint32_t s = 0; s < source_count_; ++s) {
      sources.emplace_back(contents_[s], bytes,
                           shape.misalignment * (shape.skewed ? s + 1 : 1) % 64);
      from.push_back(sources[s].data());
    }
    for (std::uint32_t t = 0; t < shape.targets; ++t) {
      targets.emplace_back(std::vector<std::byte>(), bytes,
                           shape.misalignment * (shape.skewed ? 5 * t : 1) % 64);
      to.push_back(targets[t].data());
    }
    if (shape.in_place >= 0) to[0] = sources[static_cast<std::size_t>(shape.in_place)].data();
    MoveOperands move{from.data(), source_count_, to.data(), shape.targets, shape.count};
    move.pre_source = adjust_.pre_source;
    move.pre_scalar = &adjust_.pre_scalar;
    move.divisor = adjust_.divisor;
    move.streamed = shape.streamed;
    find_move(type_, op_, set)(move);

    bool right = true;
    for (std::uint32_t s = 0; s < source_count_; ++s)
      right &=
          sources[s].holds(static_cast<int>(s) == shape.in_place ? expected_ : contents_[s], bytes);
    for (std::uint32_t t = shape.in_place >= 0 ? 1 : 0; t < shape.targets; ++t)
      right &= targets[t].holds(expected_, bytes);
    return right;
  }

  std::string describe(InstructionSet set, const Shape& shape) const {
    return std::string(element_name(type_)) + " " + std::string(op_name(op_)) + " " +
           instruction_set_name(set) + ", sources " + std::to_string(source_count_) + ", count " +
           std::to_string(shape.count) + ", targets " + std::to_string(shape.targets) +
           ", in place " + std::to_string(shape.in_place) + ", misalignment " +
           std::to_string(shape.misalignment) + (shape.skewed ? " skewed" : "") + ", streamed " +
           std::to_string(shape.streamed) + ", scaled source " +
           std::to_string(adjust_.pre_source) + ", divisor " + std::to_string(adjust_.divisor);
  }

  void check(InstructionSet set, const Shape& shape) const {
    if (!passes(set, shape)) FAIL_CHECK(describe(set, shape));
  }
  // One shape that goes through whole blocks and a tail.
  void check_whole() const {
    for (InstructionSet set : sets_here()) check(set, {count(), 1, -1, 0, false, 0});
  }

 private:
  ElementType type_;
  ReduceOp op_;
  std::uint32_t source_count_;
  Adjustment adjust_;
  std::vector<std::vector<std::byte>> contents_;
  std::vector<std::byte> expected_;
};

}  // namespace gyre::kernels
