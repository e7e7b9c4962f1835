/* Errors: a wrong argument is refused and changes nothing. When one rank gives up, the others get
 * an error, abort what is left, and the job continues with a new communicator. */
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RANKS 3

static ncclUniqueId ids[2];
static pthread_barrier_t together;

static void check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  fprintf(stderr, "%s: %s (%s)\n", what, ncclGetErrorString(result), ncclGetLastError(NULL));
  exit(1);
}

/* The state of a communicator once it is no longer working. */
static ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  int asked;
  for (asked = 0; state == ncclInProgress && asked < 100000; ++asked) {
    check(ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError");
    if (state == ncclInProgress) usleep(100);
  }
  return state;
}

static void* run(void* place) {
  static const char failed = 1;
  const int rank = *(int*)place;
  float value = 1;
  ncclComm_t comm;
  int wrong = 0;
  check(ncclCommInitRank(&comm, RANKS, ids[0], rank), "ncclCommInitRank");
  wrong += ncclAllReduce(NULL, &value, 1, ncclFloat, ncclSum, comm, NULL) != ncclInvalidArgument;
  wrong += strlen(ncclGetLastError(comm)) == 0;
  wrong += ncclBroadcast(&value, &value, 1, ncclFloat, RANKS, comm, NULL) != ncclInvalidArgument;
  wrong += state_of(comm) != ncclSuccess || value != 1;
  check(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, NULL), "ncclAllReduce");
  wrong += value != RANKS;

  pthread_barrier_wait(&together); /* nobody gives up while another is still in that call */
  if (rank == 1) {
    check(ncclCommAbort(comm), "ncclCommAbort");
  } else {
    wrong += ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, NULL) != ncclRemoteError;
    wrong += state_of(comm) != ncclRemoteError;
    wrong += strstr(ncclGetLastError(comm), "rank 1") == NULL;
    check(ncclCommAbort(comm), "ncclCommAbort");
  }
  check(ncclCommInitRank(&comm, RANKS, ids[1], rank), "joining anew");
  value = 2;
  check(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, NULL), "ncclAllReduce");
  wrong += value != 2 * RANKS;
  check(ncclCommDestroy(comm), "ncclCommDestroy");
  return wrong == 0 ? NULL : (void*)&failed;
}

int main(void) {
  pthread_t threads[RANKS];
  int ranks[RANKS], i, wrong = 0;
  if (pthread_barrier_init(&together, NULL, RANKS) != 0) return 1;
  for (i = 0; i < 2; ++i) check(ncclGetUniqueId(&ids[i]), "ncclGetUniqueId");
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
