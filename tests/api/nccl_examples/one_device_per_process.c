/* One process for each device. Rank 0 makes the id. A job with MPI would broadcast it; here pipes
 * bring it to the other processes. */
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS 4
#define COUNT 50000

static int check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return 1;
  fprintf(stderr, "%s: %s (%s)\n", what, ncclGetErrorString(result), ncclGetLastError(NULL));
  exit(1);
}

static int run(int rank, ncclUniqueId id) {
  ncclComm_t comm;
  int count = 0, mine = -1, k, wrong = 0;
  float* in = malloc(COUNT * sizeof(float));
  float* out = calloc(COUNT, sizeof(float));
  if (in == NULL || out == NULL) return 1;
  for (k = 0; k < COUNT; ++k) in[k] = (float)(rank + 1);
  check(ncclCommInitRank(&comm, RANKS, id, rank), "ncclCommInitRank");
  check(ncclCommCount(comm, &count), "ncclCommCount");
  check(ncclCommUserRank(comm, &mine), "ncclCommUserRank");
  check(ncclAllReduce(in, out, COUNT, ncclFloat, ncclSum, comm, NULL), "ncclAllReduce");
  for (k = 0; k < COUNT; ++k) wrong += out[k] != RANKS * (RANKS + 1) / 2;
  check(ncclCommFinalize(comm), "ncclCommFinalize");
  check(ncclCommDestroy(comm), "ncclCommDestroy");
  free(in);
  free(out);
  return wrong != 0 || count != RANKS || mine != rank;
}

int main(void) {
  int pipes[RANKS][2], rank, failed, status;
  ncclUniqueId id;
  for (rank = 1; rank < RANKS; ++rank) {
    if (pipe(pipes[rank]) != 0) return 1;
    if (fork() != 0) continue;
    if (read(pipes[rank][0], &id, sizeof id) != (ssize_t)sizeof id) return 1;
    return run(rank, id);
  }
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  for (rank = 1; rank < RANKS; ++rank)
    if (write(pipes[rank][1], &id, sizeof id) != (ssize_t)sizeof id) return 1;
  failed = run(0, id);
  for (rank = 1; rank < RANKS; ++rank) failed |= wait(&status) < 0 || status != 0;
  printf(failed ? "wrong\n" : "right\n");
  return failed;
}
