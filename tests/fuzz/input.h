// Input: the bytes of one fuzz run, taken piece by piece. Bytes beyond the end read as zero, so
// every input has a meaning. Seeds are written by trust::Writer, whose layout this reads.
//
//   block   u16 length and as many bytes, as Writer::put_text writes them
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

// The end of each target: says that `take_input` is called with every input. It may keep no state
// that matters. A fuzzer knows one function; replay.cc knows those of all targets, by name.
#if defined(GYRE_LIBFUZZER)
#define GYRE_FUZZ_TARGET(name)                                                         \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) { \
    return take_input(data, bytes);                                                    \
  }
#else
#define GYRE_FUZZ_TARGET(name) \
  [[maybe_unused]] const bool is_known = ::gyre::fuzz::targets().emplace(#name, take_input).second;
#endif

// What must hold whatever the input says. A run in which it does not ends the process.
#define GYRE_DEMAND(condition) \
  ((condition) ? static_cast<void>(0) : ::gyre::fuzz::give_up(__FILE__, __LINE__, #condition))

namespace gyre::fuzz {

using TakeInput = int (*)(const std::uint8_t* data, std::size_t bytes);

// Of this program, by name.
inline std::map<std::string_view, TakeInput>& targets() {
  static std::map<std::string_view, TakeInput> all;
  return all;
}

[[noreturn]] inline void give_up(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
  std::abort();
}

// Can be shown to people: nothing in it begins a line or steers a terminal.
inline bool is_one_line(std::string_view text) {
  return std::ranges::all_of(text, [](char letter) {
    const auto code = static_cast<unsigned char>(letter);
    return code >= ' ' && code != 0x7f;
  });
}

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t bytes) : bytes_(data, bytes) {}
  explicit Input(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  template <typename T>
  T take() {
    static_assert(std::is_integral_v<T>);
    T value{};
    const std::size_t there = std::min(sizeof value, bytes_.size());
    if (there > 0) std::memcpy(&value, bytes_.data(), there);
    bytes_ = bytes_.subspan(there);
    return value;
  }
  bool take_flag() { return (take<std::uint8_t>() & 1) != 0; }
  std::span<const std::uint8_t> take_bytes(std::size_t count) {
    const auto taken = bytes_.first(std::min(count, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }
  std::span<const std::uint8_t> take_block() { return take_bytes(take<std::uint16_t>()); }
  std::vector<std::uint8_t> take_vector() {
    const auto block = take_block();
    return {block.begin(), block.end()};
  }
  std::string take_text() {
    const auto block = take_block();
    return {block.begin(), block.end()};
  }
  std::span<const std::uint8_t> rest() { return take_bytes(bytes_.size()); }
  bool empty() const { return bytes_.empty(); }

 private:
  std::span<const std::uint8_t> bytes_;
};

}  // namespace gyre::fuzz
