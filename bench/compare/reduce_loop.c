#include "bench/compare/reduce_loop.h"

#include "bench/compare/timing.h"

#include <errno.h>
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct options {
  size_t min_bytes, max_bytes, factor;
  int iterations, warmup, check;
  const char* rows_file;
};

struct bench {
  struct options options;
  const struct PeerLibrary* library;
  float* send;
  float* recv;
  double* iteration_us;
  FILE* rows;
};

struct result {
  double time_us, min_us, p50_us, p99_us;
  double wrong;
};

static void fail(const char* text) {
  fprintf(stderr, "all-reduce of a peer: %s\n", text);
  exit(2);
}

/* Digits and an optional K, M or G; 0 and an error if anything else. */
static size_t parse_size(const char* text) {
  char* end = NULL;
  double value = strtod(text, &end);
  if (end == text || value < 0) fail("a size is not a number");
  if (*end == 'K' || *end == 'k')
    value *= 1024, ++end;
  else if (*end == 'M' || *end == 'm')
    value *= 1024 * 1024, ++end;
  else if (*end == 'G' || *end == 'g')
    value *= 1024 * 1024 * 1024, ++end;
  if (*end != '\0') fail("a size ends in something else than K, M or G");
  return (size_t)value;
}

static int parse_count(const char* text, int least) {
  char* end = NULL;
  const long value = strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < least || value > 1 << 30) fail("a count is wrong");
  return (int)value;
}

static struct options parse_options(int argc, char** argv) {
  struct options o = {8, 64u << 20, 2, 20, 1, 1, NULL};
  int letter;
  while ((letter = getopt(argc, argv, "b:e:f:n:w:c:J:")) != -1) {
    switch (letter) {
      case 'b':
        o.min_bytes = parse_size(optarg);
        break;
      case 'e':
        o.max_bytes = parse_size(optarg);
        break;
      case 'f':
        o.factor = (size_t)parse_count(optarg, 2);
        break;
      case 'n':
        o.iterations = parse_count(optarg, 1);
        break;
      case 'w':
        o.warmup = parse_count(optarg, 0);
        break;
      case 'c':
        o.check = parse_count(optarg, 0);
        break;
      case 'J':
        o.rows_file = optarg;
        break;
      default:
        fail("usage: [-b SIZE] [-e SIZE] [-f FACTOR] [-n N] [-w N] [-c 0|1] [-J FILE]");
    }
  }
  if (o.min_bytes < sizeof(float) || o.min_bytes > o.max_bytes) fail("-b and -e are wrong");
  return o;
}

/* Multiples of 1/8 below 16: sums of up to thousands of ranks are exact in a float. */
static float input(int rank, size_t index, unsigned seed) {
  const uint32_t mixed = ((uint32_t)index * 2654435761u) ^ ((uint32_t)rank * 40503u + seed);
  return (float)((mixed >> 7) % 128) / 8.0f;
}

static void fill(float* data, int rank, size_t count, unsigned seed) {
  for (size_t i = 0; i < count; ++i) data[i] = input(rank, i, seed);
}

static void all_reduce(const struct bench* b, size_t offset, size_t count, int in_place) {
  float* const recv = b->recv + offset;
  b->library->all_reduce(b->library->self, in_place ? recv : b->send + offset, recv, count);
}

static double combined(const struct bench* b, double value, int largest) {
  b->library->combine(b->library->self, &value, 1, largest);
  return value;
}

static double count_wrong(const struct bench* b, size_t count, int in_place) {
  const unsigned seed = (unsigned)count + (unsigned)in_place;
  fill(in_place ? b->recv : b->send, b->library->rank, count, seed);
  all_reduce(b, 0, count, in_place);
  double wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    float expected = 0;
    for (int rank = 0; rank < b->library->ranks; ++rank) expected += input(rank, i, seed);
    wrong += b->recv[i] != expected;
  }
  return combined(b, wrong, 0);
}

static struct result measure(struct bench* b, size_t count, int in_place) {
  const int n = b->options.iterations;
  const size_t last = b->options.max_bytes / sizeof(float) - count;
  struct result result = {0, 0, 0, 0, 0};
  size_t offset = 0;
  all_reduce(b, 0, count, in_place);
  combined(b, 0, 0);
  double mark = now_us();
  const double begin = mark;
  for (int i = 0; i < n; ++i) {
    all_reduce(b, offset, count, in_place);
    offset = offset + count > last ? 0 : offset + count;
    const double next = now_us();
    b->iteration_us[i] = next - mark;
    mark = next;
  }
  result.time_us = combined(b, (mark - begin) / n, 0) / b->library->ranks;
  b->library->combine(b->library->self, b->iteration_us, n, 1);
  qsort(b->iteration_us, (size_t)n, sizeof(double), ascending);
  const int rank_99 = (n * 99 + 99) / 100;
  result.min_us = b->iteration_us[0];
  result.p50_us = b->iteration_us[n / 2];
  result.p99_us = b->iteration_us[(rank_99 < n ? rank_99 : n) - 1];
  if (b->options.check) result.wrong = count_wrong(b, count, in_place);
  return result;
}

static void print_half(const struct bench* b, size_t bytes, const struct result* r) {
  const double algorithm = (double)bytes / r->time_us / 1e3;
  const int ranks = b->library->ranks;
  printf("  %7.2f  %6.2f  %6.2f", r->time_us, algorithm, algorithm * 2 * (ranks - 1) / ranks);
  if (b->options.check)
    printf("  %6g", r->wrong);
  else
    printf("     N/A");
  printf("  %7.2f  %7.2f  %7.2f", r->min_us, r->p50_us, r->p99_us);
}

static void write_row(const struct bench* b, size_t bytes, int in_place, const struct result* r) {
  if (b->rows == NULL) return;
  fprintf(
      b->rows,
      "{\"bytes\": %zu, \"in_place\": %s, \"time_us\": %.4f, \"min_us\": %.4f, \"p50_us\": %.4f,"
      " \"p99_us\": %.4f, \"wrong\": %.0f}\n",
      bytes, in_place ? "true" : "false", r->time_us, r->min_us, r->p50_us, r->p99_us,
      b->options.check ? r->wrong : 0.0);
}

static double sweep(struct bench* b) {
  const struct options* o = &b->options;
  double wrong = 0;
  for (size_t bytes = o->min_bytes; bytes <= o->max_bytes; bytes *= 2)
    for (int i = 0; i < o->warmup; ++i) all_reduce(b, 0, bytes / sizeof(float), 0);
  for (size_t bytes = o->min_bytes; bytes <= o->max_bytes; bytes *= o->factor) {
    const size_t count = bytes / sizeof(float);
    struct result results[2];
    for (int in_place = 0; in_place < 2; ++in_place) {
      results[in_place] = measure(b, count, in_place);
      wrong += results[in_place].wrong;
    }
    if (b->library->rank != 0) continue;
    printf("%12zu  %12zu  %8s  %6s  %6d", bytes, count, "float", "sum", -1);
    for (int in_place = 0; in_place < 2; ++in_place) {
      print_half(b, bytes, &results[in_place]);
      write_row(b, bytes, in_place, &results[in_place]);
    }
    printf("\n");
    fflush(stdout);
  }
  return wrong;
}

static float* allocate(size_t bytes) {
  void* memory = NULL;
  if (posix_memalign(&memory, 4096, bytes) != 0) fail("no memory");
  return memory;
}

static void print_head(const struct bench* b) {
  printf("# %s\n# %d ranks, %d iterations; out of place, then in place\n", b->library->name,
         b->library->ranks, b->options.iterations);
  printf("# %10s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root");
  for (int half = 0; half < 2; ++half)
    printf("  %7s  %6s  %6s  %6s  %7s  %7s  %7s", "time", "algbw", "busbw", "#wrong", "min", "p50",
           "p99");
  printf("\n");
}

int run_reduce_loop(const struct PeerLibrary* library, int argc, char** argv) {
  struct bench b = {parse_options(argc, argv), library, NULL, NULL, NULL, NULL};
  if (library->gives_no_sums) b.options.check = 0;
  b.send = allocate(b.options.max_bytes);
  b.recv = allocate(b.options.max_bytes);
  b.iteration_us = malloc((size_t)b.options.iterations * sizeof(double));
  if (b.iteration_us == NULL) fail("no memory");
  fill(b.send, library->rank, b.options.max_bytes / sizeof(float), 0);
  fill(b.recv, library->rank, b.options.max_bytes / sizeof(float), 0);
  if (library->rank == 0) {
    print_head(&b);
    if (b.options.rows_file != NULL) {
      b.rows = fopen(b.options.rows_file, "w");
      if (b.rows == NULL) fail(strerror(errno));
    }
  }
  const double wrong = sweep(&b);
  if (b.rows != NULL && fclose(b.rows) != 0) fail(strerror(errno));
  free(b.send);
  free(b.recv);
  free(b.iteration_us);
  return wrong > 0 ? 1 : 0;
}

static int is_parent = 1;

int fork_processes(int ranks) {
  for (int rank = 1; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child < 0) fail("no further process");
    is_parent = child != 0;
    if (!is_parent) return rank;
  }
  return 0;
}

int join_processes(int exit_code) {
  if (!is_parent) exit(exit_code);
  for (int status = 0; wait(&status) > 0;)
    if (exit_code == 0 && status != 0) exit_code = 1;
  return exit_code;
}
