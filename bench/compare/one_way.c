/* Sends one way, as ucx_perftest does: rank 0 sends and rank 1 receives. Prints a line of JSON for
 * each size: the median half of a round trip, and the bandwidth of a window of sends, of which the
 * last is answered. For ucx.py and tcp.py.
 *
 *     gyre run -n 2 one_way BYTES ROUND_TRIPS WINDOWS SENDS_OF_A_WINDOW */
#include "bench/compare/timing.h"
#include <gyre/gyre.h>

#include <stdio.h>
#include <stdlib.h>

static void check(gyreResult_t result, const char* call, gyreComm_t comm) {
  if (result == gyreSuccess) return;
  fprintf(stderr, "%s: %s\n", call, gyreGetLastError(comm));
  exit(1);
}

struct OneWayJob {
  gyreComm_t comm;
  int rank;
  char* buffer;
  size_t bytes;
};

static void send(const struct OneWayJob* job, size_t bytes) {
  check(gyreSend(job->buffer, bytes, gyreInt8, 1 - job->rank, job->comm, NULL), "gyreSend",
        job->comm);
}

static void receive(const struct OneWayJob* job, size_t bytes) {
  check(gyreRecv(job->buffer, bytes, gyreInt8, 1 - job->rank, job->comm, NULL), "gyreRecv",
        job->comm);
}

static void turn(const struct OneWayJob* job) {
  if (job->rank == 0) send(job, job->bytes);
  receive(job, job->bytes);
  if (job->rank == 1) send(job, job->bytes);
}

static double half_round_trip_us(const struct OneWayJob* job, int trips) {
  double* const times = malloc((size_t)trips * sizeof *times);
  if (times == NULL) exit(1);
  for (int i = 0; i < trips / 10 + 3; ++i) turn(job);
  for (int i = 0; i < trips; ++i) {
    const double began = now_us();
    turn(job);
    times[i] = (now_us() - began) / 2;
  }
  const double middle = median(times, trips);
  free(times);
  return middle;
}

static double window_us(const struct OneWayJob* job, int sends) {
  const double began = now_us();
  for (int i = 0; i < sends; ++i) {
    if (job->rank == 0)
      send(job, job->bytes);
    else
      receive(job, job->bytes);
  }
  if (job->rank == 0)
    receive(job, 1);
  else
    send(job, 1);
  return now_us() - began;
}

int main(int argc, char** argv) {
  if (argc != 5) {
    fprintf(stderr, "one_way BYTES ROUND_TRIPS WINDOWS SENDS_OF_A_WINDOW\n");
    return 2;
  }
  struct OneWayJob job = {NULL, 0, NULL, (size_t)atol(argv[1])};
  const int trips = atoi(argv[2]), windows = atoi(argv[3]), sends = atoi(argv[4]);
  check(gyreCommInitEnv(&job.comm, NULL), "gyreCommInitEnv", NULL);
  check(gyreCommUserRank(job.comm, &job.rank), "gyreCommUserRank", job.comm);
  job.buffer = calloc(job.bytes + 1, 1);
  double* const times = malloc((size_t)windows * sizeof *times);
  if (job.buffer == NULL || times == NULL) return 1;
  const double latency = half_round_trip_us(&job, trips);
  (void)window_us(&job, sends);
  for (int i = 0; i < windows; ++i) times[i] = window_us(&job, sends);
  const double window = median(times, windows);
  if (job.rank == 0)
    printf("{\"bytes\": %zu, \"half_round_trip_us\": %.3f, \"megabytes_per_s\": %.2f}\n", job.bytes,
           latency, (double)job.bytes * sends / window);
  free(times);
  free(job.buffer);
  check(gyreCommDestroy(job.comm), "gyreCommDestroy", NULL);
  return 0;
}
