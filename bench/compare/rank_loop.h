/* One rank of a library that is compared: it carries out what the driver (compare.py) tells it over
 * a Unix socket, and answers with times. All ranks of a job have a socket each. A rank that is not
 * told anything sleeps in read(), so jobs of several libraries can share the cores and be measured
 * in turns.
 *
 * Commands are lines, and so are the answers, in JSON:
 *   measure COLLECTIVE TYPE PLACE BYTES WARMUP BLOCKS CALLS
 *       {"us": [...]}      of each block the microseconds of a call; a barrier precedes a block
 *       {"cannot": "why"}  on all ranks alike
 *   check COLLECTIVE TYPE PLACE BYTES
 *       {"wrong": N}       elements of this rank's result
 *   end
 * TYPE is float or bfloat16, PLACE is out or in. BYTES are those of the larger buffer, as for the
 * perf programs: all blocks together. Buffers stay where they are, or move from call to call. */
#pragma once

#include "bench/compare/rank_library.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Until the driver says `end`, or is gone; an error ends the process. The driver sets
 *   COMPARE_SOCKET  the path of its socket
 *   COMPARE_CORES   the cores of ranks, as in 0,1
 *   COMPARE_MEMORY  malloc or registered
 *   COMPARE_REGION  bytes of memory for each of a rank's two buffers
 *   COMPARE_COLD    if it is set, buffers move through that region
 *   COMPARE_WRITTEN if it is set, ranks write their input anew before each call: before the first
 *                   one of a block without being timed */
void run_rank_loop(const struct RankLibrary* library);

#ifdef __cplusplus
}
#endif
