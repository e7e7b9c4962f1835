/* One thread for each device: each joins with the id that the main thread made. */
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define RANKS 3
#define COUNT 1000

static ncclUniqueId id;

static void check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  fprintf(stderr, "%s: %s (%s)\n", what, ncclGetErrorString(result), ncclGetLastError(NULL));
  exit(1);
}

/* Everybody gets everybody's block, then the sum of the blocks of its number. */
static void* run(void* place) {
  const int rank = *(int*)place;
  static const char failed = 1;
  double mine[COUNT], all[RANKS * COUNT], sum[COUNT];
  ncclComm_t comm;
  int i, k, wrong = 0;
  for (k = 0; k < COUNT; ++k) mine[k] = 10.0 * rank + k;
  check(ncclCommInitRank(&comm, RANKS, id, rank), "ncclCommInitRank");
  check(ncclAllGather(mine, all, COUNT, ncclDouble, comm, NULL), "ncclAllGather");
  check(ncclReduceScatter(all, sum, COUNT, ncclDouble, ncclSum, comm, NULL), "ncclReduceScatter");
  for (i = 0; i < RANKS; ++i)
    for (k = 0; k < COUNT; ++k) wrong += all[i * COUNT + k] != 10.0 * i + k;
  for (k = 0; k < COUNT; ++k) wrong += sum[k] != RANKS * (10.0 * rank + k);
  check(ncclCommDestroy(comm), "ncclCommDestroy");
  return wrong == 0 ? NULL : (void*)&failed;
}

int main(void) {
  pthread_t threads[RANKS];
  int ranks[RANKS], i, wrong = 0;
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
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
