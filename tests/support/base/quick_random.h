// QuickRandom: random numbers for choices that a test makes millions of times. Each costs a few
// instructions. std::mt19937_64 took a sixth of a simulated kernel's time.
#pragma once

#include <cstdint>

namespace gyre::tests {

class QuickRandom {
 public:
  explicit QuickRandom(std::uint64_t seed) : state_(seed) {}

  // splitmix64, https://prng.di.unimi.it/splitmix64.c
  std::uint64_t operator()() {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t value = state_;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
    return value ^ (value >> 31);
  }
  // A number below `end`, which is from 1 to 2^32.
  std::uint64_t below(std::uint64_t end) { return ((*this)() >> 32) * end >> 32; }

 private:
  std::uint64_t state_;
};

}  // namespace gyre::tests
