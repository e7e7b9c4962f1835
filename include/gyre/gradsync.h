/* clang-format off */
/* gradsync.h: sums the gradients of data-parallel training, without a parameter server.
 *
 * This file is the manual of libgyre_gradsync, which uses gyre.h alone. It serves frameworks, and
 * programs without one. All models are in host memory. Gradients are reduced on host communicators.
 *
 * WORDS
 *   replica     one rank's copy of a model: its tensors and their gradients (gyreGrad_t)
 *   step        one backward pass on every rank, ended by gyreGradWait
 *   bucket      gradients of one type that are reduced together; full at config.bucketBytes or more
 *   wire type   the type of the data that crosses the links: the gradients' own, or a narrower one
 *   Collective  says that all ranks call a function, in the same order; Local: others need not
 *
 * A STEP   Each rank calls gyreGradReady for each gradient when its backward pass has finished it.
 *          The all-reduce of a bucket begins when all its gradients, and those of all buckets
 *          before it, are ready. It runs beside the rest of the pass, on a communicator and a host
 *          stream of the replica's own. gyreGradWait returns when every gradient is the mean (or
 *          sum) over all ranks, with the same bits on each.
 *
 * BUCKETS  Buckets are filled in the reverse order of the list, as a backward pass goes. By default
 *          they are laid out again once, at the end of the first step, in the order in which rank
 *          0's gradients became ready. A tensor as large as a bucket gets a bucket of its own.
 *
 * MEMORY   A gradient lies in its bucket (`gradient` is NULL; gyreGradView says where) and is
 *          reduced in place. Or it lies in the caller's memory, and is copied to the bucket and
 *          back. Buckets come from gyreMemAlloc, so peers on this host reach them directly.
 *
 * SHARDS   If a model does not fit one device, ranks share it (gyreGradShards_t), in the stages of
 *          ZeRO (arXiv 1910.02054). Stage 1 shares the optimizer's state, stage 2 also gradients,
 *          stage 3 also parameters. PyTorch calls stage 3 FSDP. A model is a row of units, numbered
 *          in the order of the forward pass. A unit is gathered, reduced and freed as a whole.
 *          Ranks form groups of `factor`. A group holds the model once, and each of its ranks a
 *          share of each unit. Groups are replicas of each other.
 *
 * CHECKS   Every rank gives the same list, in the same order. gyreGradCreate compares the lists and
 *          names the first tensor and rank that differ. At the end of each step the ranks exchange
 *          which gradients never became ready. If there are any, every rank gets gyreMismatch,
 *          which names rank and tensor, and the next step may go on. A rank that does not come to
 *          the end of a step is named when the deadline has passed.
 *
 * THREADS  One thread at a time uses a replica. The exception is gyreGradReady: any thread may call
 *          it at any time between two calls of gyreGradWait. The communicator given to a Create
 *          function is used during that call only; its owner destroys it. No function of this file
 *          may be called between gyreGroupStart and gyreGroupEnd. A hook, or another function of
 *          the caller's, may not call a function on the object that calls it (gyreInvalidUsage).
 *
 * BLOCKING Collective functions block until the ranks that they need have called them; each wait
 *          has a deadline. gyreGradReady, -Unused and -ShardsReady do not wait for peers.
 *
 * ERRORS   As in gyre.h: no function throws, aborts or hangs. gyreGradGetLastError tells the
 *          causes. After an error of a peer or a link the object can only be destroyed. NULL
 *          pointers, unknown types and numbers out of range are gyreInvalidArgument.
 */
/* clang-format on */
#ifndef GYRE_GRADSYNC_H_
#define GYRE_GRADSYNC_H_

#include <gyre/gyre.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An index and a generation, never an address. A stale handle is gyreInvalidArgument. */
typedef struct gyreGrad* gyreGrad_t;

/* One tensor of the model. The struct and the name are copied. `parameter` and `gradient` belong to
 * the caller, and must stay valid until gyreGradDestroy. */
typedef struct {
  const char* name; /* for errors; NULL: errors give the tensor's number alone */
  size_t count;     /* elements, at least 1 */
  gyreDataType_t datatype;
  void* parameter; /* `count` elements; create broadcasts rank 0's. NULL: not broadcast */
  void* gradient;  /* `count` elements of the caller's; NULL: the gradient lies in its bucket */
} gyreGradTensor_t;

typedef enum {
  gyreGradOrderGiven = 0,   /* buckets always follow the list, from its end */
  gyreGradOrderObserved = 1 /* laid out again once, as rank 0's gradients became ready */
} gyreGradOrder_t;

/* Start from GYRE_GRAD_CONFIG_INITIALIZER. Fields are only ever appended. All but timeoutMs must be
 * the same on all ranks; create checks that. */
typedef struct {
  size_t size;             /* sizeof(gyreGradConfig_t) of the caller */
  unsigned int magic;      /* GYRE_GRAD_CONFIG_MAGIC */
  unsigned int version;    /* GYRE_VERSION_CODE of the caller's header */
  size_t bucketBytes;      /* of gradients in a bucket; default 25 MiB, as in PyTorch */
  size_t firstBucketBytes; /* of the first one of a type, so that it starts early; default 1 MiB */
  gyreRedOp_t op;          /* gyreAvg (default) or gyreSum */
  int wireType;    /* GYRE_GRAD_WIRE_SAME (default), gyreFloat16 or gyreBfloat16: float32 gradients
                      are rounded to it once, summed in float32, and rounded once more */
  int order;       /* gyreGradOrder_t; default observed */
  int findUnused;  /* 0 (default): a gradient that is not ready at gyreGradWait is an error. 1: it
                      counts as zeros in this step. A gradient that no rank used is left as it is
                      in the caller's memory, and is zeros in a bucket */
  int joinDivisor; /* what gyreAvg divides by while ranks are in gyreGradJoin. 0 (default): all
                      ranks. 1: ranks that have data; for gyreAvg, 16-bit floats and float32 only */
  int timeoutMs; /* deadline of each wait for a peer unless GYRE_TIMEOUT is set; default: comm's */
  int server;    /* GYRE_GRAD_NO_SERVER (default), or a rank, the parameter server: it alone gets
                    the reduced gradients, others' are undefined; see gyreGradReturn */
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

/* The last error in this thread: causes and culprits. The text is valid until this thread's next
 * call of this function. Never NULL. */
GYRE_API const char* gyreGradGetLastError(void);

/* ---------------------------------------------------------------------------- replicas */

/* Makes a replica of `count` tensors, the same on all ranks of `comm`, a host communicator. It
 * splits two communicators off `comm` and compares what the ranks gave: gyreMismatch names the
 * first difference. Then it broadcasts rank 0's parameters. `config` may be NULL. Collective. */
GYRE_API gyreResult_t gyreGradCreate(gyreGrad_t* grad, gyreComm_t comm,
                                     const gyreGradTensor_t tensors[], size_t count,
                                     const gyreGradConfig_t* config);
/* Frees the replica. A step that has begun and not ended is given up: peers get an error. Local. */
GYRE_API gyreResult_t gyreGradDestroy(gyreGrad_t grad);

/* Where the gradient of tensor `tensor` lies in its bucket: count elements at a multiple of 64
 * bytes, zeroed at create. The memory belongs to the replica. A tensor with a `gradient` of the
 * caller's has no view (gyreInvalidUsage). With the observed order, the first gyreGradWait moves
 * the gradient with its contents: call this function again then. */
GYRE_API gyreResult_t gyreGradView(gyreGrad_t grad, size_t tensor, void** view);

/* The gradient of tensor `tensor` is complete: now, if `stream` is NULL, or when the operations
 * queued on that host stream are done. A stream is allowed only if the gradient lies in its bucket
 * and crosses the links in its own type. The caller must not touch the gradient until gyreGradWait
 * returns. A second call for a tensor in one step is gyreInvalidUsage. */
GYRE_API gyreResult_t gyreGradReady(gyreGrad_t grad, size_t tensor, gyreStream_t stream);
/* In place of gyreGradReady: this rank has no such gradient in this step; it counts as zeros. With
 * findUnused this is the same as no call, but the bucket can begin earlier. */
GYRE_API gyreResult_t gyreGradUnused(gyreGrad_t grad, size_t tensor);
/* Ends the step: blocks until all gradients are reduced. gyreMismatch means that a gradient of some
 * rank was never ready; all gradients of this step are undefined then. Collective. */
GYRE_API gyreResult_t gyreGradWait(gyreGrad_t grad);
/* used: whether any rank used the tensor in the last step. It needs findUnused. Local. */
GYRE_API gyreResult_t gyreGradWasUsed(gyreGrad_t grad, size_t tensor, int* used);

/* 0: steps do not synchronise. gyreGradReady and gyreGradWait do nothing, and the caller
 * accumulates gradients. 1 (default): steps synchronise, with all that was accumulated. Between
 * steps; the same on all ranks. */
GYRE_API gyreResult_t gyreGradSetSync(gyreGrad_t grad, int sync);

/* For a rank whose data has ended: it takes part in the steps of others, with zeros, until the data
 * of all ranks has ended. Every rank calls it at the end of its own data. At the end it broadcasts
 * the parameters of the lowest rank of those that made the most steps. Collective. */
GYRE_API gyreResult_t gyreGradJoin(gyreGrad_t grad);

/* Broadcasts `count` arrays from rank `root`: statistics of normalisation, or other state of a
 * model. tensors[i].parameter is array i. The list is the same on all ranks. Collective, between
 * steps. */
GYRE_API gyreResult_t gyreGradBroadcast(gyreGrad_t grad, const gyreGradTensor_t tensors[],
                                        size_t count, int root);
/* With config.server: broadcasts the parameters that this rank has updated. The server alone holds
 * the optimizer's state. Its links carry n - 1 times the bytes of the gradients, and as many times
 * those of the parameters. With all-reduce each rank's links carry 2 (n - 1)/n times the bytes. The
 * results of training are the same. This function is a baseline. Collective, between steps. */
GYRE_API gyreResult_t gyreGradReturn(gyreGrad_t grad);
/* Replaces parameters of float types by their mean over all ranks; others stay. For local SGD
 * (arXiv 1805.09767): with gyreGradSetSync 0 each rank makes steps of its own, and calls this
 * function after a fixed number of them. It converges as SGD does if steps are small enough for
 * that number, but not to the same bits. After each step of plain SGD it equals averaging
 * gradients. Collective, between steps. */
GYRE_API gyreResult_t gyreGradAverageParameters(gyreGrad_t grad);
/* Checks that the parameters of all ranks have the same bits. gyreMismatch names the first tensor,
 * and the first rank that differs from rank 0. Collective, between steps. */
GYRE_API gyreResult_t gyreGradCompare(gyreGrad_t grad);

/* ---------------------------------------------------------------------------- hooks */

/* A bucket, as a hook sees it. It is valid during the hook's call only. */
typedef struct {
  size_t index, buckets; /* its place in the order, and the number of buckets */
  void* data;            /* `count` elements of this rank's gradients, in the wire type */
  size_t count;
  gyreDataType_t datatype; /* the wire type */
  const size_t* tensors;   /* numbers of its tensors, in order */
  size_t tensorCount;
} gyreGradBucket_t;

/* Functions that replace the all-reduce. `begin` is called when a bucket is ready, in the same
 * order on all ranks, on the thread that made it ready. It queues operations on `stream` that leave
 * the result in bucket->data. `finish` (may be NULL) is called in gyreGradWait when the stream has
 * done them. An error of either, or of an operation, is one of gyreGradWait on every rank. Both are
 * used until another hook is set. */
typedef struct {
  void* user;
  gyreResult_t (*begin)(void* user, const gyreGradBucket_t* bucket, gyreComm_t comm,
                        gyreStream_t stream);
  gyreResult_t (*finish)(void* user, const gyreGradBucket_t* bucket);
} gyreGradHook_t;
/* Sets the hook, which is copied; NULL restores the all-reduce. Between steps; all ranks alike. */
GYRE_API gyreResult_t gyreGradSetHook(gyreGrad_t grad, const gyreGradHook_t* hook);

/* ---------------------------------------------------------------------------- statistics */

/* Totals since create. */
typedef struct {
  size_t size;                 /* sizeof(gyreGradStats_t) of the caller: set it before the call */
  uint64_t steps;              /* steps that synchronised */
  uint64_t buckets;            /* number of buckets now */
  uint64_t layout;             /* grows when views move */
  uint64_t wireBytes;          /* bytes that this rank gave to reductions */
  double computeSeconds;       /* outside of gyreGradWait, from one call to the next */
  double communicationSeconds; /* from a bucket's begin, or its predecessor's end, to its end */
  double exposedSeconds;       /* in gyreGradWait; communication - exposed is hidden */
  int straggler;               /* the rank that computes longest from one step (or mean of
                                  parameters) to the next; -1: not known yet */
  double stragglerSeconds;     /* its mean time over all steps */
  double othersSeconds;        /* the mean time of the other ranks */
} gyreGradStats_t;
/* Fills in *stats, up to stats->size bytes. Local. */
GYRE_API gyreResult_t gyreGradGetStats(gyreGrad_t grad, gyreGradStats_t* stats);

/* ---------------------------------------------------------------------------- bounded staleness */

/* Replicas that do not wait for a slow rank in every step: stale synchronous parallel SGD (Ho et
 * al., NIPS 2013) by partial collectives (Li et al., PPoPP 2020, arXiv 1908.04207). A thread of
 * each replica reduces gradients in rounds, while the caller computes. A round begins when every
 * rank has given a gradient. It also begins when a rank has waited for its patience and the bound
 * forces no other rank to take part. Ranks without a gradient give zeros to this round, and their
 * gradient to a later one. Every rank applies all rounds in one order, so all reach the same
 * parameters, with the same bits. */

/* Promises: a gradient is applied at most `staleness` rounds after the rounds that its parameters
 * include. It counts once, with weight 1/n, as in synchronous training. Training converges as stale
 * synchronous parallel SGD. It gives neither the bits of synchronous training nor the same bits
 * from run to run. A rank slower than 1 + staleness times the others still delays them. */
typedef struct gyreGradStale* gyreGradStale_t;

typedef struct {
  size_t size;
  unsigned int magic; /* GYRE_GRAD_STALE_MAGIC */
  unsigned int version;
  int staleness;  /* bound in rounds, 0 .. 1000, alike on all ranks; default 1; 0: no rank is left
                     out */
  int patienceUs; /* how long a rank that is ready waits for others, in microseconds; default -1:
                     a quarter of its last step's compute time */
  int timeoutMs;  /* deadline of each wait for a peer, unless GYRE_TIMEOUT is set; default: as in
                     the communicator, and 30 minutes for a rank that the bound waits for */
} gyreGradStaleConfig_t;

#define GYRE_GRAD_STALE_MAGIC 0x7374616cu
/* clang-format off */
#define GYRE_GRAD_STALE_CONFIG_INITIALIZER {                                                    \
  sizeof(gyreGradStaleConfig_t), GYRE_GRAD_STALE_MAGIC, GYRE_VERSION_CODE, 1, -1,               \
  GYRE_CONFIG_UNDEF_INT }
/* clang-format on */

typedef struct {
  uint64_t round;     /* from 0 */
  int contributors;   /* number of ranks whose gradients are in it */
  int own;            /* 1: this rank's gradient is in it */
  uint64_t staleness; /* of this rank's gradient: rounds between its parameters and this round */
} gyreGradRound_t;
/* The optimizer's step for one round. The tensors' gradients hold the round's mean: the sum over
 * its contributors, divided by the number of all ranks. */
typedef gyreResult_t (*gyreGradUpdateRound_t)(void* user, const gyreGradRound_t* round);

/* As gyreGradCreate. Each tensor must have a `gradient` of the caller's. The replica uses staleness
 * + 2 times the memory of the gradients, and one thread. Collective. */
GYRE_API gyreResult_t gyreGradStaleCreate(gyreGradStale_t* stale, gyreComm_t comm,
                                          const gyreGradTensor_t tensors[], size_t count,
                                          const gyreGradStaleConfig_t* config);
/* Frees it. Before gyreGradStaleEnd, the other ranks get gyreRemoteError. Local: waits 2 s at
 * most. */
GYRE_API gyreResult_t gyreGradStaleDestroy(gyreGradStale_t stale);
/* Gives the tensors' gradients, and blocks until they have been part of a round. It calls `update`
 * for each finished round, in order, on the caller's thread. Its error ends the replica. */
GYRE_API gyreResult_t gyreGradStaleStep(gyreGradStale_t stale, gyreGradUpdateRound_t update,
                                        void* user);
/* This rank has no more steps. It calls `update` for the rounds of the others until all ranks have
 * called this function; then all have the same parameters. Collective. */
GYRE_API gyreResult_t gyreGradStaleEnd(gyreGradStale_t stale, gyreGradUpdateRound_t update,
                                       void* user);

typedef struct {
  size_t size;           /* sizeof(gyreGradStaleStats_t): set it before the call */
  uint64_t rounds;       /* so far */
  uint64_t ownRounds;    /* those with this rank's gradient */
  uint64_t maxStaleness; /* of this rank's gradients; never more than the bound */
  double computeSeconds; /* from the end of a step to the gradients of the next */
  double exposedSeconds; /* in gyreGradStaleStep, updates included */
  int straggler;         /* as in gyreGradStats_t */
  double stragglerSeconds;
  double othersSeconds;
} gyreGradStaleStats_t;
GYRE_API gyreResult_t gyreGradStaleGetStats(gyreGradStale_t stale, gyreGradStaleStats_t* stats);

/* ---------------------------------------------------------------------------- one process */

/* One model in one process; several threads work on each batch, in one call. PyTorch's DataParallel
 * has the same purpose. The threads read the parameters in place, so nothing is copied to replicas.
 * Each thread has gradients of its own, which are summed into the caller's. The result is that of
 * one thread, up to the rounding of sums. */
typedef struct gyreGradParallel* gyreGradParallel_t;

/* One thread's part of a batch. */
typedef struct {
  int thread, threads;
  size_t first, count;    /* its samples: first .. first + count - 1 of the batch; count >= 1 */
  void* const* gradients; /* one array for each tensor, with its count and type, zeroed. The body
                             leaves the mean over its samples there */
} gyreGradPart_t;
typedef gyreResult_t (*gyreGradBody_t)(void* user, const gyreGradPart_t* part);

/* `threads` is 1 to 1024. `tensors` are of float16, bfloat16 or float32, each with a `gradient` of
 * the caller's; parameters are not used. The object uses `threads` times the memory of the
 * gradients, and starts threads - 1 threads. Destroy ends them. */
GYRE_API gyreResult_t gyreGradParallelCreate(gyreGradParallel_t* parallel, int threads,
                                             const gyreGradTensor_t tensors[], size_t count);
GYRE_API gyreResult_t gyreGradParallelDestroy(gyreGradParallel_t parallel);
/* Calls `body` in all threads at once, the caller's included. It returns when the tensors'
 * gradients are the mean over all samples, of which there is at least 1. If a body fails, its error
 * is returned and gradients are as before. A thread without samples does not call `body`. */
GYRE_API gyreResult_t gyreGradParallelStep(gyreGradParallel_t parallel, size_t samples,
                                           gyreGradBody_t body, void* user);

/* ---------------------------------------------------------------------------- shards */

typedef struct gyreGradShards* gyreGradShards_t;

/* One tensor of a sharded model. Its parameter and gradient lie in the library's memory. */
typedef struct {
  const char* name;
  size_t count;
  gyreDataType_t datatype; /* gyreFloat32, gyreFloat16 or gyreBfloat16; for 16 bits the optimizer
                              works on float32 copies. A unit has one type */
  size_t unit;             /* from 0, in the order of the forward pass, without gaps */
} gyreGradShardTensor_t;

typedef enum {
  gyreGradAdamW = 0, /* Loshchilov, Hutter: arXiv 1711.05101, algorithm 2 */
  gyreGradSgd = 1,   /* with momentum, dampening and Nesterov momentum as in PyTorch */
  gyreGradOwn = 2    /* the caller's: gyreGradStep_t's `update` */
} gyreGradOptimizer_t;

/* Start from GYRE_GRAD_SHARDS_CONFIG_INITIALIZER. Ranks agree on stage .. prefetch. */
typedef struct {
  size_t size;
  unsigned int magic; /* GYRE_GRAD_SHARDS_MAGIC */
  unsigned int version;
  int stage;     /* 1, 2 or 3 (default) */
  int factor;    /* ranks that share a model; divides the number of ranks; default 0: all */
  int optimizer; /* gyreGradOptimizer_t; default gyreGradAdamW */
  int momentum;  /* 1: gyreGradSgd keeps a momentum; default 0 */
  int prefetch;  /* stage 3: units gathered ahead, in the order of the last step; default 1 */
  int timeoutMs; /* as in gyreGradConfig_t */
  /* Writes the values of tensor `tensor` to `values`: `count` zeroed elements of its type. It
   * returns 0 on success. Create calls it on rank 0 alone. NULL: all parameters start as zeros. */
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

/* Makes a sharded model, with its shares on the ranks of `comm`, a host communicator. Collective.
 * A rank holds permanently, in bytes per parameter, with AdamW and N = factor:
 *             float32            16-bit types
 *   stage 1   8 + 8/N            4 + 12/N
 *   stage 2   4 + 12/N           2 + 14/N
 *   stage 3   16/N               16/N
 * In addition, stages 2 and 3 hold the gradients of two units. Stage 3 also holds the parameters of
 * 2 + prefetch units, or of one more than the caller has gathered at one time, if that is more.
 * Each tensor begins at a multiple of 64 elements of its unit. A share is such a multiple too. */
GYRE_API gyreResult_t gyreGradShardsCreate(gyreGradShards_t* shards, gyreComm_t comm,
                                           const gyreGradShardTensor_t tensors[], size_t count,
                                           const gyreGradShardsConfig_t* config);
/* Frees the model. A step that has begun and not ended is given up: peers get an error. It waits
 * for parameters that a step has begun to gather, as peers need this rank's share. Local. */
GYRE_API gyreResult_t gyreGradShardsDestroy(gyreGradShards_t shards);

/* Blocks until the parameters of unit `unit` are gathered. Call it before the unit's forward pass,
 * and before its backward pass if it was released. All ranks must gather and release the same units
 * in the same order; a step checks that (gyreMismatch). Collective in stage 3. */
GYRE_API gyreResult_t gyreGradShardsGather(gyreGradShards_t shards, size_t unit);
/* The parameters of unit `unit` are not needed for now. In stages 1 and 2 they stay. */
GYRE_API gyreResult_t gyreGradShardsRelease(gyreGradShards_t shards, size_t unit);
/* Where the tensor's parameter lies. The address is valid until its unit is released. In stage 3
 * every step releases all units, even a step that changes nothing. */
GYRE_API gyreResult_t gyreGradShardsParameter(gyreGradShards_t shards, size_t tensor,
                                              void** values);
/* Where to write the tensor's gradient, in the parameter's type. It is zeroed when a step first
 * asks for it. The address is valid until gyreGradShardsReady. It may wait for reductions. */
GYRE_API gyreResult_t gyreGradShardsGradient(gyreGradShards_t shards, size_t tensor, void** values);
/* The tensor's gradient is complete. Units are reduced beside the backward pass, to the mean over
 * all ranks: the last unit first, each when all its gradients are ready. */
GYRE_API gyreResult_t gyreGradShardsReady(gyreGradShards_t shards, size_t tensor);

/* A rank's share of a tensor: its elements first .. first + count - 1. The float32 arrays belong to
 * the library; export and import use them between steps. An array that does not exist is NULL. */
typedef struct {
  size_t tensor;
  size_t first, count;
  float* parameter;
  float* state1; /* AdamW's mean of gradients, SGD's momentum */
  float* state2; /* AdamW's mean of squared gradients */
} gyreGradPiece_t;

/* What the caller's optimizer works on. It is valid during the call only. */
typedef struct {
  gyreGradPiece_t piece;
  const void* gradient;    /* piece.count elements */
  gyreDataType_t datatype; /* of the gradient */
  float factor;            /* the gradient is this times the elements */
} gyreGradUpdate_t;

/* A step of the optimizer. Start from GYRE_GRAD_STEP_INITIALIZER. The same on all ranks. Numbers
 * are finite and not negative; beta1 and beta2 are below 1. */
typedef struct {
  size_t size;
  /* As PyTorch names them; SGD uses learningRate and weightDecay. */
  float learningRate, beta1, beta2, epsilon, weightDecay;
  float momentum, dampening; /* SGD's */
  int nesterov;              /* SGD's; 1: Nesterov momentum */
  float maxNorm;      /* gradients are clipped to it: times min(1, maxNorm / (norm + 1e-6)), as in
                         torch.nn.utils.clip_grad_norm_; 0: never */
  float inverseScale; /* 1 / the scale of the loss; gradients are multiplied by it first */
  gyreResult_t (*update)(void* user, const gyreGradUpdate_t* update); /* for gyreGradOwn */
  void* user;
} gyreGradStep_t;
#define GYRE_GRAD_STEP_INITIALIZER \
  { sizeof(gyreGradStep_t), 1e-3f, 0.9f, 0.999f, 1e-8f, 1e-2f, 0, 0, 0, 0, 1.0f, 0, 0 }

typedef struct {
  size_t size; /* sizeof(gyreGradStepResult_t): set it before the call */
  double norm; /* of all gradients, times inverseScale. It sums the squares of blocks of 64 exactly,
                  so it does not depend on stage, factor or number of ranks */
  int overflow;          /* 1: some gradient was Inf or NaN, and no rank has changed anything */
  uint64_t step;         /* updates so far */
  uint64_t movedBytes;   /* bytes that this rank had to send since the last step. With F = factor:
                            (F - 1)/F of each unit that was gathered or reduced. With G groups:
                            also 2 (G - 1)/G of its share of each reduced unit */
  double exposedSeconds; /* time that Gather and Step spent waiting since the last step */
} gyreGradStepResult_t;

/* Ends a step. It waits for the reductions, updates this rank's shares, and begins to gather the
 * parameters in stages 1 and 2. gyreMismatch means that a gradient of some rank was never ready;
 * parameters are as before. If a reduction fails, every rank gets an error, and none updates.
 * `result` may be NULL. Collective. */
GYRE_API gyreResult_t gyreGradShardsStep(gyreGradShards_t shards, const gyreGradStep_t* step,
                                         gyreGradStepResult_t* result);

/* Lists this rank's pieces, by tensor and first element. *count is the room in `pieces` before the
 * call, and the number of pieces after it. `pieces` may be NULL to ask for the number; too little
 * room is gyreInvalidArgument. A checkpoint keeps the pieces with tensor, first and count. A job
 * with more or fewer ranks reads those that overlap its own. Each group holds all pieces. Local. */
GYRE_API gyreResult_t gyreGradShardsPieces(gyreGradShards_t shards, gyreGradPiece_t* pieces,
                                           size_t* count);
/* Call it after an import has written the pieces. `step` is the number of updates made so far, the
 * same on all ranks. Collective. */
GYRE_API gyreResult_t gyreGradShardsImported(gyreGradShards_t shards, uint64_t step);

/* ---------------------------------------------------------------------------- samplers */

/* Says which samples of a data set a rank works on. It has no state: a resumed job needs only epoch
 * and index. The samples of the ranks are disjoint, except for padding. Any rank gets the same
 * answer. Any thread may call these functions. */
typedef struct {
  uint64_t samples; /* in the data set, 1 to 2^62 */
  int rank, ranks;
  uint64_t seed; /* of the shuffle, which differs in each epoch */
  int shuffle;   /* 1: shuffled. 0: in order: rank, rank + ranks, ... */
  int pad;       /* if `ranks` does not divide `samples`: 1: the first samples of the epoch come a
                    second time. 0: the last samples are left out of this epoch */
} gyreSampler_t;

/* The number of samples of each rank in an epoch. */
GYRE_API gyreResult_t gyreSamplerCount(const gyreSampler_t* sampler, uint64_t* count);
/* The rank's sample number `index` in epoch `epoch`, in constant time and memory. */
GYRE_API gyreResult_t gyreSamplerGet(const gyreSampler_t* sampler, uint64_t epoch, uint64_t index,
                                     uint64_t* sample);

/* ---------------------------------------------------------------------------- meshes */

/* Ranks in a grid with 1 to 16 named axes, such as data, pipeline, expert, tensor. Each line along
 * an axis has a communicator. */
typedef struct gyreMesh* gyreMesh_t;
typedef struct {
  const char* name; /* 1 to 31 characters, different from the other axes' */
  int size;         /* at least 1; one axis may have -1: the ranks that the others leave */
} gyreMeshAxis_t;

/* Makes a mesh of the ranks of `comm`, a host communicator. The last axis varies fastest, as in
 * PyTorch's DeviceMesh: use it for the ranks that communicate most. The product of the sizes is the
 * number of ranks. Axes must be the same on all ranks (gyreMismatch). Collective. */
GYRE_API gyreResult_t gyreMeshCreate(gyreMesh_t* mesh, gyreComm_t comm, const gyreMeshAxis_t axes[],
                                     size_t count);
/* Frees the mesh and its communicators. Local. */
GYRE_API gyreResult_t gyreMeshDestroy(gyreMesh_t mesh);
/* The communicator of the ranks that differ from this one along `axis` alone, in their order along
 * it. It belongs to the mesh: do not destroy it. Local. */
GYRE_API gyreResult_t gyreMeshComm(gyreMesh_t mesh, const char* axis, gyreComm_t* comm);
/* The same for several axes: of the ranks that differ along these axes alone. It is collective the
 * first time that these axes are named. The order of the names does not matter. */
GYRE_API gyreResult_t gyreMeshCommOf(gyreMesh_t mesh, const char* const axes[], size_t count,
                                     gyreComm_t* comm);
/* This rank's place along an axis, and the axis's size. Either pointer may be NULL. */
GYRE_API gyreResult_t gyreMeshPlace(gyreMesh_t mesh, const char* axis, int* place, int* size);
/* The rank in `comm` of the process at `places`, which has one place for each axis. */
GYRE_API gyreResult_t gyreMeshRank(gyreMesh_t mesh, const int places[], int* rank);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* GYRE_GRADSYNC_H_ */
