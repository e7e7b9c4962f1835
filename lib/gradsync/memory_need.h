// The bytes that a model takes on each rank with AdamW, by the formulas of ZeRO (arXiv 1910.02054,
// section 3), plus the units that are whole for a while. Activations are not included.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gyre::gradsync {

struct MemoryQuestion {
  double parameters = 0;
  int stage = 3;           // 0: replicas
  double factor = 1;       // ranks that share a model
  bool is_narrow = false;  // parameters and gradients of 16 bits, and float32 copies
  double units = 32;       // equal ones
  double prefetch = 1;     // units gathered ahead, in stage 3
};

struct MemoryNeed {
  double parameters, gradients;  // of which this rank holds its share, or all
  double optimizer;              // its state, and float32 copies of 16-bit parameters
  double whole_units;            // for a while

  double for_good() const { return parameters + gradients + optimizer; }
  double total() const { return for_good() + whole_units; }
};

constexpr MemoryNeed memory_need(const MemoryQuestion& of) {
  const double element = of.is_narrow ? 2 : 4;
  const double state = of.is_narrow ? 12 : 8;
  const auto held = [&](double bytes, int shared_from) {
    return of.parameters * bytes / (of.stage >= shared_from ? of.factor : 1);
  };
  // Gradients of two units; parameters of the one at work, one more, and those ahead.
  const double units = (of.stage >= 2 ? 2 : 0) + (of.stage == 3 ? 2 + of.prefetch : 0);
  return {.parameters = held(element, 3),
          .gradients = held(element, 2),
          .optimizer = held(state, 1),
          .whole_units = of.parameters * element * std::min(units / of.units, 2.0)};
}

}  // namespace gyre::gradsync
