/* Patterns built of sends and receives: an exchange, a scatter, a gather, an all-to-all, and
 * neighbours on a grid. Calls that depend on each other are in one group. */
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define RANKS 4
#define COUNT 30000

static ncclUniqueId id;

static void check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  fprintf(stderr, "%s: %s (%s)\n", what, ncclGetErrorString(result), ncclGetLastError(NULL));
  exit(1);
}

static int value(int from, int to, int k) { return 1000 * from + 100 * to + k % 100; }

static void fill(int* block, int from, int to) {
  int k;
  for (k = 0; k < COUNT; ++k) block[k] = value(from, to, k);
}

static int differences(const int* block, int from, int to) {
  int k, wrong = 0;
  for (k = 0; k < COUNT; ++k) wrong += block[k] != value(from, to, k);
  return wrong;
}

static void exchange(const int* out, int to, int* in, int from, ncclComm_t comm) {
  check(ncclGroupStart(), "ncclGroupStart");
  check(ncclSend(out, COUNT, ncclInt, to, comm, NULL), "ncclSend");
  check(ncclRecv(in, COUNT, ncclInt, from, comm, NULL), "ncclRecv");
  check(ncclGroupEnd(), "an exchange");
}

static int patterns(int rank, int* out, int* in, ncclComm_t comm) {
  const int next = (rank + 1) % RANKS, previous = (rank + RANKS - 1) % RANKS, root = 2;
  int i, wrong = 0, side;
  for (i = 0; i < RANKS; ++i) fill(out + i * COUNT, rank, i);

  exchange(out + next * COUNT, next, in, previous, comm);
  wrong += differences(in, previous, rank);

  check(ncclGroupStart(), "ncclGroupStart"); /* one to all */
  for (i = 0; rank == root && i < RANKS; ++i)
    check(ncclSend(out + i * COUNT, COUNT, ncclInt, i, comm, NULL), "ncclSend");
  check(ncclRecv(in, COUNT, ncclInt, root, comm, NULL), "ncclRecv");
  check(ncclGroupEnd(), "a scatter");
  wrong += differences(in, root, rank);

  check(ncclGroupStart(), "ncclGroupStart"); /* all to one */
  for (i = 0; rank == root && i < RANKS; ++i)
    check(ncclRecv(in + i * COUNT, COUNT, ncclInt, i, comm, NULL), "ncclRecv");
  check(ncclSend(out + root * COUNT, COUNT, ncclInt, root, comm, NULL), "ncclSend");
  check(ncclGroupEnd(), "a gather");
  for (i = 0; rank == root && i < RANKS; ++i) wrong += differences(in + i * COUNT, i, root);

  check(ncclGroupStart(), "ncclGroupStart"); /* all to all */
  for (i = 0; i < RANKS; ++i) {
    check(ncclSend(out + i * COUNT, COUNT, ncclInt, i, comm, NULL), "ncclSend");
    check(ncclRecv(in + i * COUNT, COUNT, ncclInt, i, comm, NULL), "ncclRecv");
  }
  check(ncclGroupEnd(), "an all-to-all");
  for (i = 0; i < RANKS; ++i) wrong += differences(in + i * COUNT, i, rank);

  check(ncclGroupStart(), "ncclGroupStart"); /* the two neighbours of a grid of 2 x 2 */
  for (side = 1; side <= 2; ++side) {
    const int peer = rank ^ side;
    check(ncclSend(out + peer * COUNT, COUNT, ncclInt, peer, comm, NULL), "ncclSend");
    check(ncclRecv(in + peer * COUNT, COUNT, ncclInt, peer, comm, NULL), "ncclRecv");
  }
  check(ncclGroupEnd(), "neighbours");
  for (side = 1; side <= 2; ++side)
    wrong += differences(in + (rank ^ side) * COUNT, rank ^ side, rank);
  return wrong;
}

static void* run(void* place) {
  static const char failed = 1;
  int* out = malloc(RANKS * COUNT * sizeof(int));
  int* in = calloc(RANKS * COUNT, sizeof(int));
  ncclComm_t comm;
  int wrong;
  if (out == NULL || in == NULL) return (void*)&failed;
  check(ncclCommInitRank(&comm, RANKS, id, *(int*)place), "ncclCommInitRank");
  wrong = patterns(*(int*)place, out, in, comm);
  check(ncclCommDestroy(comm), "ncclCommDestroy");
  free(out);
  free(in);
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
