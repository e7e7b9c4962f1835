/* The ranks of any MPI for compare.py: see rank_loop.h. mpirun starts them. peers.py compiles this
 * for each MPI that is there. */
#include "bench/compare/rank_loop.h"

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* MPICH and its kin may add bfloat16; others move it as it is. Intel MPI's handle is not MPICH's.
 */
#if defined BFLOAT16_HANDLE
#define BFLOAT16 ((MPI_Datatype)BFLOAT16_HANDLE)
#elif defined MPIX_BFLOAT16
#define BFLOAT16 MPIX_BFLOAT16
#else
#define BFLOAT16 MPI_DATATYPE_NULL
#endif

struct MpiRank {
  int rank, ranks;
};

static int adds_bfloat16;

static MPI_Datatype type_of(const struct RankTransfer* t) {
  if (t->element == RANK_FLOAT) return MPI_FLOAT;
  return adds_bfloat16 ? BFLOAT16 : MPI_UINT16_T;
}

/* Whether 1 + 2 is 3. */
static int try_bfloat16(void) {
  const uint16_t one = 0x3f80;
  uint16_t sum = 0x4000;
  if (BFLOAT16 == MPI_DATATYPE_NULL) return 0;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  const int result = MPI_Reduce_local(&one, &sum, 1, BFLOAT16, MPI_SUM);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
  return result == MPI_SUCCESS && sum == 0x4040;
}

/* MPI's word for a buffer in place, where a rank's input lies in the other buffer. */
static const void* input(const struct RankTransfer* t) {
  return t->in_place ? MPI_IN_PLACE : t->send;
}

static void all_reduce(void* self, const struct RankTransfer* t) {
  (void)self;
  MPI_Allreduce(input(t), t->recv, (int)t->count, type_of(t), MPI_SUM, MPI_COMM_WORLD);
}

static void reduce(void* rank, const struct RankTransfer* t) {
  const struct MpiRank* const self = rank;
  MPI_Reduce(self->rank == 0 ? input(t) : t->send, t->recv, (int)t->count, type_of(t), MPI_SUM, 0,
             MPI_COMM_WORLD);
}

static void broadcast(void* self, const struct RankTransfer* t) {
  (void)self;
  MPI_Bcast(t->recv, (int)t->count, type_of(t), 0, MPI_COMM_WORLD);
}

static void reduce_scatter(void* self, const struct RankTransfer* t) {
  (void)self;
  MPI_Reduce_scatter_block(input(t), t->recv, (int)t->count, type_of(t), MPI_SUM, MPI_COMM_WORLD);
}

static void all_gather(void* self, const struct RankTransfer* t) {
  (void)self;
  MPI_Allgather(input(t), (int)t->count, type_of(t), t->recv, (int)t->count, type_of(t),
                MPI_COMM_WORLD);
}

static void all_to_all(void* self, const struct RankTransfer* t) {
  (void)self;
  MPI_Alltoall(input(t), (int)t->count, type_of(t), t->recv, (int)t->count, type_of(t),
               MPI_COMM_WORLD);
}

static const char* own_block(const struct MpiRank* self, const void* buffer,
                             const struct RankTransfer* t) {
  const size_t bytes = t->count * (t->element == RANK_FLOAT ? 4 : 2);
  return (const char*)buffer + (t->in_place ? (size_t)self->rank * bytes : 0);
}

static void gather(void* rank, const struct RankTransfer* t) {
  const struct MpiRank* const self = rank;
  MPI_Gather(self->rank == 0 ? input(t) : own_block(self, t->send, t), (int)t->count, type_of(t),
             t->recv, (int)t->count, type_of(t), 0, MPI_COMM_WORLD);
}

static void scatter(void* rank, const struct RankTransfer* t) {
  const struct MpiRank* const self = rank;
  void* const target =
      self->rank == 0 && t->in_place ? MPI_IN_PLACE : (void*)own_block(self, t->recv, t);
  MPI_Scatter(t->send, (int)t->count, type_of(t), target, (int)t->count, type_of(t), 0,
              MPI_COMM_WORLD);
}

/* To the next rank, and from the one before. */
static void send_recv(void* rank, const struct RankTransfer* t) {
  const struct MpiRank* const self = rank;
  MPI_Sendrecv(t->send, (int)t->count, type_of(t), (self->rank + 1) % self->ranks, 0, t->recv,
               (int)t->count, type_of(t), (self->rank + self->ranks - 1) % self->ranks, 0,
               MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void barrier(void* self) {
  (void)self;
  MPI_Barrier(MPI_COMM_WORLD);
}

static void barrier_call(void* self, const struct RankTransfer* t) {
  (void)t;
  barrier(self);
}

static void* allocate(void* self, size_t bytes) {
  void* memory = NULL;
  (void)self;
  return MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &memory) == MPI_SUCCESS ? memory : NULL;
}

static void release(void* self, void* memory) {
  (void)self;
  MPI_Free_mem(memory);
}

static const struct RankCall calls[] = {
    {"all_reduce", all_reduce, RANK_OUT_OF_PLACE | RANK_IN_PLACE},
    {"reduce", reduce, RANK_OUT_OF_PLACE | RANK_IN_PLACE},
    {"broadcast", broadcast, RANK_IN_PLACE},
    {"reduce_scatter", reduce_scatter, RANK_OUT_OF_PLACE | RANK_IN_PLACE},
    {"all_gather", all_gather, RANK_OUT_OF_PLACE | RANK_IN_PLACE},
    {"all_to_all", all_to_all, RANK_OUT_OF_PLACE | RANK_IN_PLACE},
    {"gather", gather, RANK_OUT_OF_PLACE | RANK_IN_PLACE},
    {"scatter", scatter, RANK_OUT_OF_PLACE | RANK_IN_PLACE},
    {"send_recv", send_recv, RANK_OUT_OF_PLACE},
    {"barrier", barrier_call, RANK_OUT_OF_PLACE | RANK_IN_PLACE},
};

int main(int argc, char** argv) {
  struct MpiRank self = {0, 0};
  char name[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &self.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &self.ranks);
  MPI_Get_library_version(name, &length);
  for (char* at = name; *at != '\0'; ++at)
    if (*at == '\t' || *at == '"') *at = ' ';
  name[strcspn(name, "\n,")] = '\0';
  adds_bfloat16 = try_bfloat16();
  const struct RankLibrary library = {.name = name,
                                      .rank = self.rank,
                                      .ranks = self.ranks,
                                      .self = &self,
                                      .calls = calls,
                                      .call_count = sizeof calls / sizeof *calls,
                                      .adds_bfloat16 = adds_bfloat16,
                                      .scatters_to_begin = 1,
                                      .barrier = barrier,
                                      .allocate = allocate,
                                      .release = release};
  run_rank_loop(&library);
  MPI_Finalize();
  return 0;
}
