// A session of gyre link: the two ranks of a pair measure their link by sends and receives of the C
// API, on a communicator of their own. One leads and says what comes next; the other one follows.
// The receiver of a message takes the time and looks at each byte.
#pragma once

#include "lib/base/status.h"
#include "tools/gyre/link_values.h"
#include <gyre/gyre.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace gyre::tools {

// Small messages between the measuring programs: words, and a check that they came whole.
inline constexpr std::size_t talk_words = 13;
using TalkWords = std::array<std::uint64_t, talk_words>;
Status send_talk(gyreComm_t comm, int peer, const TalkWords& words);
// `came_whole`: false if bytes were changed on the way; then the words mean nothing.
Status receive_talk(gyreComm_t comm, int peer, TalkWords& words, bool& came_whole);
std::uint64_t hash_of(std::span<const std::byte> bytes);

// A measured figure, as another rank says it: 0 if it can be none.
double sound_figure(double figure);

// What a C function returned, with the library's words.
Status checked_call(gyreResult_t result, gyreComm_t comm, std::string_view function);

struct SessionTask {
  gyreComm_t comm = nullptr;                // of the two: the leader is its rank 0
  std::uint64_t seed = 0;                   // of what both send
  std::int64_t work_ns = 0;                 // for all of it, if the link does as it should
  std::int64_t until_ns = 0;                // no longer, whatever it does
  std::span<std::byte> outgoing, incoming;  // as large as the largest message
};

// Both fill `into` as far as they get. On failure `doing` says in which part it was.
Status lead_session(const SessionTask& task, LinkMeasurement& into, std::string& doing);
Status follow_session(const SessionTask& task, LinkMeasurement& into, std::string& doing);

}  // namespace gyre::tools
