/* Ranks of a program that no launcher starts. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* Makes `ranks` processes of this one, and returns the number of each. Rank 0 is the parent, and
 * waits for the others by `join_ranks`, which returns the exit code of all. The others leave
 * there. */
int fork_ranks(int ranks);
int join_ranks(void);

#ifdef __cplusplus
}
#endif
