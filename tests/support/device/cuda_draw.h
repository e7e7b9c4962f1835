// Random choices for the cases of CUDA communicators: algorithms and protocols, collectives,
// messages.
#pragma once

#include "lib/plan/algorithms.h"
#include "tests/support/comm/collective_case.h"
#include "tests/support/comm/ranks.h"

#include <random>
#include <string>
#include <vector>

namespace gyre::tests {

// An algorithm under a protocol.
struct CudaWay {
  const plan::Algorithm* algorithm;
  std::string protocol;
  std::string shown() const;
  // Settings that leave this way alone for whatever it does, and the rest as it is.
  Variables variables() const;
  std::vector<Function> functions() const;
};
std::vector<CudaWay> every_way();

CollectiveCase drawn_case(Function function, int ranks, const std::vector<std::size_t>& counts,
                          std::mt19937_64& random);
Function drawn_function(std::mt19937_64& random);

struct Message {
  int from, to;
  std::size_t count;  // of int32
  // No two messages of a test have the same `number`.
  static std::int32_t element(std::size_t number, std::size_t i) {
    return static_cast<std::int32_t>(number * 1'000'003 + i * 7);
  }
};
std::vector<Message> drawn_messages(int ranks, const std::vector<std::size_t>& counts,
                                    std::size_t most, std::mt19937_64& random);

}  // namespace gyre::tests
