#include "tools/pytorch/src/forks.h"

#include <pthread.h>

namespace gyre_torch {
namespace {

std::atomic<std::uint32_t> forks{0};

}  // namespace

std::uint32_t fork_count() {
  static const int hooked =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  return hooked == 0 ? forks.load(std::memory_order_relaxed) : 0;
}

}  // namespace gyre_torch
