#include "lib/loaded/mpi.h"

#include <dlfcn.h>

namespace gyre::loaded {

MpiState find_mpi(const MpiFinder& find) {
  // All MPI libraries have these two, and allow them at any time.
  using Ask = int (*)(int* answer);
  const auto initialized = reinterpret_cast<Ask>(find("MPI_Initialized"));
  const auto finalized = reinterpret_cast<Ask>(find("MPI_Finalized"));
  if (initialized == nullptr || finalized == nullptr) return MpiState::absent;
  int has_begun = 0, has_ended = 0;
  (void)initialized(&has_begun);
  (void)finalized(&has_ended);
  if (has_ended != 0) return MpiState::ended;
  return has_begun != 0 ? MpiState::running : MpiState::not_begun;
}

MpiState find_mpi() {
  return find_mpi([](const char* symbol) { return dlsym(RTLD_DEFAULT, symbol); });
}

}  // namespace gyre::loaded
