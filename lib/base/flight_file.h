// The flights of one rank as a text: a line of JSON that says whose they are and what state they
// were found in, then a line for each flight, then one for each long wait that is over. Several
// such texts may follow each other in one file.
#pragma once

#include "lib/base/state_page_reader.h"

#include <string>

namespace gyre {

std::string flight_text(const StatePageHead& head, const RankSnapshot& rank_state);

// Appends the text to the file of that name, with %h, %p and %r in it, and gives the file's name.
Result<std::string> write_flight_file(const std::string& pattern, const StatePageHead& head,
                                      const RankSnapshot& rank_state);

}  // namespace gyre
