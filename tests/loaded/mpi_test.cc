// Whether the program uses MPI, and how far it is.
#include "lib/loaded/mpi.h"

#include "tests/support/catch.h"

#include <string_view>

namespace mpi_test {

using namespace gyre::loaded;

namespace {

int yes(int* answer) { return *answer = 1, 0; }
int no(int* answer) { return *answer = 0, 0; }

MpiState state(int (*initialized)(int*), int (*finalized)(int*)) {
  return find_mpi([=](const char* symbol) {
    return reinterpret_cast<void*>(std::string_view(symbol) == "MPI_Initialized" ? initialized
                                                                                 : finalized);
  });
}

}  // namespace

TEST_CASE("a program without MPI has none, and one with it says how far it is", "[mpi]") {
  CHECK(find_mpi() == MpiState::absent);
  CHECK(state(nullptr, nullptr) == MpiState::absent);
  CHECK(state(yes, nullptr) == MpiState::absent);
  CHECK(state(no, no) == MpiState::not_begun);
  CHECK(state(yes, no) == MpiState::running);
  CHECK(state(yes, yes) == MpiState::ended);
}

}  // namespace mpi_test
