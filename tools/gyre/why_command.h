// gyre why: which rank waits for which, on what, since when, and at which rank it all ends.
#pragma once

namespace gyre::tools {

// The process's exit code; argv[0] is "why".
int why_command(int argc, char** argv);

}  // namespace gyre::tools
