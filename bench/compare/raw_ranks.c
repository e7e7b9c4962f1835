/* The bytes of an all-reduce of two ranks over one plain socket, for compare.py: see rank_loop.h.
 * Both ends send and receive at once: up to 64 KiB all data in one exchange, beyond that each
 * rank's half of it, and then the sums of the other half. `sum` adds what comes in, piece by piece;
 * a sum leaves as soon as it is there. `move` moves the same bytes and adds nothing. Neither
 * sleeps.
 *
 *   raw_ranks move|sum
 */
#include "bench/compare/rank_loop.h"
#include "bench/compare/raw_sockets.h"

#define MAX_EXCHANGED (64u << 10)
#define PIECE_FLOATS (64u << 10)

struct RawRank {
  int fd, rank, sums;
  float* piece;
};

static void add(float* restrict sum, const float* restrict one, const float* restrict other,
                size_t count) {
  for (size_t i = 0; i < count; ++i) sum[i] = one[i] + other[i];
}

/* All of `send` leaves and all of `recv` comes. */
static void exchange(int fd, const void* send, size_t leaving, void* recv, size_t coming) {
  size_t sent = 0, got = 0;
  while (sent < leaving || got < coming) {
    if (sent < leaving) sent += send_some(fd, (const char*)send + sent, leaving - sent);
    if (got < coming) got += receive_some(fd, (char*)recv + got, coming - got);
  }
}

/* The input of the other rank's half leaves, then the sums of the own one as they come about; in
 * come the other rank's input for the own half, and the sums of its half. */
static void exchange_halves(const struct RawRank* self, const float* send, float* recv,
                            size_t count) {
  const size_t begins[3] = {0, count / 2, count};
  const size_t own = begins[self->rank], other = begins[1 - self->rank];
  const size_t own_bytes = (begins[self->rank + 1] - own) * sizeof(float);
  const size_t other_bytes = (begins[2 - self->rank] - other) * sizeof(float);
  const size_t all = own_bytes + other_bytes, piece_bytes = PIECE_FLOATS * sizeof(float);
  const char* const leaving = (const char*)(send + other);
  size_t sent = 0, got = 0, summed = 0;
  while (sent < all || got < all) {
    if (sent < other_bytes)
      sent += send_some(self->fd, leaving + sent, other_bytes - sent);
    else if (sent < other_bytes + summed)
      sent += send_some(self->fd, (const char*)(recv + own) + (sent - other_bytes),
                        summed - (sent - other_bytes));
    if (got >= own_bytes) {
      if (got < all)
        got += receive_some(self->fd, (char*)(recv + other) + (got - own_bytes), all - got);
      continue;
    }
    const size_t wanted = own_bytes - summed < piece_bytes ? own_bytes - summed : piece_bytes;
    char* const place = self->sums ? (char*)self->piece : (char*)(recv + own) + summed;
    got += receive_some(self->fd, place + (got - summed), wanted - (got - summed));
    const size_t whole = (got - summed) / sizeof(float);
    if (self->sums && whole * sizeof(float) == got - summed)
      add(recv + own + summed / sizeof(float), send + own + summed / sizeof(float), self->piece,
          whole);
    if (whole * sizeof(float) == got - summed) summed = got;
  }
}

static void all_reduce(void* self, const struct RankTransfer* t) {
  const struct RawRank* const raw = self;
  const size_t bytes = t->count * sizeof(float);
  if (bytes > MAX_EXCHANGED) {
    exchange_halves(raw, t->send, t->recv, t->count);
    return;
  }
  exchange(raw->fd, t->send, bytes, raw->sums ? (void*)raw->piece : t->recv, bytes);
  if (raw->sums) add(t->recv, t->send, raw->piece, t->count);
}

static void barrier(void* self) {
  char mine = 0, theirs = 0;
  exchange(((const struct RawRank*)self)->fd, &mine, 1, &theirs, 1);
}

static const struct RankCall calls[] = {
    {"all_reduce", all_reduce, RANK_OUT_OF_PLACE | RANK_IN_PLACE},
};

int main(int argc, char** argv) {
  if (argc != 2 || (strcmp(argv[1], "sum") != 0 && strcmp(argv[1], "move") != 0)) {
    fprintf(stderr, "raw_ranks move|sum\n");
    return 2;
  }
  struct RawRank raw = {-1, 0, strcmp(argv[1], "sum") == 0, malloc(PIECE_FLOATS * sizeof(float))};
  if (raw.piece == NULL) return 2;
  raw.rank = fork_with_socket(&raw.fd);
  const struct RankLibrary library = {.name = "plain sockets",
                                      .rank = raw.rank,
                                      .ranks = 2,
                                      .self = &raw,
                                      .calls = calls,
                                      .call_count = 1,
                                      .moves_only = !raw.sums,
                                      .barrier = barrier};
  run_rank_loop(&library);
  return join_ranks();
}
