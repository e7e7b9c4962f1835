// kernels/cpu/elementwise.h: every instruction set gives the same bits as the scalar loops, and
// these follow the formulas.
#include "kernels/cpu/elementwise.h"

#include "kernels/cpu/narrow_float.h"
#include "tests/support/catch.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace elementwise_test {

using namespace gyre;
using namespace gyre::kernels;

namespace {

constexpr ElementType types[] = {ElementType::float16, ElementType::bfloat16, ElementType::float32};
// Around vectors' widths and the blocks'.
constexpr std::uint64_t counts[] = {0, 1, 7, 8, 9, 63, 64, 65, 511, 512, 513, 1500};

std::vector<InstructionSet> sets() {
  std::vector<InstructionSet> all;
  for (int set = 0; set <= static_cast<int>(best_instruction_set()); ++set)
    all.push_back(static_cast<InstructionSet>(set));
  return all;
}

// Any finite numbers, many of them at a narrow type's edges.
std::vector<float> draw(std::uint64_t count, unsigned seed, int most = 20) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> exponent(-30, most);
  std::uniform_real_distribution<float> fraction(-1, 1);
  std::vector<float> values(count);
  for (float& value : values) value = std::ldexp(fraction(random), exponent(random));
  return values;
}

std::vector<std::byte> as_type(const std::vector<float>& values, ElementType type) {
  std::vector<std::byte> bytes(values.size() * element_bytes(type) + 1);
  convert({.source = values.data(), .to = type, .target = bytes.data(), .count = values.size()},
          InstructionSet::scalar);
  return bytes;
}

std::uint32_t code_at(const void* place, ElementType type, std::uint64_t index) {
  std::uint32_t code = 0;
  std::memcpy(&code, static_cast<const std::byte*>(place) + index * element_bytes(type),
              element_bytes(type));
  return code;
}

std::uint32_t narrowed(float value, ElementType type) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  if (type == ElementType::float16) return Float16::narrow(bits);
  return type == ElementType::bfloat16 ? BFloat16::narrow(bits) : bits;
}

float widened(std::uint32_t code, ElementType type) {
  if (type == ElementType::float16) code = Float16::widen(code);
  if (type == ElementType::bfloat16) code = BFloat16::widen(code);
  return __builtin_bit_cast(float, code);
}

}  // namespace

TEST_CASE("conversions round once, by the one definition of the formats", "[kernels]") {
  const float factor = GENERATE(1.0F, 1.0F / 3);
  for (const InstructionSet set : sets())
    for (const ElementType from : types)
      for (const ElementType to : types)
        for (const std::uint64_t count : counts) {
          const auto source = as_type(draw(count, 1), from);
          // One byte off, so that nothing leans on alignment.
          std::vector<std::byte> target(count * element_bytes(to) + 2, std::byte{0x5a});
          convert({from, source.data(), to, target.data() + 1, count, factor}, set);
          std::uint64_t wrong = 0;
          for (std::uint64_t i = 0; i < count; ++i) {
            const float value = widened(code_at(source.data(), from, i), from) * factor;
            wrong += code_at(target.data() + 1, to, i) != narrowed(value, to);
          }
          INFO(instruction_set_name(set)
               << ", " << element_name(from) << " to " << element_name(to) << ", " << count);
          CHECK(wrong == 0);
          CHECK(target.front() == std::byte{0x5a});
          CHECK(target.back() == std::byte{0x5a});
        }
}

TEST_CASE("every code of the narrow types goes to float32 and back", "[kernels]") {
  for (const ElementType type : {ElementType::float16, ElementType::bfloat16}) {
    std::vector<std::uint16_t> codes(1 << 16), back(1 << 16);
    for (std::size_t code = 0; code < codes.size(); ++code)
      codes[code] = static_cast<std::uint16_t>(code);
    std::vector<float> wide(codes.size());
    for (const InstructionSet set : sets()) {
      convert({.from = type, .source = codes.data(), .target = wide.data(), .count = wide.size()},
              set);
      convert({.source = wide.data(), .to = type, .target = back.data(), .count = wide.size()},
              set);
      std::size_t wrong = 0;
      for (std::size_t code = 0; code < codes.size(); ++code) {
        const float value = widened(codes[code], type);
        const bool same = std::isnan(value) ? std::isnan(wide[code]) : value == wide[code];
        const auto canonical =
            type == ElementType::float16 ? Float16::canonical_nan : BFloat16::canonical_nan;
        wrong += !same || back[code] != (std::isnan(value) ? canonical : codes[code]);
      }
      INFO(instruction_set_name(set) << ", " << element_name(type));
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("sums of squares are the same bits everywhere, and right", "[kernels]") {
  for (const ElementType type : types)
    for (const std::uint64_t count : counts) {
      const auto values = as_type(draw(count, 2), type);
      std::vector<double> scalar((count + square_block - 1) / square_block), sums(scalar.size());
      sum_squares(type, values.data(), count, scalar.data(), InstructionSet::scalar);
      for (std::size_t block = 0; block < scalar.size(); ++block) {
        double expected = 0;
        for (std::uint64_t i = block * square_block;
             i < std::min(count, (block + 1) * square_block); ++i)
          expected +=
              std::pow(static_cast<double>(widened(code_at(values.data(), type, i), type)), 2);
        CHECK(scalar[block] == Approx(expected).epsilon(1e-14));
      }
      for (const InstructionSet set : sets()) {
        sum_squares(type, values.data(), count, sums.data(), set);
        CHECK(sums == scalar);
      }
    }
}

namespace {

struct State {
  std::vector<float> parameter, first, second;
  std::vector<std::byte> copy;
};

template <typename Optimizer>
State stepped(const Optimizer& optimizer, ElementType type, std::uint64_t count,
              InstructionSet set) {
  State state{draw(count, 3, 10), draw(count, 4, 10), draw(count, 5, 10),
              std::vector<std::byte>(count * 2 + 1)};
  for (float& value : state.second) value = std::fabs(value);
  const auto gradient = as_type(draw(count, 6, 10), type);
  step(optimizer,
       {.gradient_type = type,
        .gradient = gradient.data(),
        .gradient_factor = 0.5F,
        .parameter = state.parameter.data(),
        .first = state.first.data(),
        .second = state.second.data(),
        .copy_type = ElementType::bfloat16,
        .copy = state.copy.data(),
        .count = count},
       set);
  return state;
}

template <typename Optimizer>
void same_everywhere(const Optimizer& optimizer) {
  for (const ElementType type : types)
    for (const std::uint64_t count : counts) {
      const State scalar = stepped(optimizer, type, count, InstructionSet::scalar);
      for (const InstructionSet set : sets()) {
        const State state = stepped(optimizer, type, count, set);
        CHECK(state.parameter == scalar.parameter);
        CHECK(state.first == scalar.first);
        CHECK(state.second == scalar.second);
        CHECK(state.copy == scalar.copy);
      }
      std::uint64_t wrong = 0;
      for (std::uint64_t i = 0; i < count; ++i)
        wrong += code_at(scalar.copy.data(), ElementType::bfloat16, i) !=
                 narrowed(scalar.parameter[i], ElementType::bfloat16);
      CHECK(wrong == 0);
    }
}

}  // namespace

TEST_CASE("optimizers take the same step on every instruction set", "[kernels]") {
  same_everywhere(AdamW{.learning_rate = 0.01F, .weight_decay = 0.1F, .step = 3});
  same_everywhere(Sgd{.learning_rate = 0.1F});
  same_everywhere(Sgd{.learning_rate = 0.1F, .momentum = 0.9F, .weight_decay = 0.01F, .step = 2});
  same_everywhere(Sgd{.learning_rate = 0.1F, .momentum = 0.9F, .nesterov = true, .step = 2});
}

TEST_CASE("AdamW's steps follow its formula", "[kernels]") {
  const double rate = 0.1, beta1 = 0.9, beta2 = 0.99, epsilon = 1e-6, decay = 0.05;
  double p = 1.5, m = 0, v = 0;
  float parameter = 1.5F, first = 0, second = 0;
  for (std::uint64_t t = 1; t <= 20; ++t) {
    const float gradient = std::sin(static_cast<float>(t));
    p *= 1 - rate * decay;
    m = beta1 * m + (1 - beta1) * gradient;
    v = beta2 * v + (1 - beta2) * gradient * gradient;
    const double power = static_cast<double>(t);
    p -= rate * (m / (1 - std::pow(beta1, power))) /
         (std::sqrt(v / (1 - std::pow(beta2, power))) + epsilon);
    step(AdamW{.learning_rate = 0.1F,
               .beta1 = 0.9F,
               .beta2 = 0.99F,
               .epsilon = 1e-6F,
               .weight_decay = 0.05F,
               .step = t},
         {.gradient = &gradient,
          .parameter = &parameter,
          .first = &first,
          .second = &second,
          .count = 1});
    CHECK(parameter == Approx(p).epsilon(1e-5));
  }
}

TEST_CASE("SGD's steps follow its formulas", "[kernels]") {
  const bool nesterov = GENERATE(false, true);
  const double momentum = GENERATE(0.0, 0.9);
  const double dampening = GENERATE(0.0, 0.2);
  double p = 1.5, b = 0;
  float parameter = 1.5F, buffer = 7;  // which the first step does not read
  for (std::uint64_t t = 1; t <= 20; ++t) {
    const float gradient = std::sin(static_cast<float>(t));
    const double g = gradient + 0.05 * p;
    b = t == 1 ? g : momentum * b + (1 - dampening) * g;
    if (momentum == 0)
      p -= 0.1 * g;
    else
      p -= 0.1 * (nesterov ? g + momentum * b : b);
    step(Sgd{.learning_rate = 0.1F,
             .momentum = static_cast<float>(momentum),
             .dampening = static_cast<float>(dampening),
             .weight_decay = 0.05F,
             .nesterov = nesterov,
             .step = t},
         {.gradient = &gradient, .parameter = &parameter, .first = &buffer, .count = 1});
    CHECK(parameter == Approx(p).epsilon(1e-5));
  }
}

}  // namespace elementwise_test
