// gyre plan memory: what a model takes of each rank, by stage, and what fits.
#pragma once

namespace gyre::tools {

// The process's exit code; argv[0] is "memory".
int memory_command(int argc, char** argv);

}  // namespace gyre::tools
