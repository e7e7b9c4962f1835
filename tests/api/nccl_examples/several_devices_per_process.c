/* Several devices for each process, all in its one thread: joining and calling take a group. */
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 2
#define DEVICES 3
#define RANKS (PROCESSES * DEVICES)
#define COUNT 3000

static void check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  fprintf(stderr, "%s: %s (%s)\n", what, ncclGetErrorString(result), ncclGetLastError(NULL));
  exit(1);
}

static int run(int process, ncclUniqueId id) {
  static int data[DEVICES][COUNT];
  ncclComm_t comms[DEVICES];
  int i, k, wrong = 0;
  check(ncclGroupStart(), "ncclGroupStart");
  for (i = 0; i < DEVICES; ++i)
    check(ncclCommInitRank(&comms[i], RANKS, id, process * DEVICES + i), "ncclCommInitRank");
  check(ncclGroupEnd(), "the group that joins");
  for (i = 0; i < DEVICES; ++i)
    for (k = 0; k < COUNT; ++k) data[i][k] = process * DEVICES + i + k;

  check(ncclGroupStart(), "ncclGroupStart");
  for (i = 0; i < DEVICES; ++i)
    check(ncclAllReduce(data[i], data[i], COUNT, ncclInt, ncclMax, comms[i], NULL),
          "ncclAllReduce");
  check(ncclGroupEnd(), "the group that reduces");
  for (i = 0; i < DEVICES; ++i) {
    for (k = 0; k < COUNT; ++k) wrong += data[i][k] != RANKS - 1 + k;
    check(ncclCommDestroy(comms[i]), "ncclCommDestroy");
  }
  return wrong != 0;
}

int main(void) {
  int ends[2], failed, status;
  ncclUniqueId id;
  if (pipe(ends) != 0) return 1;
  if (fork() == 0) {
    if (read(ends[0], &id, sizeof id) != (ssize_t)sizeof id) return 1;
    return run(1, id);
  }
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  if (write(ends[1], &id, sizeof id) != (ssize_t)sizeof id) return 1;
  failed = run(0, id);
  failed |= wait(&status) < 0 || status != 0;
  printf(failed ? "wrong\n" : "right\n");
  return failed;
}
