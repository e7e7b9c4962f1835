/* A rank that joins and reduces until its time is up or a call fails. After each large call it
 * rests, so that several jobs fit on a small machine. Prints how far it came:
 *   begun                  after its first call
 *   done CALLS             its time was up
 *   error CODE TEXT        the first call that failed
 * Arguments: seconds, name of the job, and optionally a file. Once the file exists, after the first
 * call, rank 0 receives a message from any source, which rank 2 sends over a new connection. The
 * other ranks continue meanwhile. */
#include <gyre/gyre.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int failed(gyreResult_t result, gyreComm_t comm) {
  if (result == gyreSuccess) return 0;
  printf("error %d %s\n", (int)result, gyreGetLastError(comm));
  return 1;
}

static int pass_note(const char* cue, int rank, gyreComm_t comm) {
  const struct timespec pause = {0, 10000000};
  enum { words = 256 }; /* more than a packet of a handshake has */
  int note[words] = {0}, turn;
  for (turn = 0; turn < 2000 && access(cue, F_OK) != 0; ++turn) nanosleep(&pause, NULL);
  if (rank == 0)
    return failed(gyreRecvTagged(note, words, gyreInt, GYRE_ANY_SOURCE, 0, NULL, NULL, comm, NULL),
                  comm);
  if (rank == 2) return failed(gyreSendTagged(note, words, gyreInt, 0, 0, comm, NULL), comm);
  return 0;
}

/* Rank 0's clock says when to end, so that all end in the same call. */
int main(int argc, char** argv) {
  static const size_t counts[] = {2, 1000, 40000, 1 << 18};
  const struct timespec rest = {0, 10000000};
  gyreComm_t comm = NULL;
  float* data = calloc(1 << 18, sizeof *data);
  double until;
  int rank = 0, size = 0;
  long calls;
  if (argc < 3 || argc > 4 || data == NULL) return 2;
  setvbuf(stdout, NULL, _IONBF, 0);
  setenv("GYRE_JOB_ID", argv[2], 1);
  if (failed(gyreCommInitEnv(&comm, NULL), NULL)) return 3;
  if (failed(gyreCommUserRank(comm, &rank), comm) || failed(gyreCommCount(comm, &size), comm))
    return 3;
  until = now() + atof(argv[1]);
  for (calls = 0;; ++calls) {
    const size_t count = counts[calls % 4];
    int more = now() < until;
    data[0] = data[count - 1] = 1;
    if (failed(gyreAllReduce(data, data, count, gyreFloat, gyreSum, comm, NULL), comm)) return 3;
    if (data[0] != (float)size || data[count - 1] != (float)size) {
      printf("wrong %f\n", (double)data[0]);
      return 1;
    }
    if (failed(gyreBroadcast(&more, &more, 1, gyreInt, 0, comm, NULL), comm)) return 3;
    if (calls == 0) printf("begun\n");
    if (calls == 0 && argc == 4 && pass_note(argv[3], rank, comm)) return 3;
    if (!more) break;
    if (count == 1 << 18) nanosleep(&rest, NULL);
  }
  if (failed(gyreCommDestroy(comm), NULL)) return 3;
  printf("done %ld\n", calls);
  free(data);
  return 0;
}
