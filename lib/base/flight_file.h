// The flights of one rank as text. The first line of JSON names the rank and its state. Then
// follows a line for each flight, then one for each long wait that is over. A file may hold several
// such texts.
#pragma once

#include "lib/base/state_page_reader.h"

#include <string>

namespace gyre {

std::string flight_text(const StatePageHead& head, const RankSnapshot& rank_state);

// Appends the text to the file of that name, with %h, %p and %r in it, and gives the file's name.
Result<std::string> write_flight_file(const std::string& pattern, const StatePageHead& head,
                                      const RankSnapshot& rank_state);

}  // namespace gyre
