#include "bench/compare/one_way_loop.h"

#include "bench/compare/timing.h"

#include <stdio.h>
#include <stdlib.h>

struct OneWayPlan read_one_way_plan(int argc, char** argv, const char* program) {
  if (argc != 5) {
    fprintf(stderr, "%s BYTES ROUND_TRIPS WINDOWS SENDS_OF_A_WINDOW\n", program);
    exit(2);
  }
  return (struct OneWayPlan){(size_t)atol(argv[1]), atoi(argv[2]), atoi(argv[3]), atoi(argv[4])};
}

static void turn(const struct OneWay* way, char* buffer, size_t bytes) {
  if (way->rank == 0) way->send(way->self, buffer, bytes);
  way->receive(way->self, buffer, bytes, 1);
  if (way->rank == 1) way->send(way->self, buffer, bytes);
}

static double* allocate_times(int count) {
  double* const times = malloc((size_t)count * sizeof *times);
  if (times == NULL) exit(1);
  return times;
}

static double half_round_trip_us(const struct OneWay* way, char* buffer,
                                 const struct OneWayPlan* plan) {
  double* const times = allocate_times(plan->trips);
  for (int i = 0; i < plan->trips / 10 + 3; ++i) turn(way, buffer, plan->bytes);
  for (int i = 0; i < plan->trips; ++i) {
    const double began = now_us();
    turn(way, buffer, plan->bytes);
    times[i] = (now_us() - began) / 2;
  }
  const double middle = median(times, plan->trips);
  free(times);
  return middle;
}

static double window_us(const struct OneWay* way, char* buffer, const struct OneWayPlan* plan) {
  const double began = now_us();
  for (int i = 0; i < plan->sends; ++i) {
    if (way->rank == 0)
      way->send(way->self, buffer, plan->bytes);
    else
      way->receive(way->self, buffer, plan->bytes, 0);
  }
  if (way->rank == 0)
    way->receive(way->self, buffer, 1, 0);
  else
    way->send(way->self, buffer, 1);
  return now_us() - began;
}

void run_one_way(const struct OneWay* way, const struct OneWayPlan* plan) {
  char* const buffer = calloc(plan->bytes + 1, 1);
  double* const times = allocate_times(plan->windows);
  if (buffer == NULL) exit(1);
  const double latency = half_round_trip_us(way, buffer, plan);
  (void)window_us(way, buffer, plan);
  for (int i = 0; i < plan->windows; ++i) times[i] = window_us(way, buffer, plan);
  const double window = median(times, plan->windows);
  if (way->rank == 0)
    printf("{\"bytes\": %zu, \"half_round_trip_us\": %.3f, \"megabytes_per_s\": %.2f}\n",
           plan->bytes, latency, (double)plan->bytes * plan->sends / window);
  free(times);
  free(buffer);
}
