// PmiReply: a line by which a launcher answers in PMI's version 1: words NAME=VALUE, of which the
// first is cmd. Nothing in it is trusted.
#pragma once

#include "lib/base/status.h"

#include <cstddef>
#include <string>
#include <string_view>

namespace gyre::rendezvous {

inline constexpr std::size_t max_pmi_line = 4096;  // of a key and a value, 64 and 1,024 are usual

// The word `wanted` of the answer `command` ("get_result"). Without a wish: an empty text. A
// launcher that refuses says so by rc, which is 0 otherwise or left out.
Result<std::string> read_pmi_reply(std::string_view line, std::string_view command,
                                   std::string_view wanted);

}  // namespace gyre::rendezvous
