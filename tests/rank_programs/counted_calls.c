/* Makes small calls in windows, for tests/comm/instructions_test.py, which counts the instructions
 * within counted_window. Rank 0 prints the kinds of calls in their order, each with the number of
 * windows and of calls in a window. */
#include <gyre/gyre.h>

#include <stdio.h>
#include <stdlib.h>

enum { windows = 50, calls = 8 };

static gyreComm_t comm;
static int rank;
static float in[2], out[4];

static void check(gyreResult_t result) {
  if (result == gyreSuccess) return;
  fprintf(stderr, "%s\n", gyreGetLastError(comm));
  exit(1);
}

/* What all kinds cost beside the call itself: a call of a function that does nothing. */
__attribute__((noinline)) static gyreResult_t at_once(const void* send, void* receive, size_t count,
                                                      gyreDataType_t type, gyreRedOp_t op,
                                                      gyreComm_t of, gyreStream_t stream) {
  (void)send, (void)receive, (void)count, (void)type, (void)op, (void)of, (void)stream;
  __asm__ volatile("");
  return gyreSuccess;
}
static void nothing(void) { check(at_once(in, out, 2, gyreFloat32, gyreSum, comm, NULL)); }

static void all_reduce(void) { check(gyreAllReduce(in, out, 2, gyreFloat32, gyreSum, comm, NULL)); }
static void barrier(void) { check(gyreBarrier(comm, NULL)); }
static void broadcast(void) { check(gyreBroadcast(in, out, 2, gyreFloat32, 1, comm, NULL)); }
static void all_gather(void) { check(gyreAllGather(in, out, 2, gyreFloat32, comm, NULL)); }
static void all_to_all(void) { check(gyreAlltoAll(in, out, 1, gyreFloat32, comm, NULL)); }

static void in_turn(void) {
  all_reduce();
  barrier();
  broadcast();
}

static void message(int sender) {
  if (rank == sender)
    check(gyreSend(in, 2, gyreFloat32, 1 - rank, comm, NULL));
  else
    check(gyreRecv(out, 2, gyreFloat32, 1 - rank, comm, NULL));
}
static void sent(void) { message(0); }
static void received(void) { message(1); }
static void swapped(void) {
  check(gyreGroupStart());
  check(gyreSend(in, 2, gyreFloat32, 1 - rank, comm, NULL));
  check(gyreRecv(out, 2, gyreFloat32, 1 - rank, comm, NULL));
  check(gyreGroupEnd());
}

static const struct {
  const char* name;
  void (*call)(void);
} kinds[] = {{"nothing", nothing},     {"all_reduce", all_reduce}, {"barrier", barrier},
             {"broadcast", broadcast}, {"all_gather", all_gather}, {"all_to_all", all_to_all},
             {"send", sent},           {"receive", received},      {"group", swapped},
             {"in_turn", in_turn}};

/* Not inlined, and under this name: what is counted. */
__attribute__((noinline)) void counted_window(void (*call)(void)) {
  for (int i = 0; i < calls; ++i) call();
}

int main(void) {
  check(gyreCommInitEnv(&comm, NULL));
  check(gyreCommUserRank(comm, &rank));
  for (unsigned kind = 0; kind < sizeof kinds / sizeof *kinds; ++kind) {
    if (rank == 0) printf("%s %d %d\n", kinds[kind].name, windows, calls);
    for (int window = 0; window < windows; ++window) {
      /* The other rank has gone to sleep while the counts of the last window were written. */
      for (int i = 0; i < 5; ++i) kinds[kind].call();
      counted_window(kinds[kind].call);
    }
  }
  check(gyreCommDestroy(comm));
  return 0;
}
