// ProcessorSet: processors of a host by their numbers, as the kernel counts them. Reads and prints
// the masks of hwloc ("0x00000003") and of NCCL ("00000000,00000003"), and taskset's lists ("0-3").
#pragma once

#include "lib/base/status.h"

#include <cstdint>
#include <sched.h>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::topology {

class ProcessorSet {
 public:
  static constexpr int max_processors = 16384;

  // Words of 32 bits in hexadecimal, the highest first, with commas between; "0x" may stand before
  // each. hwloc's "0xf...f" in front, which means all others, is an error: no host has so many.
  static Result<ProcessorSet> parse_mask(std::string_view text);

  void insert(int processor);  // below max_processors
  void insert_all(const ProcessorSet& others);
  void keep_only(const ProcessorSet& others);
  bool contains(int processor) const;
  bool contains_all(const ProcessorSet& others) const;
  bool intersects(const ProcessorSet& others) const;
  bool empty() const { return words_.empty(); }
  int count() const;
  std::vector<int> numbers() const;  // ascending

  // For sched_setaffinity; those beyond CPU_SETSIZE are left out.
  cpu_set_t cpu_set() const;
  std::string hwloc_mask() const;
  std::string nccl_mask() const;
  std::string list() const;  // "0-3,8"; "" if empty

  friend bool operator==(const ProcessorSet&, const ProcessorSet&) = default;

 private:
  void trim();
  std::string mask(std::string_view before_each) const;

  std::vector<std::uint32_t> words_;  // the lowest first; the last one is not 0
};

// Those that this thread may use.
Result<ProcessorSet> allowed_processors();

}  // namespace gyre::topology
