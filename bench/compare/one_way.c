/* Sends one way by gyreSend and gyreRecv, as ucx_perftest sends: see one_way_loop.h. For ucx.py,
 * tcp.py and tls.py.
 *
 *     gyre run -n 2 one_way BYTES ROUND_TRIPS WINDOWS SENDS_OF_A_WINDOW */
#include "bench/compare/one_way_loop.h"
#include <gyre/gyre.h>

#include <stdio.h>
#include <stdlib.h>

struct OneWayJob {
  gyreComm_t comm;
  int rank;
};

static void check(gyreResult_t result, const char* call, gyreComm_t comm) {
  if (result == gyreSuccess) return;
  fprintf(stderr, "%s: %s\n", call, gyreGetLastError(comm));
  exit(1);
}

static void send_message(void* self, char* buffer, size_t bytes) {
  const struct OneWayJob* const job = self;
  check(gyreSend(buffer, bytes, gyreInt8, 1 - job->rank, job->comm, NULL), "gyreSend", job->comm);
}

static void receive_message(void* self, char* buffer, size_t bytes, int soon) {
  const struct OneWayJob* const job = self;
  (void)soon; /* Gyre spins by itself */
  check(gyreRecv(buffer, bytes, gyreInt8, 1 - job->rank, job->comm, NULL), "gyreRecv", job->comm);
}

int main(int argc, char** argv) {
  const struct OneWayPlan plan = read_one_way_plan(argc, argv, "one_way");
  struct OneWayJob job = {NULL, 0};
  check(gyreCommInitEnv(&job.comm, NULL), "gyreCommInitEnv", NULL);
  check(gyreCommUserRank(job.comm, &job.rank), "gyreCommUserRank", job.comm);
  const struct OneWay way = {job.rank, &job, send_message, receive_message};
  run_one_way(&way, &plan);
  check(gyreCommDestroy(job.comm), "gyreCommDestroy", NULL);
  return 0;
}
