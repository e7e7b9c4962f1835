// Finds payload that one block passes to another without a release and an acquire. Each block has a
// vector clock, which releases and acquires pass on; each byte has its last writer and readers. It
// does not check threads of one block: a missing barrier there shows in the data that they read. A
// value with a flag beside it promises less than a release: the reads before it are done, but it
// publishes no writes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace gyre::tests {

class RaceWatch {
 public:
  explicit RaceWatch(std::size_t blocks) : known_(blocks) {
    for (std::size_t block = 0; block < blocks; ++block) {
      known_[block] = {Clock(blocks, 0), Clock(blocks, 0)};
      tick(block);
    }
  }

  void release(std::size_t block, const void* word) {
    join(words_[word].all, known_[block].all);
    join(words_[word].reads, known_[block].reads);
    tick(block);
  }
  void acquire(std::size_t block, const void* word) {
    const auto found = words_.find(word);
    if (found == words_.end()) return;
    join(known_[block].all, found->second.all);
    join(known_[block].reads, found->second.reads);
  }

  // The first of the blocks knows what all of them know: a grid has ended.
  void gather(const std::vector<std::size_t>& blocks) {
    for (const std::size_t block : blocks) {
      join(known_[blocks.front()].all, known_[block].all);
      join(known_[blocks.front()].reads, known_[block].reads);
    }
  }

  // False if another block's access is not known to have come before. A flag beside the data tells
  // that a write came before a read (`flagged`), but not that reads came before the next write.
  bool read(std::size_t block, const std::byte* place, std::size_t bytes, bool flagged) {
    bool right = true;
    each_granule(place, bytes, [&](Granule& granule, std::uint8_t mask) {
      for (const Access& write : granule.writes)
        right &= flagged || (write.mask & mask) == 0 || knows(known_[block].all, write);
      if (flagged) join(known_[block].reads, granule.reads_before);
      if (!flagged || may_be_first(granule, block)) note(granule.reads, block, mask);
    });
    return right;
  }
  bool write(std::size_t block, const std::byte* place, std::size_t bytes, bool flagged) {
    bool right = true;
    each_granule(place, bytes, [&](Granule& granule, std::uint8_t mask) {
      for (const Access& read : granule.reads)
        right &= (read.mask & mask) == 0 || knows(known_[block].reads, read);
      for (const Access& write : granule.writes)
        right &= flagged || (write.mask & mask) == 0 || knows(known_[block].all, write);
      if (flagged) join(granule.reads_before, known_[block].reads);
      forget(granule.reads, mask);
      forget(granule.writes, mask);
      note(granule.writes, block, mask);
    });
    return right;
  }

 private:
  using Clock = std::vector<std::uint64_t>;
  struct Access {
    std::size_t block;
    std::uint64_t when;
    std::uint8_t mask;  // of the granule's bytes
  };
  struct Granule {
    std::vector<Access> reads, writes;
    Clock reads_before;  // the flag that lies here
  };
  // Up to when a block knows of the others' accesses; of all, and of reads alone.
  struct Knowledge {
    Clock all, reads;
  };

  // Of polls, only one after each write counts: the next ones, and those before it, are in vain.
  static bool may_be_first(const Granule& granule, std::size_t block) {
    return !granule.writes.empty() &&
           std::none_of(granule.reads.begin(), granule.reads.end(),
                        [&](const Access& read) { return read.block == block; });
  }

  static void join(Clock& into, const Clock& from) {
    if (into.size() < from.size()) into.resize(from.size(), 0);
    for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
  }
  static bool knows(const Clock& clock, const Access& access) {
    return clock[access.block] >= access.when;
  }
  void tick(std::size_t block) {
    ++known_[block].all[block];
    ++known_[block].reads[block];
  }
  // Who knows of a block's later access knows of its earlier ones.
  void note(std::vector<Access>& accesses, std::size_t block, std::uint8_t mask) const {
    const std::uint64_t now = known_[block].all[block];
    for (Access& access : accesses) {
      if (access.block != block || (access.when != now && (access.mask & ~mask) != 0)) continue;
      access.when = now;
      access.mask |= mask;
      return;
    }
    accesses.push_back({block, now, mask});
  }
  static void forget(std::vector<Access>& accesses, std::uint8_t mask) {
    for (Access& access : accesses) access.mask &= static_cast<std::uint8_t>(~mask);
    std::erase_if(accesses, [](const Access& access) { return access.mask == 0; });
  }

  template <typename Act>
  void each_granule(const std::byte* place, std::size_t bytes, const Act& act) {
    const auto begin = reinterpret_cast<std::uintptr_t>(place);
    for (std::uintptr_t at = begin; at < begin + bytes;) {
      const std::uintptr_t end = std::min(begin + bytes, at / 8 * 8 + 8);
      std::uint32_t mask = 0;
      for (std::uintptr_t byte = at; byte < end; ++byte) mask |= 1U << byte % 8;
      act(granules_[at / 8], static_cast<std::uint8_t>(mask));
      at = end;
    }
  }

  std::vector<Knowledge> known_;  // by block
  std::unordered_map<const void*, Knowledge> words_;
  std::unordered_map<std::uintptr_t, Granule> granules_;
};

}  // namespace gyre::tests
