/* Sends one way between two ranks, rank 0 to rank 1, and how long they take: prints a line of JSON
 * with the median half of a round trip, and the bandwidth of a window of sends whose last is
 * answered.
 *
 *     PROGRAM BYTES ROUND_TRIPS WINDOWS SENDS_OF_A_WINDOW */
#pragma once

#include <stddef.h>

struct OneWay {
  int rank;
  void* self; /* the first argument of the functions */
  void (*send)(void* self, char* buffer, size_t bytes);
  /* `soon`: the message is the answer to one of ours, so that it pays to spin. */
  void (*receive)(void* self, char* buffer, size_t bytes, int soon);
};

/* What the command line asks for. Ends the process if it is wrong. */
struct OneWayPlan {
  size_t bytes;
  int trips, windows, sends;
};
struct OneWayPlan read_one_way_plan(int argc, char** argv, const char* program);

/* Rank 0 prints. Ends the process on an error. */
void run_one_way(const struct OneWay* way, const struct OneWayPlan* plan);
