#include "bench/compare/rank_loop.h"

#include "bench/compare/rank_check.h"
#include "bench/compare/timing.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MAX_LINE = 256, MAX_BLOCKS = 1 << 16, SPACE_BETWEEN = 4096 };

struct RankLoop {
  const struct RankLibrary* library;
  FILE* in;
  FILE* out;
  char* send;
  char* recv;
  size_t region; /* of each buffer */
  size_t offset; /* where the next call begins, if buffers move */
  double* times;
};

static void fail(const struct RankLibrary* library, const char* what, const char* why) {
  fprintf(stderr, "%s, rank %d: %s: %s\n", library->name, library->rank, what, why);
  exit(2);
}

static const char* setting(const struct RankLibrary* library, const char* name) {
  const char* const value = getenv(name);
  if (value == NULL) fail(library, name, "is not set: compare.py starts this program");
  return value;
}

/* The core of this rank, of a list as 0,1; ranks go round it. */
static void bind_to_core(const struct RankLibrary* library, const char* cores) {
  int listed[CPU_SETSIZE], count = 0;
  for (const char* at = cores; *at != '\0' && count < CPU_SETSIZE;) {
    char* end = NULL;
    listed[count++] = (int)strtol(at, &end, 10);
    if (end == at) fail(library, "COMPARE_CORES", "is no list of cores");
    at = *end == ',' ? end + 1 : end;
  }
  if (count == 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(listed[library->rank % count], &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) fail(library, "a core", strerror(errno));
}

static void join_driver(struct RankLoop* loop) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  const char* const path = setting(loop->library, "COMPARE_SOCKET");
  if (strlen(path) >= sizeof address.sun_path) fail(loop->library, path, "is too long");
  strcpy(address.sun_path, path);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, (struct sockaddr*)&address, sizeof address) != 0)
    fail(loop->library, path, strerror(errno));
  loop->in = fdopen(fd, "r");
  loop->out = fdopen(dup(fd), "w");
  if (loop->in == NULL || loop->out == NULL) fail(loop->library, path, strerror(errno));
  fprintf(loop->out, "{\"rank\": %d, \"ranks\": %d, \"library\": \"%s\"}\n", loop->library->rank,
          loop->library->ranks, loop->library->name);
  fflush(loop->out);
}

static char* allocate(const struct RankLibrary* library, size_t bytes) {
  void* memory = NULL;
  if (strcmp(setting(library, "COMPARE_MEMORY"), "registered") == 0 && library->allocate != NULL)
    memory = library->allocate(library->self, bytes);
  else if (posix_memalign(&memory, 4096, bytes) != 0)
    memory = NULL;
  if (memory == NULL) fail(library, "buffers", "no memory");
  memset(memory, 0x3f, bytes); /* no denormal numbers, whichever byte changes */
  return memory;
}

static void release(const struct RankLibrary* library, char* memory) {
  if (strcmp(setting(library, "COMPARE_MEMORY"), "registered") == 0 && library->allocate != NULL)
    library->release(library->self, memory);
  else
    free(memory);
}

static const struct RankCall* find_call(const struct RankLibrary* library, const char* collective) {
  for (int i = 0; i < library->call_count; ++i)
    if (strcmp(library->calls[i].collective, collective) == 0) return &library->calls[i];
  return NULL;
}

/* Why the library does not make this call; NULL: it does. */
static const char* why_not(const struct RankLibrary* library, const struct RankCall* call,
                           const char* collective, const struct RankTransfer* transfer) {
  if (call == NULL) return "it has no such call";
  if ((call->forms & (transfer->in_place ? RANK_IN_PLACE : RANK_OUT_OF_PLACE)) == 0)
    return transfer->in_place ? "it has no form in place" : "it has no form out of place";
  if (transfer->element == RANK_BFLOAT16 && adds(collective) && !library->adds_bfloat16)
    return "it adds no bfloat16";
  return NULL;
}

/* The next place of the buffers: the same one if the region holds one only. */
static void place(struct RankLoop* loop, struct RankTransfer* transfer, size_t bytes) {
  const size_t step = (bytes + 2 * SPACE_BETWEEN - 1) / SPACE_BETWEEN * SPACE_BETWEEN;
  if (loop->offset + bytes > loop->region) loop->offset = 0;
  transfer->recv = loop->recv + loop->offset;
  transfer->send = transfer->in_place ? transfer->recv : loop->send + loop->offset;
  loop->offset += step;
}

/* A word of each line, so that no other cache keeps it. */
static void write_anew(const struct RankTransfer* transfer, size_t bytes) {
  volatile char* const input = transfer->send;
  for (size_t i = 0; i < bytes; i += 64) input[i] = (char)(input[i] + 1);
}

static void measure(struct RankLoop* loop, const struct RankCall* call,
                    struct RankTransfer* transfer, size_t bytes, const long numbers[3]) {
  const struct RankLibrary* const library = loop->library;
  const int moves = getenv("COMPARE_COLD") != NULL, written = getenv("COMPARE_WRITTEN") != NULL;
  const long blocks = numbers[1], calls = numbers[2];
  loop->offset = moves ? loop->offset : 0;
  place(loop, transfer, bytes);
  for (long i = 0; i < numbers[0]; ++i) call->run(library->self, transfer);
  for (long block = 0; block < blocks; ++block) {
    if (moves) place(loop, transfer, bytes);
    if (written) write_anew(transfer, bytes);
    library->barrier(library->self);
    const double began = now_us();
    for (long i = 0; i < calls; ++i) {
      if (moves && i > 0) place(loop, transfer, bytes);
      if (written && i > 0) write_anew(transfer, bytes);
      call->run(library->self, transfer);
    }
    loop->times[block] = (now_us() - began) / (double)calls;
  }
  library->barrier(library->self);
  fputs("{\"us\": [", loop->out);
  for (long block = 0; block < blocks; ++block)
    fprintf(loop->out, "%s%.4f", block == 0 ? "" : ", ", loop->times[block]);
  fputs("]}\n", loop->out);
}

static void check(struct RankLoop* loop, const char* collective, const struct RankCall* call,
                  struct RankTransfer* transfer, size_t bytes) {
  const struct RankLibrary* const library = loop->library;
  loop->offset = 0;
  place(loop, transfer, bytes);
  fill_input(library, collective, transfer);
  call->run(library->self, transfer);
  fprintf(loop->out, "{\"wrong\": %zu}\n", count_wrong(library, collective, transfer));
}

static void follow(struct RankLoop* loop, const char* line) {
  const struct RankLibrary* const library = loop->library;
  char word[16], collective[32], type[16], where[8];
  size_t bytes = 0;
  long numbers[3] = {0, 0, 0};
  const int read = sscanf(line, "%15s %31s %15s %7s %zu %ld %ld %ld", word, collective, type, where,
                          &bytes, &numbers[0], &numbers[1], &numbers[2]);
  const int measures = read == 8 && strcmp(word, "measure") == 0;
  if (!measures && (read != 5 || strcmp(word, "check") != 0))
    fail(library, "unknown command", line);
  if (measures && (numbers[1] < 1 || numbers[1] > MAX_BLOCKS || numbers[2] < 1))
    fail(library, "too many or too few blocks", line);
  struct RankTransfer transfer = {
      .in_place = strcmp(where, "in") == 0,
      .element = strcmp(type, "float") == 0 ? RANK_FLOAT : RANK_BFLOAT16};
  transfer.count = block_count(collective, library->ranks, bytes, transfer.element);
  if (bytes > loop->region) fail(library, "larger than COMPARE_REGION", line);
  const struct RankCall* const call = find_call(library, collective);
  const char* const reason = why_not(library, call, collective, &transfer);
  if (reason != NULL)
    fprintf(loop->out, "{\"cannot\": \"%s\"}\n", reason);
  else if (measures)
    measure(loop, call, &transfer, bytes, numbers);
  else
    check(loop, collective, call, &transfer, bytes);
  fflush(loop->out);
}

void run_rank_loop(const struct RankLibrary* library) {
  struct RankLoop loop = {.library = library};
  bind_to_core(library, setting(library, "COMPARE_CORES"));
  loop.region = strtoull(setting(library, "COMPARE_REGION"), NULL, 10);
  loop.times = malloc(MAX_BLOCKS * sizeof(double));
  if (loop.times == NULL) fail(library, "times", "no memory");
  loop.send = allocate(library, loop.region);
  loop.recv = allocate(library, loop.region);
  join_driver(&loop);
  char line[MAX_LINE];
  while (fgets(line, sizeof line, loop.in) != NULL && strcmp(line, "end\n") != 0)
    follow(&loop, line);
  release(library, loop.send);
  release(library, loop.recv);
  free(loop.times);
  fclose(loop.in);
  fclose(loop.out);
}
