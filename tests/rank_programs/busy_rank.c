/* A rank that joins, reduces and leaves, again and again, until its time is up or something fails.
 * The fault tests start several and kill one. Prints how it ended:
 *   done CYCLES            its time was up
 *   error CODE TEXT        the first call that failed
 * Arguments: seconds, name of the job. */
#include <gyre/gyre.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int failed(gyreResult_t result, gyreComm_t comm) {
  if (result == gyreSuccess) return 0;
  printf("error %d %s\n", (int)result, gyreGetLastError(comm));
  fflush(stdout);
  return 1;
}

static int reduce_some(gyreComm_t comm, float* data, double until) {
  static const size_t counts[] = {2, 1000, 40000, 1 << 20};
  int size = 0, i;
  if (failed(gyreCommCount(comm, &size), comm)) return 1;
  for (i = 0; i < 40 && now() < until + 1; ++i) {
    const size_t count = counts[i % 4];
    data[0] = data[count - 1] = 1;
    if (failed(gyreAllReduce(data, data, count, gyreFloat, gyreSum, comm, NULL), comm)) return 1;
    if (data[0] != (float)size || data[count - 1] != (float)size) {
      printf("wrong %f\n", (double)data[0]);
      return 1;
    }
  }
  return 0;
}

int main(int argc, char** argv) {
  static char name[128];
  double until;
  float* data = calloc(1 << 20, sizeof *data);
  int cycle;
  if (argc != 3 || data == NULL) return 2;
  until = now() + atof(argv[1]);
  for (cycle = 0; now() < until; ++cycle) {
    gyreComm_t comm = NULL;
    snprintf(name, sizeof name, "%s-%d", argv[2], cycle);
    setenv("GYRE_JOB_ID", name, 1);
    if (failed(gyreCommInitEnv(&comm, NULL), NULL)) return 3;
    if (reduce_some(comm, data, until)) return 3;
    if (failed(gyreCommDestroy(comm), NULL)) return 3;
  }
  printf("done %d\n", cycle);
  free(data);
  return 0;
}
