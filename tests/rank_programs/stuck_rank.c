/* A rank of a job in which one rank, the victim, does not come. why_test.py starts it, asks `gyre
 * why` for the reason and then ends all ranks; they end by themselves after two minutes.
 *
 * All ranks make CALLS all-reduces on communicator A, with counts that follow from SEED. Then:
 *   runs       they continue for ever
 *   asleep     the victim sleeps in the program, the others call on A
 *   busy       the victim loops in the program, the others call on A
 *   left_out   all call on A and then on B, but the victim leaves A out
 *   crossed    all call on A and then on B, but the victim on B and then on A
 *   destroys   the victim destroys A and sleeps, the others call on A
 *   late       the victim does not even join: it sleeps before
 * A rank whose call fails says so and sleeps. Prints "here" when it comes to that point. Arguments:
 * MODE VICTIM CALLS SEED JOB. */
#include <gyre/gyre.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { max_count = 1 << 18 };
static float data[max_count];
static unsigned long long state;

static size_t next_count(void) {
  static const size_t counts[] = {1, 2, 1000, 5000, 70000, max_count};
  state = state * 6364136223846793005ULL + 1442695040888963407ULL;
  return counts[(state >> 33) % (sizeof counts / sizeof counts[0])];
}

static void say(const char* what) {
  printf("%s\n", what);
  fflush(stdout);
}

static void sleep_for_ever(void) {
  while (1) pause();
}

static void check(gyreResult_t result, gyreComm_t comm) {
  if (result == gyreSuccess) return;
  printf("error %d %s\n", (int)result, gyreGetLastError(comm));
  fflush(stdout);
  sleep_for_ever();
}

static gyreComm_t join(const char* job, const char* suffix) {
  static char name[128];
  gyreComm_t comm = NULL;
  snprintf(name, sizeof name, "%s-%s", job, suffix);
  setenv("GYRE_JOB_ID", name, 1);
  check(gyreCommInitEnv(&comm, NULL), NULL);
  return comm;
}

static void reduce(gyreComm_t comm, size_t count) {
  check(gyreAllReduce(data, data, count, gyreFloat, gyreSum, comm, NULL), comm);
}

static void deviate(const char* mode, gyreComm_t a, gyreComm_t b) {
  volatile unsigned long turns = 0;
  if (strcmp(mode, "busy") == 0)
    while (++turns != 0) continue;  // for ever
  if (strcmp(mode, "destroys") == 0) check(gyreCommDestroy(a), NULL);
  if (strcmp(mode, "left_out") == 0 || strcmp(mode, "crossed") == 0) reduce(b, 77);
  if (strcmp(mode, "crossed") == 0) reduce(a, next_count());
  sleep_for_ever();
}

int main(int argc, char** argv) {
  gyreComm_t a, b;
  int rank = 0, victim, i;
  if (argc != 6) return 2;
  alarm(120);
  victim = atoi(argv[2]);
  state = strtoull(argv[4], NULL, 10);
  if (strcmp(argv[1], "late") == 0 && atoi(getenv("GYRE_RANK")) == victim) {
    say("here");
    sleep_for_ever();
  }
  a = join(argv[5], "a");
  b = join(argv[5], "b");
  check(gyreCommUserRank(a, &rank), a);
  for (i = 0; i < atoi(argv[3]); ++i) reduce(a, next_count());
  reduce(b, 3);
  say("here");
  while (strcmp(argv[1], "runs") == 0) reduce(a, next_count());
  if (rank == victim) deviate(argv[1], a, b);
  reduce(a, next_count());
  reduce(b, 77);
  sleep_for_ever();
  return 0;
}
