/* What the machine does without a library, for compare.py: two ranks on two cores, which share
 * memory. See rank_loop.h. Its "collectives" are the limits that stand beside the libraries' times:
 *
 *   line    each core writes a cache line and sees the other's: the shortest exchange there is
 *   cache   each core writes BYTES, then reads those that the other has written
 *   bypass  the same, with stores that leave the writer's caches at once: faster where the cores
 *           share no cache
 *   stream  each core copies BYTES; in a region that is larger than the caches they come from
 *           memory and go there
 *
 *     bare_ranks
 */
#include "bench/compare/fork_ranks.h"
#include "bench/compare/rank_loop.h"
#include "bench/compare/timing.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { LINE_BYTES = 128 }; /* processors fetch pairs of lines */
#define MAX_WAIT_US 60e6
#define SPINS_A_YIELD (1u << 13)
#define SPINS_A_LOOK (1u << 22)

struct BareLine {
  _Alignas(LINE_BYTES) _Atomic uint64_t turn;
};

struct BareRank {
  int rank;
  uint64_t turn;
  struct BareLine* lines; /* a rank's own, and the other's */
  char* shared[2];        /* so have they buffers */
  volatile uint64_t sink;
};

/* The own turn begins, and so has the other's. */
static void meet(struct BareRank* self) {
  const uint64_t turn = ++self->turn;
  atomic_store_explicit(&self->lines[self->rank].turn, turn, memory_order_release);
  double began = 0;
  for (unsigned spins = 1;; ++spins) {
    if (atomic_load_explicit(&self->lines[1 - self->rank].turn, memory_order_acquire) >= turn)
      return;
    if (spins % SPINS_A_YIELD == 0) sched_yield(); /* the other may need this core */
    if (spins % SPINS_A_LOOK != 0) continue;
    if (began == 0) began = now_us();
    if (now_us() - began > MAX_WAIT_US) {
      fprintf(stderr, "bare_ranks: the other rank does not come\n");
      exit(1);
    }
  }
}

static void line(void* self, const struct RankTransfer* t) {
  (void)t;
  meet(self);
}

static uint64_t sum_words(const char* buffer, size_t bytes) {
  const uint64_t* const words = (const uint64_t*)buffer;
  uint64_t sums[8] = {0};
  size_t i = 0;
  for (; i + 8 <= bytes / 8; i += 8)
    for (size_t lane = 0; lane < 8; ++lane) sums[lane] += words[i + lane];
  for (; i < bytes / 8; ++i) sums[0] += words[i];
  return sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
}

static void cache(void* rank, const struct RankTransfer* t) {
  struct BareRank* const self = rank;
  const size_t bytes = t->count * sizeof(float);
  memset(self->shared[self->rank], (int)self->turn, bytes);
  meet(self);
  self->sink += sum_words(self->shared[1 - self->rank], bytes);
  meet(self);
}

/* Fills whole lines past the caches, where the processor has such stores. */
static void fill_past_caches(char* buffer, size_t bytes, int value) {
#ifdef __SSE2__
  const __m128i filling = _mm_set1_epi8((char)value);
  const size_t whole = bytes / 16 * 16;
  for (size_t at = 0; at < whole; at += 16) _mm_stream_si128((__m128i*)(buffer + at), filling);
  memset(buffer + whole, value, bytes - whole);
  _mm_sfence();
#else
  memset(buffer, value, bytes);
#endif
}

static void bypass(void* rank, const struct RankTransfer* t) {
  struct BareRank* const self = rank;
  const size_t bytes = t->count * sizeof(float);
  fill_past_caches(self->shared[self->rank], bytes, (int)self->turn);
  meet(self);
  self->sink += sum_words(self->shared[1 - self->rank], bytes);
  meet(self);
}

static void stream(void* self, const struct RankTransfer* t) {
  (void)self;
  memcpy(t->recv, t->send, t->count * sizeof(float));
}

static void barrier(void* self) { meet(self); }

static const struct RankCall calls[] = {
    {"line", line, RANK_OUT_OF_PLACE},
    {"cache", cache, RANK_OUT_OF_PLACE},
    {"bypass", bypass, RANK_OUT_OF_PLACE},
    {"stream", stream, RANK_OUT_OF_PLACE},
};

int main(void) {
  const char* const region = getenv("COMPARE_REGION");
  const size_t bytes = region == NULL ? 0 : strtoull(region, NULL, 10);
  char* const memory = mmap(NULL, LINE_BYTES * 2 + 2 * bytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    perror("bare_ranks: mmap");
    return 2;
  }
  struct BareRank self = {.lines = (struct BareLine*)memory,
                          .shared = {memory + LINE_BYTES * 2, memory + LINE_BYTES * 2 + bytes}};
  self.rank = fork_ranks(2);
  memset(self.shared[self.rank], 0, bytes);
  const struct RankLibrary library = {.name = "no library",
                                      .rank = self.rank,
                                      .ranks = 2,
                                      .self = &self,
                                      .calls = calls,
                                      .call_count = sizeof calls / sizeof *calls,
                                      .barrier = barrier};
  run_rank_loop(&library);
  return join_ranks();
}
