// gyre plan memory: the memory that a model takes on each rank, by stage, and which stages fit.
#pragma once

namespace gyre::tools {

// The process's exit code; argv[0] is "memory".
int memory_command(int argc, char** argv);

}  // namespace gyre::tools
