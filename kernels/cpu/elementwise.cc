// Elementwise passes, block by block, through float32 buffers that stay in the nearest cache; and
// the scalar loops, for any processor of the family.
#include "kernels/cpu/elementwise.h"

#include "kernels/cpu/elementwise_loops.h"
#include "kernels/cpu/float_environment.h"

#include <algorithm>
#include <cmath>

namespace gyre::kernels {

const ElementwiseTable elementwise_reference_table = make_elementwise_table();

namespace {

constexpr std::uint64_t block_count = 512;  // 2 KiB of float32
static_assert(block_count % square_block == 0 && square_block == elements_squared);

const ElementwiseTable& table_of(InstructionSet set) {
#ifdef GYRE_KERNELS_X86
  set = std::min(set, best_instruction_set());
  if (set >= InstructionSet::avx512) return elementwise_avx512_table;
  if (set >= InstructionSet::avx2) return elementwise_avx2_table;
#else
  static_cast<void>(set);
#endif
  return elementwise_reference_table;
}

auto widen_of(const ElementwiseTable& table, ElementType type) {
  return table.widen[static_cast<int>(type)];
}
auto narrow_of(const ElementwiseTable& table, ElementType type) {
  return table.narrow[static_cast<int>(type)];
}

const std::byte* at(const void* place, ElementType type, std::uint64_t index) {
  return static_cast<const std::byte*>(place) + index * element_bytes(type);
}
std::byte* at(void* place, ElementType type, std::uint64_t index) {
  return static_cast<std::byte*>(place) + index * element_bytes(type);
}

// body(first element, elements) for each block.
template <typename Body>
void each_block(std::uint64_t count, const Body& body) {
  for (std::uint64_t first = 0; first < count; first += block_count)
    body(first, std::min(block_count, count - first));
}

void convert_all(const ElementwiseTable& table, const Conversion& by) {
  if (by.from == by.to && by.factor == 1) {
    if (by.source != by.target && by.count != 0)
      std::memcpy(by.target, by.source, by.count * element_bytes(by.from));
    return;
  }
  each_block(by.count, [&](std::uint64_t first, std::uint64_t count) {
    float values[block_count];
    widen_of(table, by.from)(at(by.source, by.from, first), values, count);
    if (by.factor != 1) table.scale(values, count, by.factor);
    narrow_of(table, by.to)(values, at(by.target, by.to, first), count);
  });
}

void sum_all_squares(const ElementwiseTable& table, ElementType type, const void* source,
                     std::uint64_t total, double* sums) {
  each_block(total, [&](std::uint64_t first, std::uint64_t count) {
    float values[block_count];
    widen_of(table, type)(at(source, type, first), values, count);
    for (std::uint64_t i = 0; i < count; i += square_block)
      sums[(first + i) / square_block] =
          table.square_sum(values + i, std::min(square_block, count - i));
  });
}

// update(gradient, first element, elements): a step of one block.
template <typename Update>
void step_blocks(const ElementwiseTable& table, const OptimizerMove& move, const Update& update) {
  each_block(move.count, [&](std::uint64_t first, std::uint64_t count) {
    float gradient[block_count];
    widen_of(table, move.gradient_type)(at(move.gradient, move.gradient_type, first), gradient,
                                        count);
    if (move.gradient_factor != 1) table.scale(gradient, count, move.gradient_factor);
    update(gradient, first, count);
    if (move.copy != nullptr)
      narrow_of(table, move.copy_type)(move.parameter + first, at(move.copy, move.copy_type, first),
                                       count);
  });
}

// In float64, of the float32 numbers that were given, and rounded once.
AdamWFactors factors_of(const AdamW& by) {
  const double rate = by.learning_rate;
  const double bias1 = 1 - std::pow(static_cast<double>(by.beta1), static_cast<double>(by.step));
  const double bias2 = 1 - std::pow(static_cast<double>(by.beta2), static_cast<double>(by.step));
  return {.keep = static_cast<float>(1 - rate * by.weight_decay),
          .first_new = static_cast<float>(1 - static_cast<double>(by.beta1)),
          .second_old = by.beta2,
          .second_new = static_cast<float>(1 - static_cast<double>(by.beta2)),
          .root = static_cast<float>(std::sqrt(bias2)),
          .epsilon = by.epsilon,
          .rate = static_cast<float>(rate / bias1)};
}

void step_all_adamw(const ElementwiseTable& table, const AdamW& optimizer,
                    const OptimizerMove& move) {
  const AdamWFactors factors = factors_of(optimizer);
  step_blocks(table, move, [&](const float* gradient, std::uint64_t first, std::uint64_t count) {
    table.adamw(factors, gradient, move.parameter + first, move.first + first, move.second + first,
                count);
  });
}

SgdFactors factors_of(const Sgd& by) {
  return {by.learning_rate, by.momentum, by.dampening, by.weight_decay, by.nesterov, by.step == 1};
}

void step_all_sgd(const ElementwiseTable& table, const Sgd& optimizer, const OptimizerMove& move) {
  const SgdFactors factors = factors_of(optimizer);
  step_blocks(table, move, [&](const float* gradient, std::uint64_t first, std::uint64_t count) {
    float* const buffer = move.first == nullptr ? nullptr : move.first + first;
    table.sgd(factors, gradient, move.parameter + first, buffer, count);
  });
}

}  // namespace

void convert(const Conversion& conversion, InstructionSet set) {
  with_float_environment<convert_all>(table_of(set), conversion);
}
void convert(const Conversion& conversion) { convert(conversion, best_instruction_set()); }

void sum_squares(ElementType type, const void* source, std::uint64_t count, double* sums,
                 InstructionSet set) {
  with_float_environment<sum_all_squares>(table_of(set), type, source, count, sums);
}
void sum_squares(ElementType type, const void* source, std::uint64_t count, double* sums) {
  sum_squares(type, source, count, sums, best_instruction_set());
}

void step(const AdamW& optimizer, const OptimizerMove& move, InstructionSet set) {
  with_float_environment<step_all_adamw>(table_of(set), optimizer, move);
}
void step(const AdamW& optimizer, const OptimizerMove& move) {
  step(optimizer, move, best_instruction_set());
}

void step(const Sgd& optimizer, const OptimizerMove& move, InstructionSet set) {
  with_float_environment<step_all_sgd>(table_of(set), optimizer, move);
}
void step(const Sgd& optimizer, const OptimizerMove& move) {
  step(optimizer, move, best_instruction_set());
}

}  // namespace gyre::kernels
