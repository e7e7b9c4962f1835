// Protocol: where the bytes of a move cross a link, and how the receiver learns that they have
// arrived. The names in GYRE_PROTO are NCCL's where there is one.
#pragma once

#include <cstdint>
#include <string_view>

namespace gyre::plan {

enum class Protocol : std::uint8_t {
  line,     // "LL": payload and flag in one cache line; links that memory crosses
  simple,   // "Simple": bulk bytes in a slot, then a counter; every link
  direct,   // "Direct": as simple, but user buffers are the slots wherever both ends reach them
  line128,  // "LL128": as line, in lines of 128 bytes that arrive whole; links between GPUs
};
inline constexpr int protocol_count = 4;

constexpr std::string_view protocol_name(Protocol protocol) {
  constexpr std::string_view names[protocol_count] = {"line", "simple", "direct", "line128"};
  return names[static_cast<int>(protocol)];
}

// What bulk messages go by where lines have no room for them.
constexpr Protocol without_lines(Protocol protocol) {
  return protocol == Protocol::line || protocol == Protocol::line128 ? Protocol::simple : protocol;
}

}  // namespace gyre::plan
