/* A program that uses Gyre and MPI: Gyre before, within and after MPI, as its argument has the
 * letters b, w and a. */
#include <gyre/gyre.h>

#include <mpi.h>
#include <stdio.h>
#include <string.h>

static int sum_by_gyre(const char* when) {
  gyreComm_t comm;
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  float mine = 1, sum = 0;
  config.device = GYRE_DEVICE_HOST;
  if (gyreCommInitEnv(&comm, &config) != gyreSuccess) {
    printf("%s MPI: %s\n", when, gyreGetLastError(NULL));
    return 1;
  }
  if (gyreAllReduce(&mine, &sum, 1, gyreFloat, gyreSum, comm, NULL) == gyreSuccess)
    printf("%s MPI: %g ranks\n", when, sum);
  return gyreCommDestroy(comm) != gyreSuccess;
}

int main(int count, char** arguments) {
  const char* const wish = count > 1 ? arguments[1] : "w";
  int ranks = 0, one = 1, failed = 0;
  if (strchr(wish, 'b') != NULL) failed |= sum_by_gyre("before");
  MPI_Init(&count, &arguments);
  if (strchr(wish, 'w') != NULL) failed |= sum_by_gyre("within");
  MPI_Allreduce(&one, &ranks, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  if (strchr(wish, 'a') != NULL) failed |= sum_by_gyre("after");
  printf("MPI: %d ranks, failed: %d\n", ranks, failed);
  return 0;
}
