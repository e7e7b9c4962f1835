/* clang-format off */
/* gradsync.h: gradients of data-parallel training, summed without a parameter server.
 *
 * This file is the manual of libgyre_gradsync, which works on gyre.h alone. Frameworks use it, and
 * programs without one.
 *
 * WORDS
 *   replica    one rank's copy of a model: its tensors, and their gradients (gyreGrad_t)
 *   step       one backward pass on every rank, ended by gyreGradWait
 *   bucket     gradients that are reduced together: as many as fit some MiB, of one type
 *   wire type  what crosses the links: the gradients' own type, or a narrower one
 *
 * A STEP   Each rank calls gyreGradReady for each gradient as its backward pass finishes it. When
 *          all gradients of a bucket are ready, and those of all buckets before it, its all-reduce
 *          begins, beside the rest of the pass: on a communicator and a host stream of the
 *          replica's own. gyreGradWait returns when every gradient is the mean (or sum) over all
 *          ranks, with the same bits on each.
 *
 * BUCKETS  are filled in the reverse of the list's order, as a backward pass goes. By default they
 *          are laid out anew once, at the end of the first step, in the order in which rank 0's
 *          gradients became ready then. A tensor as large as a bucket gets one of its own.
 *
 * MEMORY   A gradient lies in its bucket (`gradient` NULL; gyreGradView tells where), and is
 *          reduced where it lies; or in the caller's memory, and is copied there and back. Buckets
 *          come from gyreMemAlloc, so that peers of this host reach them directly.
 *
 * SHARDS   (gyreGradShards_t) Where one device cannot hold it all, ranks share it out: optimizer
 *          state (stage 1), gradients too (stage 2), parameters too (stage 3); ZeRO's stages (arXiv
 *          1910.02054), stage 3 being what PyTorch calls FSDP. A model is a row of units: what is
 *          gathered, reduced and freed together, numbered in the order of the forward pass. Ranks
 *          form groups of `factor`; a group holds the model once, each rank its share of each unit,
 *          and groups are replicas of each other.
 *
 * CHECKS   Every rank gives the same list, in the same order: gyreGradCreate compares them, and
 *          names the first tensor and rank that differ. At the end of each step the ranks tell each
 *          other of gradients that never became ready; then every rank gets gyreMismatch, which
 *          names rank and tensor, and the next step may go on. A rank that does not come to the end
 *          of a step is named when the deadline has passed.
 *
 * THREADS  One replica is used by one thread at a time, but gyreGradReady may come from any thread
 *          at any time between two calls of gyreGradWait. The communicator given to gyreGradCreate
 *          is used during that call only; whoever made it destroys it.
 *
 *          No function of this file is called within gyreGroupStart and -End, nor by a hook or
 *          another function of the caller's on the object that calls it (gyreInvalidUsage).
 *
 * ERRORS   As in gyre.h: no function throws, aborts or hangs. gyreGradGetLastError gives the story.
 *          After an error of a peer or of a link the replica can only be destroyed.
 */
/* clang-format on */
#ifndef GYRE_GRADSYNC_H_
#define GYRE_GRADSYNC_H_

#include <gyre/gyre.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An index and a generation, never an address; a stale one is answered with gyreInvalidArgument. */
typedef struct gyreGrad* gyreGrad_t;

/* One tensor of the model. The struct is copied; the memory that it names is the caller's, and has
 * to stay until gyreGradDestroy. */
typedef struct {
  const char* name; /* for errors; copied; NULL: its number alone */
  size_t count;     /* elements, at least 1 */
  gyreDataType_t datatype;
  void* parameter; /* `count` elements; rank 0's are broadcast at create. NULL: nobody's */
  void* gradient;  /* `count` elements of the caller's; NULL: it lies in its bucket */
} gyreGradTensor_t;

typedef enum {
  gyreGradOrderGiven = 0,   /* buckets stay as the list's order makes them */
  gyreGradOrderObserved = 1 /* laid out anew once, as rank 0's gradients became ready */
} gyreGradOrder_t;

/* Start from GYRE_GRAD_CONFIG_INITIALIZER; fields are only ever appended. All but timeoutMs have to
 * agree on all ranks, which create checks. */
typedef struct {
  size_t size;             /* sizeof(gyreGradConfig_t) of the caller */
  unsigned int magic;      /* GYRE_GRAD_CONFIG_MAGIC */
  unsigned int version;    /* GYRE_VERSION_CODE of the caller's header */
  size_t bucketBytes;      /* of gradients; default 25 MiB, as in PyTorch */
  size_t firstBucketBytes; /* of the first one, so that it leaves early; default 1 MiB */
  gyreRedOp_t op;          /* gyreAvg (default) or gyreSum */
  int wireType;    /* GYRE_GRAD_WIRE_SAME (default), gyreFloat16 or gyreBfloat16: gradients of
                      float32 are rounded to it once, summed in float32, and rounded once more */
  int order;       /* gyreGradOrder_t; default observed */
  int findUnused;  /* 1: a gradient that is not ready at gyreGradWait is unused in this step: it
                      counts as zeros; one that no rank used is left as it is, unless it lies in
                      its bucket: then it is zeros. 0 (default): it is an error */
  int joinDivisor; /* with ranks in gyreGradJoin, gyreAvg divides by: 0 (default) all ranks; 1
                      those that have data */
  int timeoutMs;   /* deadline of each wait for a peer, if GYRE_TIMEOUT does not say it; default:
                      as in the communicator */
  int server;      /* GYRE_GRAD_NO_SERVER (default), or a rank: it alone gets the reduced gradients
                      (the other ranks' are undefined), as a parameter server; see gyreGradReturn */
} gyreGradConfig_t;

#define GYRE_GRAD_CONFIG_MAGIC 0x67726164u
#define GYRE_GRAD_WIRE_SAME (-1)
#define GYRE_GRAD_NO_SERVER (-1)
/* clang-format off */
#define GYRE_GRAD_CONFIG_INITIALIZER {                                                          \
  sizeof(gyreGradConfig_t), GYRE_GRAD_CONFIG_MAGIC, GYRE_VERSION_CODE,                          \
  25u << 20, 1u << 20, gyreAvg, GYRE_GRAD_WIRE_SAME, gyreGradOrderObserved, 0, 0,               \
  GYRE_CONFIG_UNDEF_INT, GYRE_GRAD_NO_SERVER }
/* clang-format on */

/* What went wrong last in this thread: causes, culprits, remedy. Valid until this thread's next
 * call of this function. Never NULL. */
GYRE_API const char* gyreGradGetLastError(void);

/* ---------------------------------------------------------------------------- replicas */

/* A replica of `count` tensors, the same on all ranks of `comm`, a host communicator. Collective:
 * makes two communicators of its own, compares what the ranks gave (gyreMismatch names the first
 * difference) and broadcasts rank 0's parameters. `config` may be NULL. */
GYRE_API gyreResult_t gyreGradCreate(gyreGrad_t* grad, gyreComm_t comm,
                                     const gyreGradTensor_t tensors[], size_t count,
                                     const gyreGradConfig_t* config);
/* Frees it. A step that has begun and not ended is given up: peers get an error. Local. */
GYRE_API gyreResult_t gyreGradDestroy(gyreGrad_t grad);

/* Where tensor `tensor`'s gradient lies in its bucket: count elements at a multiple of 64 bytes,
 * zeroed at create. Only of tensors without a `gradient` of the caller's. With the observed order
 * the first gyreGradWait moves it, contents and all: ask again then. */
GYRE_API gyreResult_t gyreGradView(gyreGrad_t grad, size_t tensor, void** view);

/* Tensor `tensor`'s gradient is there. `stream` NULL: now. A host stream: when what is queued on it
 * is done (only for a gradient in its bucket, in its own type on the wire). Until gyreGradWait
 * returns, the caller does not touch the gradient. */
GYRE_API gyreResult_t gyreGradReady(gyreGrad_t grad, size_t tensor, gyreStream_t stream);
/* It has none in this step: zeros. The same as never ready, with findUnused, but known earlier. */
GYRE_API gyreResult_t gyreGradUnused(gyreGrad_t grad, size_t tensor);
/* Ends the step: returns when all gradients are reduced. gyreMismatch: some rank's gradient was
 * never ready (then all gradients of this step are undefined). Collective. */
GYRE_API gyreResult_t gyreGradWait(gyreGrad_t grad);
/* Whether any rank used the tensor in the last step; with findUnused. */
GYRE_API gyreResult_t gyreGradWasUsed(gyreGrad_t grad, size_t tensor, int* used);

/* 0: steps do not synchronise: Ready and Wait do nothing, and the caller lets gradients add up.
 * 1 (at create): they do again, with all that has added up. The same on all ranks. */
GYRE_API gyreResult_t gyreGradSetSync(gyreGrad_t grad, int sync);

/* For a rank whose data has ended: takes part in the others' steps with zeros until all have ended.
 * Every rank calls it, at the end of its own data. Then rank `r`'s parameters are broadcast, the
 * lowest of those that had the most steps. */
GYRE_API gyreResult_t gyreGradJoin(gyreGrad_t grad);

/* `count` arrays, the same on all ranks, from rank `root` to all: statistics of normalisation, and
 * whatever else a model keeps. tensors[i].parameter is the array. Collective, between steps. */
GYRE_API gyreResult_t gyreGradBroadcast(gyreGrad_t grad, const gyreGradTensor_t tensors[],
                                        size_t count, int root);
/* With config.server: that rank's parameters, which it has updated, to all. It holds the
 * optimizer's state alone; but its links carry what all the others' do: n - 1 times the gradients'
 * bytes and the parameters', where all-reduce spreads 2 (n - 1)/n times the bytes over all links.
 * It trains as all-reduce does. Here as the baseline. Collective, between steps. */
GYRE_API gyreResult_t gyreGradReturn(gyreGrad_t grad);
/* All ranks' parameters become their mean, those of float types; others stay. For local SGD (arXiv
 * 1805.09767): with gyreGradSetSync 0 each rank takes steps of its own, and calls this every so
 * many. It converges as SGD does if steps are small enough for the number in between, but not to
 * the same bits. After each step of plain SGD it is the same as averaging gradients. Collective,
 * between steps. */
GYRE_API gyreResult_t gyreGradAverageParameters(gyreGrad_t grad);
/* Whether all ranks' parameters have the same bits: gyreMismatch names the first tensor and rank
 * that differ from rank 0's. Collective, between steps. */
GYRE_API gyreResult_t gyreGradCompare(gyreGrad_t grad);

/* ---------------------------------------------------------------------------- hooks */

/* A bucket, as a hook sees it. */
typedef struct {
  size_t index, buckets; /* its place in the order, and how many there are */
  void* data;            /* `count` elements of this rank's gradients, in the wire type */
  size_t count;
  gyreDataType_t datatype;
  const size_t* tensors; /* which ones, in order */
  size_t tensorCount;
} gyreGradBucket_t;

/* In place of the all-reduce. `begin` is called when a bucket is ready, in the same order on all
 * ranks, in the thread that made it ready; what it queues on `stream` has to leave the result in
 * bucket->data. `finish` (may be NULL) is called in gyreGradWait once the stream has done that.
 * An error of either is gyreGradWait's. Both live until another hook is set. */
typedef struct {
  void* user;
  gyreResult_t (*begin)(void* user, const gyreGradBucket_t* bucket, gyreComm_t comm,
                        gyreStream_t stream);
  gyreResult_t (*finish)(void* user, const gyreGradBucket_t* bucket);
} gyreGradHook_t;
/* Between steps, on all ranks alike. NULL: the all-reduce again. */
GYRE_API gyreResult_t gyreGradSetHook(gyreGrad_t grad, const gyreGradHook_t* hook);

/* ---------------------------------------------------------------------------- statistics */

typedef struct {
  size_t size;                 /* sizeof(gyreGradStats_t) of the caller: set it before */
  uint64_t steps;              /* that synchronised */
  uint64_t buckets;            /* now */
  uint64_t layout;             /* grows when views move */
  uint64_t wireBytes;          /* that this rank gave to all-reduces, in all */
  double computeSeconds;       /* outside of gyreGradWait, from one to the next */
  double communicationSeconds; /* from a bucket's begin, or its predecessor's end, to its end */
  double exposedSeconds;       /* of gyreGradWait; communication - exposed is hidden */
  int straggler;               /* the rank that computes longest from one step (or mean of
                                  parameters) to the next; -1: not known yet */
  double stragglerSeconds;     /* its mean over all steps */
  double othersSeconds;        /* and that of the other ranks */
} gyreGradStats_t;
GYRE_API gyreResult_t gyreGradGetStats(gyreGrad_t grad, gyreGradStats_t* stats);

/* ---------------------------------------------------------------------------- bounded staleness */

/* Replicas that need not wait for a slow one in every step (stale synchronous parallel: Ho et al.,
 * NIPS 2013; by partial collectives: Li et al., PPoPP 2020, arXiv 1908.04207). Gradients are
 * reduced in rounds, by a thread of each replica, while its caller computes. A round begins when
 * every rank has given a gradient; or when one that has has waited for some time, and none of the
 * others is held to it by the bound: those give zeros, and later their gradient. Every rank applies
 * all rounds in one order, so that all come to the same parameters, with the same bits.
 *
 * What it promises: a gradient is applied at most `staleness` rounds after those that its
 * parameters knew, and counts 1/n, as in synchronous training, once. Training converges as stale
 * synchronous parallel SGD does, not to the same bits as synchronous training, nor from run to run.
 * A rank slower than 1 + staleness times the others holds them up all the same. */
typedef struct gyreGradStale* gyreGradStale_t;

typedef struct {
  size_t size;
  unsigned int magic; /* GYRE_GRAD_STALE_MAGIC */
  unsigned int version;
  int staleness;  /* the bound, in rounds; default 1; 0: every round has all ranks. Ranks agree */
  int patienceUs; /* how long who is ready waits for company; default -1: a quarter of its step */
  int timeoutMs;  /* deadline of each wait for a peer, if GYRE_TIMEOUT does not say it; default: as
                     in the communicator, and 30 minutes for a rank that holds up the others */
} gyreGradStaleConfig_t;

#define GYRE_GRAD_STALE_MAGIC 0x7374616cu
/* clang-format off */
#define GYRE_GRAD_STALE_CONFIG_INITIALIZER {                                                    \
  sizeof(gyreGradStaleConfig_t), GYRE_GRAD_STALE_MAGIC, GYRE_VERSION_CODE, 1, -1,               \
  GYRE_CONFIG_UNDEF_INT }
/* clang-format on */

typedef struct {
  uint64_t round;     /* from 0 */
  int contributors;   /* ranks whose gradients are in it */
  int own;            /* 1: this rank's is */
  uint64_t staleness; /* of this rank's gradient: the rounds between its parameters and this one */
} gyreGradRound_t;
/* Called with a round's mean (the sum over its contributors, divided by the number of all ranks) in
 * the tensors' gradients: the optimizer's step. */
typedef gyreResult_t (*gyreGradUpdateRound_t)(void* user, const gyreGradRound_t* round);

/* As gyreGradCreate. Each tensor has a `gradient` of the caller's. Takes staleness + 2 times the
 * gradients' memory, and a thread. */
GYRE_API gyreResult_t gyreGradStaleCreate(gyreGradStale_t* stale, gyreComm_t comm,
                                          const gyreGradTensor_t tensors[], size_t count,
                                          const gyreGradStaleConfig_t* config);
/* Before gyreGradStaleEnd, the others get gyreRemoteError. Local. */
GYRE_API gyreResult_t gyreGradStaleDestroy(gyreGradStale_t stale);
/* Gives the tensors' gradients, and returns when they have been part of a round; calls `update` for
 * each round that has been, from the caller's thread, in order. An error of it ends the replica. */
GYRE_API gyreResult_t gyreGradStaleStep(gyreGradStale_t stale, gyreGradUpdateRound_t update,
                                        void* user);
/* This rank has no more steps: calls `update` for the others' rounds until all ranks have ended;
 * then all have the same parameters. Every rank calls it. */
GYRE_API gyreResult_t gyreGradStaleEnd(gyreGradStale_t stale, gyreGradUpdateRound_t update,
                                       void* user);

typedef struct {
  size_t size;     /* sizeof(gyreGradStaleStats_t): set it before */
  uint64_t rounds; /* so far, and those with this rank's gradient */
  uint64_t ownRounds;
  uint64_t maxStaleness; /* of this rank's gradients; never more than the bound */
  double computeSeconds; /* from the end of a step to the next one's gradients */
  double exposedSeconds; /* of gyreGradStaleStep, updates included */
  int straggler;         /* as in gyreGradStats_t */
  double stragglerSeconds;
  double othersSeconds;
} gyreGradStaleStats_t;
GYRE_API gyreResult_t gyreGradStaleGetStats(gyreGradStale_t stale, gyreGradStaleStats_t* stats);

/* ---------------------------------------------------------------------------- one process */

/* One model in one process, whose batches several threads work on, in one call: what PyTorch's
 * DataParallel is for. The threads read the parameters where they lie, so nothing is copied to
 * replicas; each has gradients of its own, which are summed into the caller's. Trains as one thread
 * does, up to the rounding of sums. */
typedef struct gyreGradParallel* gyreGradParallel_t;

/* One thread's part of a batch. */
typedef struct {
  int thread, threads;
  size_t first, count;    /* its samples of the batch; count is at least 1 */
  void* const* gradients; /* of each tensor, its count of its type: zeros. The body leaves the mean
                             over its samples there */
} gyreGradPart_t;
typedef gyreResult_t (*gyreGradBody_t)(void* user, const gyreGradPart_t* part);

/* `tensors` of float16, bfloat16 or float32, each with a `gradient` of the caller's; parameters are
 * not looked at. Takes `threads` times the gradients' memory, and threads - 1 threads. */
GYRE_API gyreResult_t gyreGradParallelCreate(gyreGradParallel_t* parallel, int threads,
                                             const gyreGradTensor_t tensors[], size_t count);
GYRE_API gyreResult_t gyreGradParallelDestroy(gyreGradParallel_t parallel);
/* Calls `body` in all threads at once, the caller's among them, and returns when the tensors'
 * gradients are the mean over all samples. Where a body fails, that is the error; gradients are
 * then as before. With fewer samples than threads, some have none, and are not called. */
GYRE_API gyreResult_t gyreGradParallelStep(gyreGradParallel_t parallel, size_t samples,
                                           gyreGradBody_t body, void* user);

/* ---------------------------------------------------------------------------- shards */

typedef struct gyreGradShards* gyreGradShards_t;

/* One tensor of a sharded model. Parameters and gradients lie in memory of the library. */
typedef struct {
  const char* name;
  size_t count;
  gyreDataType_t datatype; /* gyreFloat32; or gyreFloat16, gyreBfloat16: then the optimizer works on
                              float32 copies. One type in a unit */
  size_t unit;             /* from 0, in the forward pass's order; no unit is left out */
} gyreGradShardTensor_t;

typedef enum {
  gyreGradAdamW = 0, /* Loshchilov, Hutter: arXiv 1711.05101, algorithm 2 */
  gyreGradSgd = 1,   /* with momentum, dampening, Nesterov's as in PyTorch */
  gyreGradOwn = 2    /* gyreGradStep_t's `update` */
} gyreGradOptimizer_t;

typedef struct {
  size_t size;
  unsigned int magic; /* GYRE_GRAD_SHARDS_MAGIC */
  unsigned int version;
  int stage;     /* 1, 2 or 3 (default) */
  int factor;    /* ranks that share a model; divides the number of ranks; default 0: all */
  int optimizer; /* gyreGradOptimizer_t */
  int momentum;  /* 1: gyreGradSgd keeps a momentum */
  int prefetch;  /* stage 3: units that are gathered ahead, in the last step's order; default 1 */
  int timeoutMs; /* as in gyreGradConfig_t */
  /* Rank 0's values of tensor `tensor`, `count` elements of its type, to `values`, which holds
   * zeros; called during create, on rank 0 alone. 0: done. NULL: zeros. */
  int (*initialize)(void* user, size_t tensor, void* values);
  void* user;
} gyreGradShardsConfig_t;

#define GYRE_GRAD_SHARDS_MAGIC 0x73686172u
/* clang-format off */
#define GYRE_GRAD_SHARDS_CONFIG_INITIALIZER {                                                   \
  sizeof(gyreGradShardsConfig_t), GYRE_GRAD_SHARDS_MAGIC, GYRE_VERSION_CODE,                    \
  3, 0, gyreGradAdamW, 0, 1, GYRE_CONFIG_UNDEF_INT, GYRE_CONFIG_UNDEF_PTR,                      \
  GYRE_CONFIG_UNDEF_PTR }
/* clang-format on */

/* Shares a model out. Collective. What one rank holds for good, in bytes per parameter, with AdamW
 * and N = factor:
 *             float32            16-bit types
 *   stage 1   8 + 8/N            4 + 12/N
 *   stage 2   4 + 12/N           2 + 14/N
 *   stage 3   16/N               16/N
 * Beside it, in stages 2 and 3, the gradients of two units, and in stage 3 the parameters of
 * 2 + prefetch, or of as many as the caller has gathered at a time, and one. Each tensor begins at
 * a multiple of 64 elements of its unit, and a share is one too. */
GYRE_API gyreResult_t gyreGradShardsCreate(gyreGradShards_t* shards, gyreComm_t comm,
                                           const gyreGradShardTensor_t tensors[], size_t count,
                                           const gyreGradShardsConfig_t* config);
GYRE_API gyreResult_t gyreGradShardsDestroy(gyreGradShards_t shards);

/* Waits until unit `unit`'s parameters are there: before its forward pass, and its backward pass
 * if it was let go of. All ranks gather and release the same units in the same
 * order; a step checks it (gyreMismatch). */
GYRE_API gyreResult_t gyreGradShardsGather(gyreGradShards_t shards, size_t unit);
/* Unit `unit`'s parameters are not needed for now. In stages 1 and 2 they stay. */
GYRE_API gyreResult_t gyreGradShardsRelease(gyreGradShards_t shards, size_t unit);
/* Where the tensor's parameter lies until its unit is released; in stage 3 each step releases
 * all, also one that changes nothing. */
GYRE_API gyreResult_t gyreGradShardsParameter(gyreGradShards_t shards, size_t tensor,
                                              void** values);
/* Where its gradient goes, in the parameter's type: zeros when it is first asked for in a step.
 * Valid until gyreGradShardsReady. */
GYRE_API gyreResult_t gyreGradShardsGradient(gyreGradShards_t shards, size_t tensor, void** values);
/* Its gradient is there. The units' gradients are reduced (the mean over all ranks) beside the
 * backward pass, the last unit first, each when all its gradients are ready. */
GYRE_API gyreResult_t gyreGradShardsReady(gyreGradShards_t shards, size_t tensor);

/* A rank's share of a tensor: elements first .. first + count - 1 of it. The arrays are the
 * library's, in float32, for export and import between steps; NULL where there is none. */
typedef struct {
  size_t tensor;
  size_t first, count;
  float* parameter;
  float* state1; /* AdamW's mean, SGD's momentum */
  float* state2; /* AdamW's mean of squares */
} gyreGradPiece_t;

/* What an optimizer of the caller's works on. */
typedef struct {
  gyreGradPiece_t piece;
  const void* gradient; /* of piece.count elements */
  gyreDataType_t datatype;
  float factor; /* the gradient is this times what lies there */
} gyreGradUpdate_t;

/* A step of the optimizer. Start from GYRE_GRAD_STEP_INITIALIZER. The same on all ranks. */
typedef struct {
  size_t size;
  /* As PyTorch names them; SGD has the first and the last of these too. */
  float learningRate, beta1, beta2, epsilon, weightDecay;
  float momentum, dampening; /* SGD's */
  int nesterov;
  float maxNorm; /* gradients are scaled down to it: times min(1, maxNorm / (norm + 1e-6)), as in
                    torch.nn.utils.clip_grad_norm_; 0: never */
  float inverseScale; /* of the loss; gradients are multiplied by it first */
  gyreResult_t (*update)(void* user, const gyreGradUpdate_t* update); /* of gyreGradOwn */
  void* user;
} gyreGradStep_t;
#define GYRE_GRAD_STEP_INITIALIZER \
  { sizeof(gyreGradStep_t), 1e-3f, 0.9f, 0.999f, 1e-8f, 1e-2f, 0, 0, 0, 0, 1.0f, 0, 0 }

typedef struct {
  size_t size; /* sizeof(gyreGradStepResult_t): set it before */
  double norm; /* of all gradients, times inverseScale: the exact sum of squares of blocks of 64, so
                  that it depends on neither stage, factor nor number of ranks */
  int overflow;          /* 1: some gradient was Inf or NaN; then no rank has changed anything */
  uint64_t step;         /* updates so far */
  uint64_t movedBytes;   /* what this rank had to send since the last step: of each unit that was
                            gathered or reduced (F - 1)/F, F = factor; of its share, reduced over G
                            groups, 2 (G - 1)/G more */
  double exposedSeconds; /* that Gather and Step spent waiting since then */
} gyreGradStepResult_t;

/* Ends a step: waits for the gradients, updates this rank's shares, and begins to gather the
 * parameters (stages 1 and 2). gyreMismatch: some rank's gradient was never ready; the parameters
 * are as before. `result` may be NULL. Collective. */
GYRE_API gyreResult_t gyreGradShardsStep(gyreGradShards_t shards, const gyreGradStep_t* step,
                                         gyreGradStepResult_t* result);

/* This rank's pieces, by tensor and first element; *count: how many `pieces` holds, then how many
 * there are. A checkpoint keeps them with these numbers; ranks of another job, more or fewer, read
 * what overlaps theirs. With groups, each group holds all of them. */
GYRE_API gyreResult_t gyreGradShardsPieces(gyreGradShards_t shards, gyreGradPiece_t* pieces,
                                           size_t* count);
/* After pieces were written: `step` updates have been made so far. Collective. */
GYRE_API gyreResult_t gyreGradShardsImported(gyreGradShards_t shards, uint64_t step);

/* ---------------------------------------------------------------------------- samplers */

/* Which samples of a data set a rank works on: a value without state, so that (epoch, index) is all
 * that a resumed job needs. The ranks' samples are disjoint (but for padding), and the same on any
 * rank that asks. */
typedef struct {
  uint64_t samples; /* of the data set, at least 1 */
  int rank, ranks;
  uint64_t seed; /* of the shuffle, which is another one in each epoch */
  int shuffle;   /* 0: in order: rank, rank + ranks, ... */
  int pad; /* where `ranks` does not divide `samples`: 1: the first samples of the epoch come a
              second time; 0: the last ones are left out, until the next epoch */
} gyreSampler_t;

/* How many samples each rank has in an epoch. */
GYRE_API gyreResult_t gyreSamplerCount(const gyreSampler_t* sampler, uint64_t* count);
/* The rank's sample number `index` of epoch `epoch`, in constant time and memory. */
GYRE_API gyreResult_t gyreSamplerGet(const gyreSampler_t* sampler, uint64_t epoch, uint64_t index,
                                     uint64_t* sample);

/* ---------------------------------------------------------------------------- meshes */

/* Ranks in a grid with named axes, such as data, pipeline, expert, tensor: one communicator for
 * each line along an axis. */
typedef struct gyreMesh* gyreMesh_t;
typedef struct {
  const char* name; /* at most 31 characters */
  int size;         /* at least 1; -1, on one axis: what the others leave */
} gyreMeshAxis_t;

/* The ranks of `comm`, the last axis varying fastest (as in PyTorch's DeviceMesh): put there what
 * talks most. The sizes' product is the number of ranks. Collective; the axes agree on all ranks.
 */
GYRE_API gyreResult_t gyreMeshCreate(gyreMesh_t* mesh, gyreComm_t comm, const gyreMeshAxis_t axes[],
                                     size_t count);
/* And its communicators. Local. */
GYRE_API gyreResult_t gyreMeshDestroy(gyreMesh_t mesh);
/* The communicator of the ranks that differ from this one along `axis` alone, in their order along
 * it. The mesh's own: do not destroy it. */
GYRE_API gyreResult_t gyreMeshComm(gyreMesh_t mesh, const char* axis, gyreComm_t* comm);
/* The same for several axes at once: of the ranks that differ along these alone. Collective the
 * first time that these axes are named; the order of the names does not matter. */
GYRE_API gyreResult_t gyreMeshCommOf(gyreMesh_t mesh, const char* const axes[], size_t count,
                                     gyreComm_t* comm);
/* This rank's place along an axis, and how many there are. Either may be NULL. */
GYRE_API gyreResult_t gyreMeshPlace(gyreMesh_t mesh, const char* axis, int* place, int* size);
/* The rank in `comm` of whoever is at `places`, one for each axis. */
GYRE_API gyreResult_t gyreMeshRank(gyreMesh_t mesh, const int places[], int* rank);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* GYRE_GRADSYNC_H_ */
