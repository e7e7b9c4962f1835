// gyre settings: the GYRE_ variables, or one of them.
#pragma once

namespace gyre::tools {

// The process's exit code; argv[0] is "settings".
int settings_command(int argc, char** argv);

}  // namespace gyre::tools
