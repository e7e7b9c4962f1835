/* A library as rank_loop.h sees it: which calls it has, and what a call moves. */
#pragma once

#include <stddef.h>

enum RankElement { RANK_FLOAT, RANK_BFLOAT16 };

/* One call. In place, both buffers are the same one, from its beginning. */
struct RankTransfer {
  void* send;
  void* recv;
  size_t count; /* of a block */
  enum RankElement element;
  int in_place;
};

enum { RANK_OUT_OF_PLACE = 1, RANK_IN_PLACE = 2 };

struct RankCall {
  const char* collective;
  void (*run)(void* self, const struct RankTransfer* transfer);
  int forms; /* the places that the library has */
};

struct RankLibrary {
  const char* name; /* and its version */
  int rank, ranks;
  void* self; /* the first argument of the functions */
  const struct RankCall* calls;
  int call_count;
  int adds_bfloat16;
  int moves_only;        /* its results are not checked */
  int scatters_to_begin; /* a reduce-scatter in place leaves its block at the buffer's begin */
  void (*barrier)(void* self);
  /* Memory that the library reaches best; NULL: it has none of its own. */
  void* (*allocate)(void* self, size_t bytes);
  void (*release)(void* self, void* memory);
};
