#include "bench/compare/rank_check.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Which elements a rank has, and which it gets. */
enum RankShare { NOTHING, BLOCK, ALL_BLOCKS };
/* What an element of the result is made of. */
enum RankOrigin { OF_ALL_RANKS, OF_RANK_0, OF_BLOCKS_RANK, OF_RANK_BEFORE };

struct RankPattern {
  const char* collective;
  enum RankShare root_sends, root_gets, others_send, others_get;
  enum RankOrigin origin;
  int blocks; /* the larger buffer has one for each rank */
};

static const struct RankPattern patterns[] = {
    {"all_reduce", BLOCK, BLOCK, BLOCK, BLOCK, OF_ALL_RANKS, 0},
    {"reduce", BLOCK, BLOCK, BLOCK, NOTHING, OF_ALL_RANKS, 0},
    {"broadcast", BLOCK, BLOCK, NOTHING, BLOCK, OF_RANK_0, 0},
    {"reduce_scatter", ALL_BLOCKS, BLOCK, ALL_BLOCKS, BLOCK, OF_ALL_RANKS, 1},
    {"all_gather", BLOCK, ALL_BLOCKS, BLOCK, ALL_BLOCKS, OF_BLOCKS_RANK, 1},
    {"all_to_all", ALL_BLOCKS, ALL_BLOCKS, ALL_BLOCKS, ALL_BLOCKS, OF_BLOCKS_RANK, 1},
    {"gather", BLOCK, ALL_BLOCKS, BLOCK, NOTHING, OF_BLOCKS_RANK, 1},
    {"scatter", ALL_BLOCKS, BLOCK, NOTHING, BLOCK, OF_RANK_0, 1},
    {"send_recv", BLOCK, BLOCK, BLOCK, BLOCK, OF_RANK_BEFORE, 0},
};

static const struct RankPattern* pattern_of(const char* collective) {
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; ++i)
    if (strcmp(patterns[i].collective, collective) == 0) return &patterns[i];
  return NULL;
}

int adds(const char* collective) {
  const struct RankPattern* const pattern = pattern_of(collective);
  return pattern != NULL && pattern->origin == OF_ALL_RANKS;
}

static size_t element_bytes(enum RankElement element) { return element == RANK_FLOAT ? 4 : 2; }

size_t block_count(const char* collective, int ranks, size_t bytes, enum RankElement element) {
  const struct RankPattern* const pattern = pattern_of(collective);
  const size_t blocks = pattern != NULL && pattern->blocks ? (size_t)ranks : 1;
  return bytes / blocks / element_bytes(element);
}

/* Whole numbers whose sums are exact in either type, of up to 36 ranks. */
static float input(int rank, size_t index) {
  const uint32_t mixed = ((uint32_t)index * 2654435761u) ^ ((uint32_t)rank * 40503u + 77u);
  return (float)((mixed >> 9) % 7 + 1);
}

static void store(void* buffer, size_t index, float value, enum RankElement element) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (element == RANK_FLOAT)
    ((float*)buffer)[index] = value;
  else
    ((uint16_t*)buffer)[index] = (uint16_t)(bits >> 16);
}

static float load(const void* buffer, size_t index, enum RankElement element) {
  if (element == RANK_FLOAT) return ((const float*)buffer)[index];
  const uint32_t bits = (uint32_t)((const uint16_t*)buffer)[index] << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Elements from `first` on that a rank's buffer holds, of its input or its result. */
struct RankSpan {
  size_t first, count;
};

static struct RankSpan span_of(const struct RankLibrary* library, const struct RankPattern* pattern,
                               enum RankShare share, const struct RankTransfer* transfer) {
  const size_t all = (size_t)library->ranks * transfer->count;
  struct RankSpan span = {0, share == NOTHING ? 0 : share == BLOCK ? transfer->count : all};
  /* In place a block lies where the buffer of all blocks has it. */
  if (transfer->in_place && share == BLOCK && pattern->blocks)
    span.first = (size_t)library->rank * transfer->count;
  return span;
}

void fill_input(const struct RankLibrary* library, const char* collective,
                const struct RankTransfer* transfer) {
  const struct RankPattern* const pattern = pattern_of(collective);
  if (pattern == NULL) return;
  const int root = library->rank == 0;
  const enum RankShare sends = root ? pattern->root_sends : pattern->others_send;
  const size_t all = (size_t)(pattern->blocks ? library->ranks : 1) * transfer->count;
  for (size_t i = 0; i < all; ++i) store(transfer->recv, i, 0, transfer->element);
  const struct RankSpan span = span_of(library, pattern, sends, transfer);
  for (size_t i = 0; i < span.count; ++i)
    store(transfer->send, span.first + i, input(library->rank, i), transfer->element);
}

static float expected(const struct RankLibrary* library, const struct RankPattern* pattern,
                      size_t index, size_t count) {
  const int rank = library->rank;
  /* Where the sender has it. */
  size_t there = index;
  if (pattern->others_send == ALL_BLOCKS || pattern->root_sends == ALL_BLOCKS)
    there = (size_t)rank * count + index % count;
  else if (pattern->origin == OF_BLOCKS_RANK)
    there = index % count;
  switch (pattern->origin) {
    case OF_RANK_0:
      return input(0, there);
    case OF_BLOCKS_RANK:
      return input((int)(index / count), there);
    case OF_RANK_BEFORE:
      return input((rank + library->ranks - 1) % library->ranks, there);
    case OF_ALL_RANKS:
      break;
  }
  float sum = 0;
  for (int each = 0; each < library->ranks; ++each) sum += input(each, there);
  return sum;
}

size_t count_wrong(const struct RankLibrary* library, const char* collective,
                   const struct RankTransfer* transfer) {
  const struct RankPattern* const pattern = pattern_of(collective);
  if (pattern == NULL || library->moves_only) return 0;
  const int root = library->rank == 0;
  const enum RankShare gets = root ? pattern->root_gets : pattern->others_get;
  struct RankSpan span = span_of(library, pattern, gets, transfer);
  if (library->scatters_to_begin && pattern->origin == OF_ALL_RANKS) span.first = 0;
  size_t wrong = 0;
  for (size_t i = 0; i < span.count; ++i) {
    const float value = load(transfer->recv, span.first + i, transfer->element);
    wrong += value != expected(library, pattern, i, transfer->count);
  }
  return wrong;
}
