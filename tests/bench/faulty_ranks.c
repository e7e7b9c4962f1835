/* Two ranks of a library that adds nothing, for compare_run_test.py: rank_loop.h has to find that
 * its all-reduce is wrong. Its broadcast ends the process, and its barrier waits for nobody. */
#include "bench/compare/fork_ranks.h"
#include "bench/compare/rank_loop.h"

#include <stdlib.h>
#include <string.h>

static void all_reduce(void* self, const struct RankTransfer* transfer) {
  (void)self;
  memmove(transfer->recv, transfer->send, transfer->count * 4);
}

static void broadcast(void* self, const struct RankTransfer* transfer) {
  (void)self;
  (void)transfer;
  exit(3);
}

static void barrier(void* self) { (void)self; }

static const struct RankCall calls[] = {
    {"all_reduce", all_reduce, RANK_OUT_OF_PLACE},
    {"broadcast", broadcast, RANK_IN_PLACE},
};

int main(void) {
  const struct RankLibrary library = {.name = "faulty",
                                      .rank = fork_ranks(2),
                                      .ranks = 2,
                                      .calls = calls,
                                      .call_count = 2,
                                      .barrier = barrier};
  run_rank_loop(&library);
  return join_ranks();
}
