/* Gyre's ranks for compare.py: see rank_loop.h. `gyre run` starts them. */
#include "bench/compare/rank_loop.h"
#include <gyre/gyre.h>

#include <stdio.h>
#include <stdlib.h>

struct GyreRank {
  gyreComm_t comm;
  int rank, ranks;
};

static void check(gyreResult_t result, const char* call, gyreComm_t comm) {
  if (result == gyreSuccess) return;
  fprintf(stderr, "%s: %s\n", call, gyreGetLastError(comm));
  exit(1);
}

static gyreDataType_t type_of(const struct RankTransfer* t) {
  return t->element == RANK_FLOAT ? gyreFloat32 : gyreBfloat16;
}

/* The own block of a buffer in place. */
static void* own_block(const struct GyreRank* self, void* buffer, const struct RankTransfer* t) {
  const size_t bytes = t->count * (t->element == RANK_FLOAT ? 4 : 2);
  return (char*)buffer + (t->in_place ? (size_t)self->rank * bytes : 0);
}

static void all_reduce(void* rank, const struct RankTransfer* t) {
  const struct GyreRank* const self = rank;
  check(gyreAllReduce(t->send, t->recv, t->count, type_of(t), gyreSum, self->comm, NULL),
        "gyreAllReduce", self->comm);
}

static void reduce(void* rank, const struct RankTransfer* t) {
  const struct GyreRank* const self = rank;
  check(gyreReduce(t->send, t->recv, t->count, type_of(t), gyreSum, 0, self->comm, NULL),
        "gyreReduce", self->comm);
}

static void broadcast(void* rank, const struct RankTransfer* t) {
  const struct GyreRank* const self = rank;
  check(gyreBroadcast(t->send, t->recv, t->count, type_of(t), 0, self->comm, NULL), "gyreBroadcast",
        self->comm);
}

static void reduce_scatter(void* rank, const struct RankTransfer* t) {
  const struct GyreRank* const self = rank;
  check(gyreReduceScatter(t->send, own_block(self, t->recv, t), t->count, type_of(t), gyreSum,
                          self->comm, NULL),
        "gyreReduceScatter", self->comm);
}

static void all_gather(void* rank, const struct RankTransfer* t) {
  const struct GyreRank* const self = rank;
  check(gyreAllGather(own_block(self, t->send, t), t->recv, t->count, type_of(t), self->comm, NULL),
        "gyreAllGather", self->comm);
}

static void all_to_all(void* rank, const struct RankTransfer* t) {
  const struct GyreRank* const self = rank;
  check(gyreAlltoAll(t->send, t->recv, t->count, type_of(t), self->comm, NULL), "gyreAlltoAll",
        self->comm);
}

static void gather(void* rank, const struct RankTransfer* t) {
  const struct GyreRank* const self = rank;
  check(gyreGather(own_block(self, t->send, t), t->recv, t->count, type_of(t), 0, self->comm, NULL),
        "gyreGather", self->comm);
}

static void scatter(void* rank, const struct RankTransfer* t) {
  const struct GyreRank* const self = rank;
  check(
      gyreScatter(t->send, own_block(self, t->recv, t), t->count, type_of(t), 0, self->comm, NULL),
      "gyreScatter", self->comm);
}

/* To the next rank, and from the one before. */
static void send_recv(void* rank, const struct RankTransfer* t) {
  const struct GyreRank* const self = rank;
  const int next = (self->rank + 1) % self->ranks;
  const int before = (self->rank + self->ranks - 1) % self->ranks;
  check(gyreGroupStart(), "gyreGroupStart", self->comm);
  check(gyreSend(t->send, t->count, type_of(t), next, self->comm, NULL), "gyreSend", self->comm);
  check(gyreRecv(t->recv, t->count, type_of(t), before, self->comm, NULL), "gyreRecv", self->comm);
  check(gyreGroupEnd(), "gyreGroupEnd", self->comm);
}

static void barrier(void* rank) {
  const struct GyreRank* const self = rank;
  check(gyreBarrier(self->comm, NULL), "gyreBarrier", self->comm);
}

static void barrier_call(void* rank, const struct RankTransfer* t) {
  (void)t;
  barrier(rank);
}

static void* allocate(void* rank, size_t bytes) {
  void* memory = NULL;
  (void)rank;
  check(gyreMemAlloc(&memory, bytes), "gyreMemAlloc", NULL);
  return memory;
}

static void release(void* rank, void* memory) {
  (void)rank;
  check(gyreMemFree(memory), "gyreMemFree", NULL);
}

static const struct RankCall calls[] = {
    {"all_reduce", all_reduce, RANK_OUT_OF_PLACE | RANK_IN_PLACE},
    {"reduce", reduce, RANK_OUT_OF_PLACE | RANK_IN_PLACE},
    {"broadcast", broadcast, RANK_OUT_OF_PLACE | RANK_IN_PLACE},
    {"reduce_scatter", reduce_scatter, RANK_OUT_OF_PLACE | RANK_IN_PLACE},
    {"all_gather", all_gather, RANK_OUT_OF_PLACE | RANK_IN_PLACE},
    {"all_to_all", all_to_all, RANK_OUT_OF_PLACE | RANK_IN_PLACE},
    {"gather", gather, RANK_OUT_OF_PLACE | RANK_IN_PLACE},
    {"scatter", scatter, RANK_OUT_OF_PLACE | RANK_IN_PLACE},
    {"send_recv", send_recv, RANK_OUT_OF_PLACE},
    {"barrier", barrier_call, RANK_OUT_OF_PLACE | RANK_IN_PLACE},
};

int main(void) {
  struct GyreRank self = {NULL, 0, 0};
  char name[48];
  int version = 0;
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.device = GYRE_DEVICE_HOST;
  check(gyreCommInitEnv(&self.comm, &config), "gyreCommInitEnv", NULL);
  check(gyreCommUserRank(self.comm, &self.rank), "gyreCommUserRank", self.comm);
  check(gyreCommCount(self.comm, &self.ranks), "gyreCommCount", self.comm);
  check(gyreGetVersion(&version), "gyreGetVersion", self.comm);
  snprintf(name, sizeof name, "Gyre %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
  const struct RankLibrary library = {.name = name,
                                      .rank = self.rank,
                                      .ranks = self.ranks,
                                      .self = &self,
                                      .calls = calls,
                                      .call_count = sizeof calls / sizeof *calls,
                                      .adds_bfloat16 = 1,
                                      .barrier = barrier,
                                      .allocate = allocate,
                                      .release = release};
  run_rank_loop(&library);
  check(gyreCommDestroy(self.comm), "gyreCommDestroy", NULL);
  return 0;
}
