/* What ranks give each other, and what has to come of it. */
#pragma once

#include "bench/compare/rank_library.h"

/* Whether a collective adds elements. */
int adds(const char* collective);

/* Elements of a block, if the larger buffer has so many bytes. */
size_t block_count(const char* collective, int ranks, size_t bytes, enum RankElement element);

void fill_input(const struct RankLibrary* library, const char* collective,
                const struct RankTransfer* transfer);

size_t count_wrong(const struct RankLibrary* library, const char* collective,
                   const struct RankTransfer* transfer);
