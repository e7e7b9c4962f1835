// gyre run: the options of the launcher; launcher.h runs the job.
#pragma once

namespace gyre::tools {

// The process's exit code; argv[0] is "run".
int run_command(int argc, char** argv);

}  // namespace gyre::tools
