/* One process, one thread, several devices: the thread holds every communicator, so its calls for
 * all of them go into one group. It waits for the streams after the group. */
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#define DEVICES 4
#define COUNT 100000

static void check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  fprintf(stderr, "%s: %s (%s)\n", what, ncclGetErrorString(result), ncclGetLastError(NULL));
  exit(1);
}

int main(void) {
  ncclComm_t comms[DEVICES];
  cudaStream_t streams[DEVICES];
  float *in[DEVICES], *out[DEVICES];
  int i, k, wrong = 0;
  for (i = 0; i < DEVICES; ++i) {
    in[i] = malloc(COUNT * sizeof(float));
    out[i] = calloc(COUNT, sizeof(float));
    if (in[i] == NULL || out[i] == NULL) return 1;
    for (k = 0; k < COUNT; ++k) in[i][k] = (float)(i + k % 7);
    check(cudaStreamCreate(&streams[i]), "a stream");
  }
  check(ncclCommInitAll(comms, DEVICES, NULL), "ncclCommInitAll");

  check(ncclGroupStart(), "ncclGroupStart");
  for (i = 0; i < DEVICES; ++i)
    check(ncclAllReduce(in[i], out[i], COUNT, ncclFloat, ncclSum, comms[i], streams[i]),
          "ncclAllReduce");
  check(ncclGroupEnd(), "ncclGroupEnd");

  for (i = 0; i < DEVICES; ++i) check(cudaStreamSynchronize(streams[i]), "synchronize");
  for (i = 0; i < DEVICES; ++i)
    for (k = 0; k < COUNT; ++k) wrong += out[i][k] != (float)(6 + 4 * (k % 7));
  for (i = 0; i < DEVICES; ++i) {
    check(ncclCommDestroy(comms[i]), "ncclCommDestroy");
    check(cudaStreamDestroy(streams[i]), "the end of a stream");
    free(in[i]);
    free(out[i]);
  }
  printf(wrong == 0 ? "right\n" : "wrong\n");
  return wrong != 0;
}
