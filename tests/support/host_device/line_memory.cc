#include "tests/support/host_device/line_memory.h"

#include "tests/support/host_device/word_memory.h"

#include <algorithm>
#include <cstring>

namespace gyre::tests {
namespace {

// A line's last word is its flag: stored after the others, and read before them, as another process
// may be at the other end.
constexpr std::size_t line_flag = line_bytes - 8, part_bytes = 16;

void read_whole(std::byte* to, const std::byte* place) {
  // Pairs with the release in write.
  const std::uint64_t flag =
      __atomic_load_n(reinterpret_cast<const std::uint64_t*>(place + line_flag), __ATOMIC_ACQUIRE);
  std::memcpy(to + line_flag, &flag, 8);
  read_words(to, place, line_flag);
}

}  // namespace

void LineMemory::write(std::byte* place, const std::byte* from) {
  Past& past = past_[place];
  read_whole(past.before, place);
  std::memcpy(past.written, from, line_bytes);
  past.aware.clear();
  write_words(place, from, line_flag);
  std::uint64_t flag = 0;
  std::memcpy(&flag, from + line_flag, 8);
  // Pairs with the acquire in read_whole.
  __atomic_store_n(reinterpret_cast<std::uint64_t*>(place + line_flag), flag, __ATOMIC_RELEASE);
}

bool LineMemory::read(std::byte* to, const std::byte* place, std::uint64_t reader, bool torn,
                      QuickRandom& random) {
  read_whole(to, place);
  const auto found = past_.find(place);
  if (found == past_.end()) return false;
  Past& past = found->second;
  // Somebody else has written there since, or the memory is another's by now.
  if (std::memcmp(to, past.written, line_bytes) != 0) return past_.erase(found), false;
  if (std::ranges::find(past.aware, reader) != past.aware.end()) return false;
  for (std::size_t part = 0; torn && part < line_bytes; part += part_bytes)
    if (random() % 2 == 0) std::memcpy(to + part, past.before + part, part_bytes);
  if (std::memcmp(to + line_flag, past.written + line_flag, 8) != 0) return false;
  past.aware.push_back(reader);
  return true;
}

}  // namespace gyre::tests
