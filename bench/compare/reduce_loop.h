/* The timing loop of all_reduce_perf around the all-reduce of another library, so that the two can
 * be compared: warm-up sweep over doubling sizes, one untimed call, a barrier (an all-reduce of 8
 * bytes, as there), then iterations back to back through rotating buffers, with one clock reading
 * between them. Each iteration counts as its slowest rank. Sums of floats only; every element is
 * checked once.
 *
 *   PROGRAM -b 8 -e 64M -f 2 -n 20 -w 1 [-c 0] [-J rows.jsonl]
 */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct PeerLibrary {
  const char* name; /* and its version */
  int rank, ranks;
  void* self; /* the first argument of the functions */
  /* In place if both are the same. */
  void (*all_reduce)(void* self, const float* send, float* recv, size_t count);
  /* All ranks' values into one: their sum, or the largest. Not timed. */
  void (*combine)(void* self, double* values, int count, int largest);
  int gives_no_sums; /* then no result is checked */
};

/* The program's exit code. Ends the process on an error. */
int run_reduce_loop(const struct PeerLibrary* library, int argc, char** argv);

/* For libraries without a launcher: makes `ranks` processes of this one, and returns the number of
 * each. Rank 0 is the parent, and waits for the others by `join_processes`, which gives the exit
 * code of all, given its own. The others leave there. */
int fork_processes(int ranks);
int join_processes(int exit_code);

#ifdef __cplusplus
}
#endif
