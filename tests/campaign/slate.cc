#include "tests/campaign/slate.h"

#include <gyre/gyre.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace gyre::campaign {
namespace {

constexpr std::uint32_t wiped = 0xC7C7C7C7;

}  // namespace

Slate::Slate(std::size_t elements, bool lent) : elements_(elements), lent_(lent) {
  void* memory = nullptr;
  if (lent && gyreMemAllocOn(&memory, elements * sizeof wiped, GYRE_DEVICE_HOST) != gyreSuccess) {
    std::fprintf(stderr, "campaign_rank: %s\n", gyreGetLastError(nullptr));
    std::exit(2);
  }
  if (!lent) heap_.resize(elements);
  memory_ = lent ? static_cast<std::uint32_t*>(memory) : heap_.data();
  std::fill_n(memory_, elements_, wiped);
}

Slate::~Slate() {
  if (lent_) (void)gyreMemFree(memory_);
}

void Slate::wipe() { std::fill_n(memory_, elements_, wiped); }

std::ptrdiff_t Slate::touched() const {
  const std::uint32_t* found =
      std::find_if(memory_, memory_ + elements_, [](std::uint32_t one) { return one != wiped; });
  return found == memory_ + elements_ ? -1 : found - memory_;
}

}  // namespace gyre::campaign
