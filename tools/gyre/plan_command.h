// gyre plan: shows, proves and draws the plans of the collectives.
#pragma once

namespace gyre::tools {

// The process's exit code; argv[0] is "plan".
int plan_command(int argc, char** argv);

}  // namespace gyre::tools
