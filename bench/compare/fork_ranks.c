#include "bench/compare/fork_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int is_parent = 1;

int fork_ranks(int ranks) {
  for (int rank = 1; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child < 0) {
      perror("fork");
      exit(2);
    }
    is_parent = child != 0;
    if (!is_parent) return rank;
  }
  return 0;
}

int join_ranks(void) {
  if (!is_parent) exit(0);
  int exit_code = 0;
  for (int status = 0; wait(&status) > 0;)
    if (status != 0) exit_code = 1;
  return exit_code;
}
