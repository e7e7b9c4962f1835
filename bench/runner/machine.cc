// Machine: read from /proc, /sys and sysconf. See machine.h.
#include "bench/runner/machine.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <unistd.h>

namespace gyre::bench {
namespace {

// "Name:   123 kB" of a file in /proc, in bytes; 0 if not there.
std::uint64_t kilobyte_field(const char* path, const std::string& name) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string key;
    std::uint64_t value = 0;
    if (words >> key >> value && key == name + ":") return value * 1024;
  }
  return 0;
}

// A file that holds one number; nothing otherwise ("max").
bool read_number(const char* path, std::uint64_t& value) {
  std::ifstream file(path);
  return static_cast<bool>(file >> value);
}

}  // namespace

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "localhost";
  const std::string full = name;
  return full.substr(0, full.find('.'));
}

std::uint64_t available_memory() {
  std::uint64_t available = kilobyte_field("/proc/meminfo", "MemAvailable");
  std::uint64_t limit = 0, used = 0;
  const bool unified = read_number("/sys/fs/cgroup/memory.max", limit) &&
                       read_number("/sys/fs/cgroup/memory.current", used);
  const bool grouped =
      unified || (read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes", limit) &&
                  read_number("/sys/fs/cgroup/memory/memory.usage_in_bytes", used));
  if (grouped && limit > used) available = std::min(available, limit - used);
  return available;
}

std::uint64_t total_memory() { return kilobyte_field("/proc/meminfo", "MemTotal"); }

std::uint64_t resident_memory() { return kilobyte_field("/proc/self/status", "VmRSS"); }

std::uint64_t last_level_cache_bytes() {
  for (const int name : {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    const long bytes = sysconf(name);
    if (bytes > 0) return static_cast<std::uint64_t>(bytes);
  }
  return 32ULL << 20;
}

std::uint64_t largest_size(std::uint64_t available, std::uint64_t total, int ranks_here,
                           int buffers) {
  if (available == 0) return UINT64_MAX;  // not known: the system will say
  const std::uint64_t reserve = std::min(total / 16, std::uint64_t{4} << 30);
  // Where little is left, half of it rather than nothing.
  const std::uint64_t usable =
      std::max(available > reserve ? available - reserve : 0, available / 2);
  return usable / static_cast<std::uint64_t>(ranks_here * buffers) / 4096 * 4096;
}

}  // namespace gyre::bench
