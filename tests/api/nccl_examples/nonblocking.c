/* Non-blocking communicators: every call returns at once, and the program polls the communicator
 * until it is done. A program that does not want to wait longer aborts it. */
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define RANKS 2
#define COUNT 200000

static ncclUniqueId id;

/* Up to ten seconds. */
static int settled(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  int asked;
  for (asked = 0; asked < 100000; ++asked) {
    if (ncclCommGetAsyncError(comm, &state) != ncclSuccess) return 0;
    if (state != ncclInProgress) break;
    usleep(100);
  }
  if (state != ncclSuccess) fprintf(stderr, "%s\n", ncclGetLastError(comm));
  return state == ncclSuccess;
}

static int went_on(ncclResult_t result) {
  return result == ncclSuccess || result == ncclInProgress;
}

static void* run(void* place) {
  const int rank = *(int*)place;
  static const char failed = 1;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm;
  long k, wrong = 0;
  float* data = malloc(COUNT * sizeof(float));
  if (data == NULL) return (void*)&failed;
  for (k = 0; k < COUNT; ++k) data[k] = (float)(rank + 1);
  config.blocking = 0;
  config.minCTAs = 1;
  config.maxCTAs = 4;
  config.netName = "Socket";
  if (!went_on(ncclCommInitRankConfig(&comm, RANKS, id, rank, &config)) || !settled(comm)) {
    ncclCommAbort(comm);
    return (void*)&failed;
  }
  if (!went_on(ncclAllReduce(data, data, COUNT, ncclFloat, ncclProd, comm, NULL)) ||
      !settled(comm)) {
    ncclCommAbort(comm);
    return (void*)&failed;
  }
  for (k = 0; k < COUNT; ++k) wrong += data[k] != 2.0f;
  if (!went_on(ncclCommFinalize(comm)) || !settled(comm)) wrong = 1;
  if (ncclCommDestroy(comm) != ncclSuccess) wrong = 1;
  free(data);
  return wrong == 0 ? NULL : (void*)&failed;
}

int main(void) {
  pthread_t threads[RANKS];
  int ranks[RANKS], i, wrong = 0;
  if (ncclGetUniqueId(&id) != ncclSuccess) return 1;
  for (i = 0; i < RANKS; ++i) {
    ranks[i] = i;
    if (pthread_create(&threads[i], NULL, run, &ranks[i]) != 0) return 1;
  }
  for (i = 0; i < RANKS; ++i) {
    void* result;
    wrong |= pthread_join(threads[i], &result) != 0 || result != NULL;
  }
  printf(wrong ? "wrong\n" : "right\n");
  return wrong;
}
