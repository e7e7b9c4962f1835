/* Splits: rows and columns of a grid, and a communicator that leaves some ranks out. All ranks are
 * in one thread, so every round of splits is a group. */
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#define COLUMNS 3
#define ROWS 2
#define RANKS (ROWS * COLUMNS)

static void check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  fprintf(stderr, "%s: %s (%s)\n", what, ncclGetErrorString(result), ncclGetLastError(NULL));
  exit(1);
}

static void sum(ncclComm_t* comms, int* values) {
  int i;
  check(ncclGroupStart(), "ncclGroupStart");
  for (i = 0; i < RANKS; ++i)
    if (comms[i] != NULL)
      check(ncclAllReduce(&values[i], &values[i], 1, ncclInt32, ncclSum, comms[i], NULL),
            "ncclAllReduce");
  check(ncclGroupEnd(), "the group that sums");
}

int main(void) {
  ncclComm_t whole[RANKS], rows[RANKS], columns[RANKS], first[RANKS];
  int in_rows[RANKS], in_columns[RANKS], in_first[RANKS], i, wrong = 0;
  check(ncclCommInitAll(whole, RANKS, NULL), "ncclCommInitAll");
  check(ncclGroupStart(), "ncclGroupStart");
  for (i = 0; i < RANKS; ++i)
    check(ncclCommSplit(whole[i], i / COLUMNS, i, &rows[i], NULL), "the rows");
  for (i = 0; i < RANKS; ++i)
    check(ncclCommSplit(whole[i], i % COLUMNS, i, &columns[i], NULL), "the columns");
  for (i = 0; i < RANKS; ++i)
    check(ncclCommSplit(whole[i], i < 2 ? 0 : NCCL_SPLIT_NOCOLOR, -i, &first[i], NULL),
          "the first two");
  check(ncclGroupEnd(), "the group that splits");

  for (i = 0; i < RANKS; ++i) in_rows[i] = in_columns[i] = in_first[i] = i;
  sum(rows, in_rows);
  sum(columns, in_columns);
  sum(first, in_first);
  for (i = 0; i < RANKS; ++i) {
    int place = -1;
    wrong += in_rows[i] != 3 + 9 * (i / COLUMNS);
    wrong += in_columns[i] != COLUMNS + 2 * (i % COLUMNS);
    wrong += in_first[i] != (i < 2 ? 1 : i) || (first[i] == NULL) != (i >= 2);
    if (first[i] != NULL) check(ncclCommUserRank(first[i], &place), "ncclCommUserRank");
    wrong += i < 2 && place != 1 - i;
    if (first[i] != NULL) check(ncclCommDestroy(first[i]), "ncclCommDestroy");
    check(ncclCommDestroy(rows[i]), "ncclCommDestroy");
    check(ncclCommDestroy(columns[i]), "ncclCommDestroy");
    check(ncclCommDestroy(whole[i]), "ncclCommDestroy");
  }
  printf(wrong == 0 ? "right\n" : "wrong\n");
  return wrong != 0;
}
