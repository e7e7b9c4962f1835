/* MPI_Allreduce under the loop of reduce_loop.h.
 *
 *   mpirun -n 2 mpi_all_reduce -b 8 -e 64M -f 2 -n 20 -w 1 [-c 0] [-J rows.jsonl]
 */
#include "bench/compare/reduce_loop.h"

#include <mpi.h>
#include <string.h>

static void all_reduce(void* self, const float* send, float* recv, size_t count) {
  (void)self;
  MPI_Allreduce(send == recv ? MPI_IN_PLACE : send, recv, (int)count, MPI_FLOAT, MPI_SUM,
                MPI_COMM_WORLD);
}

static void combine(void* self, double* values, int count, int largest) {
  (void)self;
  MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE, largest ? MPI_MAX : MPI_SUM,
                MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  struct PeerLibrary library = {version, 0, 0, NULL, all_reduce, combine, 0};
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &library.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &library.ranks);
  MPI_Get_library_version(version, &length);
  version[strcspn(version, "\n,")] = '\0';
  const int exit_code = run_reduce_loop(&library, argc, argv);
  MPI_Finalize();
  return exit_code;
}
