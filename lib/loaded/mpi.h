// MPI in this process, which is the program's and not ours: whether it speaks to the launcher
// already. MPI and we share the launcher's one line for a process.
#pragma once

#include <functional>

namespace gyre::loaded {

enum class MpiState { absent, not_begun, running, ended };

// Where a function is; null if it is nowhere.
using MpiFinder = std::function<void*(const char* symbol)>;
// Of a library that the program is linked with. One that was loaded for a part of it is not seen.
MpiState find_mpi();
MpiState find_mpi(const MpiFinder& find);

}  // namespace gyre::loaded
