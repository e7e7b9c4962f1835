// Machine: the few facts about this host that determine buffer sizes and that the header shows.
#pragma once

#include <cstdint>
#include <string>

namespace gyre::bench {

std::string host_name();
// What this process may still use: the kernel's MemAvailable, or less where a control group says
// so. 0 if unknown.
std::uint64_t available_memory();
std::uint64_t total_memory();
// Bytes that this process has in memory now.
std::uint64_t resident_memory();
// 32 MiB if the system does not say.
std::uint64_t last_level_cache_bytes();

// The largest size whose buffers fit: `buffers` of it for each of `ranks_here` ranks, keeping a
// sixteenth of the memory, at most 4 GiB, for everything else, or half of what is available if that
// is more. No limit where `available` is 0.
std::uint64_t largest_size(std::uint64_t available, std::uint64_t total, int ranks_here,
                           int buffers);

}  // namespace gyre::bench
