/* Several small operations of one communicator in one group, which the library may merge. As with
 * MPI, the group holds collectives of different kinds. */
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define RANKS 3
#define TENSORS 20

static ncclUniqueId id;

static void check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  fprintf(stderr, "%s: %s (%s)\n", what, ncclGetErrorString(result), ncclGetLastError(NULL));
  exit(1);
}

static void* run(void* place) {
  static const char failed = 1;
  const int rank = *(int*)place;
  float gradients[TENSORS][TENSORS], weights[TENSORS], norm = (float)rank;
  ncclComm_t comm;
  int i, k, wrong = 0;
  check(ncclCommInitRank(&comm, RANKS, id, rank), "ncclCommInitRank");
  for (i = 0; i < TENSORS; ++i)
    for (k = 0; k < TENSORS; ++k) gradients[i][k] = (float)(rank * i + k);
  for (i = 0; i < TENSORS; ++i) weights[i] = (float)(rank == 1 ? i : 0);

  check(ncclGroupStart(), "ncclGroupStart");
  check(ncclBroadcast(weights, weights, TENSORS, ncclFloat, 1, comm, NULL), "ncclBroadcast");
  for (i = 0; i < TENSORS; ++i) /* of 0 elements, 1, 2, ... */
    check(ncclAllReduce(gradients[i], gradients[i], (size_t)i, ncclFloat, ncclAvg, comm, NULL),
          "ncclAllReduce");
  check(ncclReduce(&norm, &norm, 1, ncclFloat, ncclMax, 0, comm, NULL), "ncclReduce");
  check(ncclGroupEnd(), "ncclGroupEnd");

  for (i = 0; i < TENSORS; ++i) {
    wrong += weights[i] != (float)i;
    for (k = 0; k < TENSORS; ++k) wrong += gradients[i][k] != (float)((k < i ? 1 : rank) * i + k);
  }
  wrong += norm != (float)(rank == 0 ? RANKS - 1 : rank);
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
