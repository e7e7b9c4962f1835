// Memory of a weakly ordered machine: stores that have not arrived yet, and copies that are stale.
// It works in granules of 8 bytes, the largest unit that arrives whole.
#pragma once

#include "tests/support/base/quick_random.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <unordered_map>
#include <vector>

namespace gyre::tests {

// Bytes over memory, by granule; only those written or read are touched, so that a granule may
// reach over the end of what was allocated.
class GranuleMap {
 public:
  bool empty() const { return keys_.empty(); }
  std::size_t size() const { return keys_.size(); }

  void put(const std::byte* place, const void* from, std::size_t bytes) {
    const auto* source = static_cast<const std::byte*>(from);
    each_part(place, bytes, [&](std::uintptr_t key, std::size_t first, std::size_t count) {
      Granule& granule = find_or_add(key);
      std::memcpy(granule.bytes + first, source, count);
      for (std::size_t i = first; i < first + count; ++i) granule.mask |= std::uint8_t(1U << i);
      source += count;
    });
  }

  // Lays what is here over `to`, which holds what the memory has.
  void overlay(const std::byte* place, void* to, std::size_t bytes) const {
    if (keys_.empty()) return;
    auto* target = static_cast<std::byte*>(to);
    each_part(place, bytes, [&](std::uintptr_t key, std::size_t first, std::size_t count) {
      const auto found = granules_.find(key);
      for (std::size_t i = 0; found != granules_.end() && i < count; ++i)
        if ((found->second.mask >> (first + i) & 1) != 0)
          target[i] = found->second.bytes[first + i];
      target += count;
    });
  }

  void move_all_to(GranuleMap& other) {
    for (const std::uintptr_t key : keys_) {
      const Granule& granule = granules_[key];
      for (std::size_t i = 0; i < 8; ++i)
        if ((granule.mask >> i & 1) != 0)
          other.put(reinterpret_cast<const std::byte*>(key) + i, granule.bytes + i, 1);
    }
    clear();
  }

  // One granule, picked at random, arrives in memory; what `older` has of it, before it. A copy in
  // `seen` would be older than both.
  void drain_one(QuickRandom& random, GranuleMap* older, GranuleMap& seen) {
    const std::size_t pick = random.below(keys_.size());
    const std::uintptr_t key = keys_[pick];
    if (older != nullptr && older->granules_.count(key) != 0) {
      older->arrive(key);
      older->remove(older->granules_[key].at);
    }
    arrive(key);
    remove(pick);
    seen.forget(reinterpret_cast<const std::byte*>(key), 8);
  }
  void drain_all(GranuleMap& seen) {
    for (const std::uintptr_t key : keys_) {
      arrive(key);
      seen.forget(reinterpret_cast<const std::byte*>(key), 8);
    }
    clear();
  }
  void forget(const std::byte* place, std::size_t bytes) {
    if (keys_.empty()) return;
    each_part(place, bytes, [&](std::uintptr_t key, std::size_t, std::size_t) {
      const auto found = granules_.find(key);
      if (found != granules_.end()) remove(found->second.at);
    });
  }
  void clear() {
    keys_.clear();
    granules_.clear();
  }

 private:
  struct Granule {
    std::byte bytes[8];
    std::uint8_t mask = 0;
    std::size_t at = 0;  // in keys_
  };

  template <typename Act>
  static void each_part(const std::byte* place, std::size_t bytes, const Act& act) {
    auto at = reinterpret_cast<std::uintptr_t>(place);
    for (std::size_t left = bytes; left > 0;) {
      const std::size_t first = at % 8;
      const std::size_t count = left < 8 - first ? left : 8 - first;
      act(at - first, first, count);
      at += count;
      left -= count;
    }
  }

  Granule& find_or_add(std::uintptr_t key) {
    const auto [found, is_new] = granules_.try_emplace(key);
    if (is_new) {
      found->second.at = keys_.size();
      keys_.push_back(key);
    }
    return found->second;
  }

  void arrive(std::uintptr_t key) {
    const Granule& granule = granules_[key];
    auto* memory = reinterpret_cast<std::byte*>(key);
    for (std::size_t i = 0; i < 8; ++i)
      if ((granule.mask >> i & 1) != 0) memory[i] = granule.bytes[i];
  }

  void remove(std::size_t pick) {
    granules_.erase(keys_[pick]);
    if (pick + 1 < keys_.size()) {
      keys_[pick] = keys_.back();
      granules_[keys_[pick]].at = pick;
    }
    keys_.pop_back();
  }

  std::unordered_map<std::uintptr_t, Granule> granules_;
  std::vector<std::uintptr_t> keys_;
};

}  // namespace gyre::tests
