/* clang-format off */
/* gyre.h: collective communication between processes, threads and GPUs.
 *
 * This file is the manual of the C API. Names, values and meanings follow NCCL's nccl.h. The rules
 * s/nccl/gyre/ and s/NCCL/GYRE/ port a program. docs/c-api.md says what else changes. [gyre] marks
 * what NCCL does not have.
 *
 * WORDS
 *   rank          one participant: a process or a thread; numbered 0 .. n-1 in a communicator
 *   communicator  n ranks that talk to each other; each rank has a gyreComm_t of its own
 *   collective    a call that all ranks of a communicator make (ORDER says in which order)
 *   block         the elements of a buffer that belong to one rank. Blocks lie in the order of the
 *                 ranks: block i of `count` elements begins at element i * count.
 *   in place      sendbuff and recvbuff overlap in one of these ways, and in no other:
 *                 - sendbuff == recvbuff: all-reduce, reduce, broadcast, all-to-all
 *                 - sendbuff is the rank's own block of recvbuff: all-gather, all-gatherv, gather
 *                   at the root
 *                 - recvbuff is the rank's own block of sendbuff: reduce-scatter, reduce-scatterv,
 *                   scatter at the root. The other blocks of sendbuff keep their contents.
 *                 Any other overlap is gyreInvalidArgument. gyreAlltoAllv allows no overlap at all.
 *
 * UNITS    Counts and displacements are numbers of elements, never bytes. Any count and any
 *          alignment are allowed. A call with count 0 still needs every rank. A buffer in which a
 *          rank has no element may be NULL. Arrays of counts are read during the call.
 *
 * START    Four ranks in one process: gyreCommInitAll(comms, 4, devlist). A thread with several
 *          ranks groups their calls. Or each rank is a thread and calls gyreCommInitRank.
 *          Four processes on one host: `gyre run -n 4 ./program`. Each calls gyreCommInitEnv.
 *          Four processes on two hosts: srun, mpirun or torchrun starts them. Or you set
 *          GYRE_RANK=0..3, GYRE_SIZE=4, GYRE_LOCAL_RANK=0..1 and GYRE_LOCAL_SIZE=2. In both cases
 *          you also set, on all ranks, one of two places to meet:
 *          - GYRE_RENDEZVOUS_ADDRESS=HOST:PORT with GYRE_RENDEZVOUS_SECRET_FILE. HOST is the host
 *            of rank 0, and rank 0 listens there. You make the secret file: the same 32 or more
 *            random bytes on both hosts, mode 0600.
 *          - GYRE_RENDEZVOUS_FILE, a path that both hosts see. Rank 0 makes this file.
 *          Init waits until all ranks have joined. With config.blocking = 0 it returns before that:
 *          see gyreCommInitRankConfig.
 *
 * BUFFERS  A host communicator works on host memory, a CUDA communicator on one device's. You own
 *          the buffers. The library uses them until the moment below. Until then do not write
 *          sendbuff, and neither read nor write recvbuff. You may read a sendbuff that is not in
 *          place. After it read the result, and change or free both buffers. The moment is:
 *            host communicator, NULL stream: the call has returned.
 *            host communicator, host stream: the stream has passed the call. This is so when
 *              gyreStreamSynchronize or gyreStreamDestroy has returned, gyreStreamQuery has said
 *              gyreSuccess, or a callback that was queued after the call is called. An error that
 *              gyreStreamQuery returns says nothing of it: ask again.
 *            CUDA communicator: the CUDA stream has passed the call, as cudaStreamSynchronize and
 *              cudaStreamQuery tell. NULL is CUDA's default stream. The result is valid only if
 *              gyreCommGetAsyncError says gyreSuccess after that.
 *            blocking = 0: first gyreCommGetAsyncError no longer says gyreInProgress. Then, if the
 *              call has a host stream or is on a CUDA communicator, its stream has passed the call.
 *            in a group: gyreGroupEnd has returned, and then as above for the call's stream.
 *          The moment has also come when gyreCommDestroy has returned gyreSuccess. With blocking =
 *          0 the return of gyreCommAbort stands in place of gyreCommGetAsyncError's word.
 *          A refused call leaves buffers untouched. After any other error the contents of outputs
 *          are undefined. The moments are the same as after success: after them no peer, and no
 *          other thread of the process, uses the buffers.
 *
 * STREAMS  With blocking = 1 (the default), a call with a NULL stream on a host communicator blocks
 *          until it is done: the calling thread does the work. With a host stream
 *          (gyreStreamCreate) the call returns at once. The process's one progress thread then does
 *          the work, in the stream's order; with GYRE_STREAM_BY_CALLER, threads that wait do it. On
 *          a CUDA communicator a call takes a cudaStream_t and returns when its kernel is launched.
 *          With blocking = 0 no call waits for its work. The progress thread carries out the calls
 *          with a NULL stream, joining and splits. It also launches the kernels.
 *
 * ORDER    All ranks must make the collectives of one communicator, and gyreCommSplit, in the same
 *          order. Function, count, datatype, op and root must agree (v-functions: see there).
 *          Ranks that differ get gyreMismatch. Buffers, streams and groups may differ. Collectives
 *          of one communicator run one after another, in the order of this rank's calls, on
 *          whatever streams they are. There is one exception: in a group on a blocking host
 *          communicator, the calls on host streams come first. The group's splits and its calls
 *          with a NULL stream come after them. Communicators do not wait for each other, except in
 *          the order of a stream.
 *
 * THREADS  Threads may call at once on different communicators, and functions without a `comm`
 *          argument: init, memory, host streams. On one communicator only one thread at a time may
 *          be inside a call. Free for any thread at any time are gyreCommAbort, gyreCommSetTimeout,
 *          gyreCommGetAsyncError, gyreCommCount, gyreCommUserRank, gyreCommCuDevice and
 *          gyreGetLastError. Each other function with a `comm` argument counts, also
 *          gyreCommFinalize, gyreCommRegister and gyreRedOpCreatePreMulSum. gyreGroupEnd counts for
 *          every communicator of its group. With blocking = 1 a second thread gets gyreInvalidUsage
 *          from a collective, send, receive or split that has no host stream, and from
 *          gyreCommDestroy. All other such mistakes are not detected, and results are undefined.
 *          Several threads may use one host stream at once, but not while one of them destroys it.
 *          A group belongs to its thread. A thread must not be cancelled (pthread_cancel) inside a
 *          call, nor leave a callback by longjmp or an exception.
 *
 * ERRORS   Every function returns a gyreResult_t, but for gyreGetErrorString and gyreGetLastError.
 *          None throws, aborts the process or hangs: each wait has a deadline. gyreGetLastError
 *          tells what was called, what failed, which rank is to blame and what to do. An error
 *          appears in one or more of three places:
 *            The call is refused, or does its work before it returns: the call returns the error,
 *              or gyreGroupEnd does.
 *            A host stream does the work: gyreStreamSynchronize, gyreStreamQuery and
 *              gyreStreamDestroy return the error, and callbacks get it.
 *            It breaks the communicator: gyreCommGetAsyncError says it. Ask there after calls with
 *              blocking = 0 and a NULL stream, and after calls on a CUDA communicator.
 *          gyreInvalidArgument and gyreInvalidUsage refuse a call: nothing has happened, and the
 *          communicator goes on. Settings that rule a call out (GYRE_ALGO, GYRE_PROTO,
 *          GYRE_BUFFSIZE) are gyreInvalidUsage on all ranks. Lack of memory, descriptors or threads
 *          is gyreSystemError, which names the limit.
 *          If a peer
 *            ends, is killed or calls gyreCommAbort: this rank's current or next call returns
 *              gyreRemoteError, which names the peer. A dead process is noticed at once. A call
 *              under way can still succeed where all ranks share memory: if the peer has already
 *              given all that the call needs.
 *            stands still, or its host or path is silent in one or both directions: gyreRemoteError
 *              within GYRE_LIVENESS_TIMEOUT (default 10 s) + 1 s. A silent path names both ends.
 *            lives, but does not make the call: gyreTimeout after GYRE_TIMEOUT (default 30
 *              minutes). It names the rank that all wait for, in an earlier call or in none.
 *            has destroyed its communicator: gyreMismatch ("has left"), if this rank needs it.
 *            makes another call: gyreMismatch, which shows both calls.
 *          Each of these five breaks the communicator on all its ranks. CODES says so for each
 *          code. Later calls on a broken communicator fail at once. gyreCommDestroy and
 *          gyreCommAbort both free it, and neither waits for peers then. While another thread is
 *          inside a call, only gyreCommAbort is allowed. Survivors may make a new communicator, for
 *          example with a new gyreUniqueId.
 *
 * GPUS     Kernels of ranks wait for each other, so all that may run at one time must fit the GPU.
 *          Init gives each rank a share of the GPU's blocks, and memory for links, until the
 *          communicator fails or it and all graphs with its calls are gone. If too little is left,
 *          init fails with gyreInvalidUsage and says who holds what. config.minCTAs and maxCTAs
 *          steer the share. Processes with no common communicator do not see each other's blocks.
 *          Ranks of one process on one GPU each need a stream that waits for no other: made with
 *          cudaStreamNonBlocking, not shared, and not the default stream. A call that would hang is
 *          gyreInvalidUsage. A call waits while 256 launches of its communicator are under way.
 *          Init and gyreMemAlloc wait up to 10 s until no kernel of the process is under way.
 *          CUDA graphs can capture the calls of a CUDA communicator, on all ranks alike, and replay
 *          them. A graph keeps what its kernels need, even after gyreCommDestroy. After
 *          gyreCommAbort or an error, replays end at once without effect. docs/cuda.md has more.
 *
 * FORK     A child may not use its parent's communicators, streams and objects of gradsync.h: such
 *          calls get gyreInvalidUsage. It drops a group that the forking thread had open, and may
 *          make its own communicators. A child forked inside a callback must exit or exec there: if
 *          it returns, its call gets gyreInvalidUsage, or the child ends with that thread. Memory
 *          of gyreMemAlloc stays shared: the parent sees what the child stores there.
 *
 * PROCESS  A program that closes descriptors it did not open (closefrom, a loop) closes the
 *          library's too. Such a program must do so before the first communicator. Otherwise,
 *          within about two seconds, its calls return gyreSystemError and those of other ranks
 *          gyreRemoteError. The communicators are broken, and the process can make no other: init
 *          returns gyreSystemError too, with a text that says closefrom. New files with the same
 *          numbers are neither written nor closed, except by a transfer over tcp that is under way.
 *
 * SECURITY A gyreUniqueId holds the job's secret: whoever reads it can join. Ranks prove to each
 *          other that they hold it. Control traffic uses TLS 1.3. Data over TCP begins with a
 *          one-time ticket; after that it is neither encrypted nor authenticated, unless
 *          GYRE_TCP_SECURITY=tls. Set it where others can read or change the traffic. Processes of
 *          one user on one host trust each other. docs/security.md says more.
 *
 * CODES    What each means and what to do; `gyre why --explain CODE` says the same.
 *  gyreSuccess            no error: nothing to do
 *  gyreUnhandledCudaError a CUDA call failed: read the cause; check the device and driver
 *  gyreSystemError        a system call failed: read the cause; it names the call and the limit
 *  gyreInternalError      a bug in Gyre: report it with the output of GYRE_DEBUG=INFO
 *  gyreInvalidArgument    an argument is wrong: correct the argument that the text names
 *  gyreInvalidUsage       the call is not allowed here: follow the text; the call had no effect
 *  gyreRemoteError        another rank failed: see why that rank failed; make a new communicator
 *  gyreInProgress         not finished yet: call gyreCommGetAsyncError again
 *  gyreTimeout            a deadline passed: check the named rank; raise GYRE_TIMEOUT if it is slow
 *  gyreMismatch           ranks made different calls: make the same calls in one order on all ranks
 *  gyreAborted            the communicator was aborted: make a new one; gyreCommAbort frees it
 *          The communicator goes on after gyreInvalidArgument and gyreInvalidUsage of a call. It is
 *          broken on all ranks after gyreRemoteError, gyreTimeout, gyreMismatch and gyreAborted.
 *          After gyreUnhandledCudaError, gyreSystemError and gyreInternalError ask
 *          gyreCommGetAsyncError: if it says gyreSuccess, the communicator goes on. These three may
 *          be another rank's; the text names it. A failed init leaves no communicator that goes on,
 *          whatever the code. gyreAborted means that this rank called gyreCommAbort, which frees
 *          the communicator: do not end it again.
 *
 * RESULTS  All ranks get the same bits. The same job (number of ranks, counts, types, settings)
 *          gives the same bits each time, on GPUs if ports and free memory are the same too.
 *          Operands are combined lower rank first. NaN and infinity propagate, also through min and
 *          max; NaNs come out canonical. 16- and 8-bit floats are summed in 32-bit float wherever
 *          several operands meet. Integer overflow wraps. e5m2 overflows to infinity, e4m3 (which
 *          has none) to NaN. config.reproducible = 1 makes results independent of algorithm and
 *          transport: summed in rank order, rounded once.
 *
 * SETTINGS Environment variables GYRE_*: `gyre settings` lists them. Each communicator reads them
 *          when it is made. A value that cannot be parsed whole is gyreInvalidUsage, never a silent
 *          default. An unknown GYRE_ name logs a warning. Init is gyreInvalidUsage if ranks differ
 *          in transports, reproducible, GYRE_ALGO, PROTO, BUFFSIZE, CMA, CHECK_CALLS, TCP_SECURITY.
 *
 * LOG      GYRE_DEBUG=WARN (default), NONE, VERSION, INFO or TRACE. GYRE_DEBUG_SUBSYS selects the
 *          INFO and TRACE lines; `gyre settings` lists the subsystems. GYRE_DEBUG_FILE names the
 *          file: a regular file of this user with one name, which is appended to, or a character
 *          device. Links, FIFOs and files of others are refused. The first communicator of a
 *          process decides all this. No line waits for its reader: a line without room is lost, and
 *          the next one that fits says how many were. A closed stderr or reader is harmless.
 */
/* clang-format on */
#ifndef GYRE_H_
#define GYRE_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#define GYRE_MAJOR 0
#define GYRE_MINOR 2
#define GYRE_PATCH 0
#define GYRE_VERSION_CODE 200
/* 10000 * major + 100 * minor + patch, as NCCL counts. */
#define GYRE_VERSION(X, Y, Z) ((X)*10000 + (Y)*100 + (Z))

#if defined(_WIN32)
#error "Gyre runs on Linux"
#endif
#define GYRE_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------- types */

/* An index and a generation, never an address. A stale or made-up handle: gyreInvalidArgument. */
typedef struct gyreComm* gyreComm_t;

/* A host stream (gyreStreamCreate); on a CUDA communicator a cudaStream_t, passed unchanged. */
typedef struct CUstream_st* gyreStream_t;

#define GYRE_UNIQUE_ID_BYTES 128
/* Opaque. It holds a secret: whoever has it can join. Do not log it or put it on a command line. */
typedef struct {
  char internal[GYRE_UNIQUE_ID_BYTES];
} gyreUniqueId;

typedef enum {
  gyreSuccess = 0,
  gyreUnhandledCudaError = 1,
  gyreSystemError = 2,     /* a system call failed; the text names it */
  gyreInternalError = 3,   /* a bug in Gyre */
  gyreInvalidArgument = 4, /* the call is refused; nothing happened */
  gyreInvalidUsage = 5,    /* valid arguments, but not allowed here or now; nothing happened */
  gyreRemoteError = 6,     /* another rank died or failed; the text names it */
  gyreInProgress = 7,      /* non-blocking communicator: call gyreCommGetAsyncError again */
  gyreTimeout = 8,         /* a deadline passed; the text names the rank that did not come */
  gyreMismatch = 9,        /* [gyre] ranks made different calls; the text shows them */
  gyreAborted = 10,        /* [gyre] this communicator was aborted */
  gyreNumResults = 11
} gyreResult_t;

typedef enum {
  gyreInt8 = 0,
  gyreChar = 0,
  gyreUint8 = 1,
  gyreInt32 = 2,
  gyreInt = 2,
  gyreUint32 = 3,
  gyreInt64 = 4,
  gyreUint64 = 5,
  gyreFloat16 = 6,
  gyreHalf = 6,
  gyreFloat32 = 7,
  gyreFloat = 7,
  gyreFloat64 = 8,
  gyreDouble = 8,
  gyreBfloat16 = 9,
  gyreFloat8e4m3 = 10,
  gyreFloat8e5m2 = 11,
  gyreNumTypes = 12
} gyreDataType_t;

typedef enum {
  gyreSum = 0,
  gyreProd = 1,
  gyreMax = 2,
  gyreMin = 3,
  gyreAvg = 4,  /* sum, then divided by n: floats in 32 bit, integers truncate toward zero */
  gyreBand = 5, /* [gyre] bitwise and: integer types only */
  gyreBor = 6,  /* [gyre] bitwise or: integer types only */
  gyreBxor = 7, /* [gyre] bitwise exclusive or: integer types only */
  gyreNumOps = 8,
  /* gyreRedOpCreatePreMulSum makes values from gyreNumOps up. */
  gyreMaxRedOp = INT_MAX
} gyreRedOp_t;

typedef enum {
  gyreScalarDevice = 0,       /* the scalar is in the communicator's kind of memory */
  gyreScalarHostImmediate = 1 /* the scalar is in host memory */
} gyreScalarResidence_t;

#define GYRE_CONFIG_UNDEF_INT INT_MIN
#define GYRE_CONFIG_UNDEF_PTR NULL
#define GYRE_SPLIT_NOCOLOR (-1)
#define GYRE_DEVICE_HOST (-1)

/* Start from GYRE_CONFIG_INITIALIZER and set the fields you need. GYRE_CONFIG_UNDEF_INT and _PTR
 * select the default. Fields are only ever appended; `size` tells the library which ones the caller
 * knows. A GYRE_ variable of the same meaning overrides a field: GYRE_TIMEOUT, GYRE_INIT_TIMEOUT,
 * GYRE_REPRODUCIBLE, GYRE_MAX_CTAS and GYRE_MIN_CTAS (unless 0), GYRE_TRANSPORT. */
typedef struct {
  size_t size;          /* sizeof(gyreConfig_t) of the caller */
  unsigned int magic;   /* GYRE_CONFIG_MAGIC */
  unsigned int version; /* GYRE_VERSION_CODE of the caller's header */
  int blocking; /* 1 (default): calls block as STREAMS says. 0: calls return at once, most with
                   gyreInProgress; all are done when gyreCommGetAsyncError says anything else */
  int cgaClusterSize;   /* NCCL's; no effect */
  int minCTAs;          /* channels to take of a GPU, as far as there is room (GPUS above) */
  int maxCTAs;          /* channels to take of a GPU, at most */
  const char* netName;  /* the only transport between hosts: "rdma" or "tcp", "IB" or "Socket" */
  int splitShare;       /* NCCL's; no effect */
  int trafficClass;     /* NCCL's, of RDMA; no effect */
  const char* commName; /* shown in logs and errors; copied during init */
  int device;        /* [gyre] GYRE_DEVICE_HOST, or a CUDA device; default: the current CUDA device
                        if there is a driver and this build has kernels, else host */
  int reproducible;  /* [gyre] 1: sum in rank order, round once (RESULTS above); default 0 */
  int timeoutMs;     /* [gyre] deadline of each operation; default 30 minutes (GYRE_TIMEOUT) */
  int initTimeoutMs; /* [gyre] deadline for all ranks to join, in whole seconds, rounded up;
                        default 2 minutes (GYRE_INIT_TIMEOUT) */
} gyreConfig_t;

#define GYRE_CONFIG_MAGIC 0x67797265u
/* clang-format off */
#define GYRE_CONFIG_INITIALIZER {                                                               \
  sizeof(gyreConfig_t), GYRE_CONFIG_MAGIC, GYRE_VERSION_CODE,                                   \
  GYRE_CONFIG_UNDEF_INT, GYRE_CONFIG_UNDEF_INT, GYRE_CONFIG_UNDEF_INT, GYRE_CONFIG_UNDEF_INT,   \
  GYRE_CONFIG_UNDEF_PTR, GYRE_CONFIG_UNDEF_INT, GYRE_CONFIG_UNDEF_INT, GYRE_CONFIG_UNDEF_PTR,   \
  GYRE_CONFIG_UNDEF_INT, GYRE_CONFIG_UNDEF_INT, GYRE_CONFIG_UNDEF_INT, GYRE_CONFIG_UNDEF_INT }
/* clang-format on */

/* ---------------------------------------------------------------------- errors and version */

/* The library's GYRE_VERSION_CODE. */
GYRE_API gyreResult_t gyreGetVersion(int* version);
/* A short text for a code. The string is static and never NULL. */
GYRE_API const char* gyreGetErrorString(gyreResult_t result);
/* The last error on this communicator; or of this thread, if `comm` is NULL or no communicator:
 * causes, culprits, remedy. Valid until this thread's next call of this function. Never NULL. */
GYRE_API const char* gyreGetLastError(gyreComm_t comm);

/* ---------------------------------------------------------------------------- communicators */

/* Makes an id. Call it in one rank, and pass the id to the others by your own means. The process
 * must live until all ranks have joined: they meet at it. It listens by TCP until all ranks have
 * joined and all are on this host; joining ranks do too. GYRE_SOCKET_IFNAME chooses the interface.
 * If it is unset and a launcher started several ranks, all on this host, none listens. */
GYRE_API gyreResult_t gyreGetUniqueId(gyreUniqueId* uniqueId);

/* Joins as `rank` of `nranks`. Blocks until all ranks have joined; gyreTimeout names the missing
 * ones. No other thread can stop it: it ends at its deadline (initTimeoutMs; on GPUs at most twice
 * that). After an error *comm is NULL or as it was, and there is nothing to free.
 * In a group the call sets *comm, and gyreGroupEnd joins. Even if gyreGroupEnd fails, the caller
 * must end each *comm that was set.
 * With config.blocking = 0 the call sets *comm and returns gyreInProgress. Call
 * gyreCommGetAsyncError(*comm) until it says anything else: gyreSuccess, or why joining failed. The
 * caller must end *comm in either case. gyreCommAbort(*comm) stops the joining at any time.
 * `config` may be NULL. */
GYRE_API gyreResult_t gyreCommInitRank(gyreComm_t* comm, int nranks, gyreUniqueId commId, int rank);
GYRE_API gyreResult_t gyreCommInitRankConfig(gyreComm_t* comm, int nranks, gyreUniqueId commId,
                                             int rank, gyreConfig_t* config);
/* Makes `ndev` ranks in this process: comms[i] is rank i on devlist[i], a device or
 * GYRE_DEVICE_HOST. NULL: device i for rank i if this build has kernels and there is a driver, else
 * host memory. All are blocking communicators. Outside a group the call blocks until all have
 * joined; after an error all of comms is NULL, and there is nothing to free. In a group the caller
 * must end each that is not NULL, even if gyreGroupEnd fails. */
GYRE_API gyreResult_t gyreCommInitAll(gyreComm_t* comms, int ndev, const int* devlist);
/* [gyre] As gyreCommInitRankConfig, with rank and size from the launcher: gyre run, torchrun,
 * mpirun (Open MPI, MPICH, Intel), srun, Kubernetes, or GYRE_RANK and GYRE_SIZE. Ranks meet as
 * GYRE_RENDEZVOUS_* says, or by mpirun; one host needs neither. Before joining it waits until rank
 * 0 has given the id, in a group and with blocking = 0 too. If all ranks fail, they may repeat. */
GYRE_API gyreResult_t gyreCommInitEnv(gyreComm_t* comm, gyreConfig_t* config);

/* [gyre] A key-value store of the caller, through which the ranks pass the id. Keys are
 * NUL-terminated strings. Both functions return 0 on success. `get` waits for the key, at most
 * `timeoutMs`. *bytes is the buffer's size before, and the value's length after. The library calls
 * them in the thread of gyreCommInitStore and during that call only. */
typedef struct {
  void* user;
  int (*set)(void* user, const char* key, const void* value, size_t bytes);
  int (*get)(void* user, const char* key, void* value, size_t* bytes, int timeoutMs);
} gyreStore_t;
/* As gyreCommInitRankConfig, with the id from the store, for which it waits as gyreCommInitEnv.
 * `key` names this communicator: it must be unique among all users of the store. Rank 0 stores the
 * id with its secret under `key`, in clear unless GYRE_RENDEZVOUS_SECRET_FILE is set. `config` may
 * be NULL. */
GYRE_API gyreResult_t gyreCommInitStore(gyreComm_t* comm, int nranks, int rank,
                                        const gyreStore_t* store, const char* key,
                                        gyreConfig_t* config);

/* Makes a new communicator for each color, with ranks ordered by key, then by old rank. `color` is
 * at least 0; GYRE_SPLIT_NOCOLOR joins none, and *newcomm is NULL. Fields that `config` leaves
 * undefined are as in `comm`, and so are all fields if it is NULL. Collective; may be in a group.
 * A refused split breaks nothing. If one fails later, *newcomm is NULL, and `comm` is broken on all
 * ranks. With blocking = 0, *newcomm is written before gyreCommGetAsyncError(comm) stops saying
 * gyreInProgress. If it is not NULL then, end it, even if `comm` has an error by that time. */
GYRE_API gyreResult_t gyreCommSplit(gyreComm_t comm, int color, int key, gyreComm_t* newcomm,
                                    gyreConfig_t* config);
/* Waits for this rank's operations, and returns the communicator's lasting error if there is one.
 * With blocking = 0 it returns gyreInProgress while operations are under way. */
GYRE_API gyreResult_t gyreCommFinalize(gyreComm_t comm);
/* Waits for this rank's operations and splits, to their deadlines if need be, then frees the
 * communicator. It waits with blocking = 0 too. Local: it does not wait for other ranks. A process
 * that ends without this call counts as dead on the other ranks. Not within a group. */
GYRE_API gyreResult_t gyreCommDestroy(gyreComm_t comm);
/* Ends all operations of the communicator, and frees it. No single call can be stopped otherwise.
 * Other ranks get gyreRemoteError, this rank's calls under way gyreAborted. It returns within 1 s,
 * whatever peers do (but see gyreMemAlloc). Later calls: gyreInvalidArgument. Not in a group. */
GYRE_API gyreResult_t gyreCommAbort(gyreComm_t comm);
/* [gyre] Changes the config's timeoutMs, also for operations under way. GYRE_TIMEOUT stays in
 * force where it is set. Splits inherit it. gyreInvalidUsage for a communicator of a GPU. */
GYRE_API gyreResult_t gyreCommSetTimeout(gyreComm_t comm, int timeoutMs);
/* Stores in *asyncError the error that broke the communicator, gyreInProgress or gyreSuccess. It
 * does not block.
 * [gyre] CUDA communicator: ask once the stream has passed a call. gyreSuccess then means that it
 * succeeded; gyreInProgress, that a kernel has given up for a cause not known yet: ask again.
 * [gyre] With blocking = 0 it stays gyreInProgress until all calls have ended, even after an error.
 * Then the buffers of calls with a NULL stream, and new handles, are the caller's; see BUFFERS. A
 * call that was refused breaks nothing: its error is told once, to whoever asks first. */
GYRE_API gyreResult_t gyreCommGetAsyncError(gyreComm_t comm, gyreResult_t* asyncError);
/* The number of ranks; this rank; and the CUDA device, or GYRE_DEVICE_HOST. */
GYRE_API gyreResult_t gyreCommCount(gyreComm_t comm, int* count);
GYRE_API gyreResult_t gyreCommUserRank(gyreComm_t comm, int* rank);
GYRE_API gyreResult_t gyreCommCuDevice(gyreComm_t comm, int* device);

/* ---------------------------------------------------------------------------- memory */

/* Allocates zeroed memory on the thread's current CUDA device if there is a driver and this build
 * has kernels, else host memory. Peers on this host reach it directly; calls with other memory
 * copy. Host memory is page-aligned. Device memory takes whole granules of the driver's, 2 MiB on
 * most; calls copy it until peers have mapped it (docs/cuda.md). With `size` 0, *ptr is NULL. The
 * caller frees it, with gyreMemFree alone, and does not unmap or remap parts of it.
 * A peer may stop while it writes into an output in host memory from here. The failed call then
 * waits 500 ms, gives the output private pages with the same contents, and logs WARN. The output
 * stays usable. Later calls copy it, which is slower, until it is freed. If the pages cannot be
 * replaced, the log says why, and the call returns when that peer goes on or ends. */
GYRE_API gyreResult_t gyreMemAlloc(void** ptr, size_t size);
/* [gyre] The same on GYRE_DEVICE_HOST or on a CUDA device, whatever device is current. */
GYRE_API gyreResult_t gyreMemAllocOn(void** ptr, size_t size, int device);
/* Frees memory from either function; NULL is allowed. No call, kernel or graph of this process may
 * still use it (BUFFERS): this function does not wait for kernels. Peers need not be done. Call it
 * before or after gyreCommDestroy. Device memory is free when other processes have unmapped it,
 * which they do when their kernels rest (docs/cuda.md). */
GYRE_API gyreResult_t gyreMemFree(void* ptr);
/* Tells the communicator of a buffer that will be used often. On a host communicator NICs then
 * reach it by RDMA, as they reach memory of gyreMemAlloc without it; nothing else changes. (Not
 * managed memory, nor, before Linux 5.12, any but gyreMemAlloc's: that is copied.) Registered
 * device memory from gyreMemAlloc is mapped by other processes before its first call. Processes
 * of this host reach other device memory (cudaMalloc, cuMemAlloc) directly only if it is
 * registered: they map its whole allocation by CUDA IPC, or else calls copy (GYRE_DEBUG=INFO
 * says why). Deregister memory before you free it: a call on memory that was freed and allocated
 * anew gets gyreInvalidUsage. *handle is valid until gyreCommDeregister succeeds or `comm` ends. */
GYRE_API gyreResult_t gyreCommRegister(gyreComm_t comm, void* buff, size_t size, void** handle);
/* Ends a registration. Calls and graphs that use the buffer must have ended. After gyreSuccess the
 * memory may be freed, if nothing else of its allocation is registered on any communicator. [gyre]
 * gyreInProgress, or the error of a broken communicator: another process still maps the memory. Do
 * not free it; the handle stays valid, calls copy, and you call this again later. It waits 1 s at
 * most. It succeeds immediately if every rank finishes its calls and deregisters before any rank
 * starts a new call. Memory that stays registered may be freed when all ranks have destroyed their
 * communicators and the graphs with their calls. */
GYRE_API gyreResult_t gyreCommDeregister(gyreComm_t comm, void* handle);

/* ---------------------------------------------------------------------------- reductions */

/* Makes an op: each rank multiplies its input by *scalar, an element of `datatype`; then sum. The
 * op is local to `comm`; ranks may have different scalars. The scalar is read during this call. The
 * op may be destroyed when the calls with it have returned. */
GYRE_API gyreResult_t gyreRedOpCreatePreMulSum(gyreRedOp_t* op, void* scalar,
                                               gyreDataType_t datatype,
                                               gyreScalarResidence_t residence, gyreComm_t comm);
GYRE_API gyreResult_t gyreRedOpDestroy(gyreRedOp_t op, gyreComm_t comm);

/* ---------------------------------------------------------------------------- collectives */

/* For all calls: BUFFERS, STREAMS and ORDER above say when they block and what ranks agree on. */

/* recvbuff[i] = op over all ranks of sendbuff[i], for i < count, on every rank. */
GYRE_API gyreResult_t gyreAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                    gyreDataType_t datatype, gyreRedOp_t op, gyreComm_t comm,
                                    gyreStream_t stream);
/* The same, with the result on rank `root` only; other ranks may pass NULL for recvbuff. */
GYRE_API gyreResult_t gyreReduce(const void* sendbuff, void* recvbuff, size_t count,
                                 gyreDataType_t datatype, gyreRedOp_t op, int root, gyreComm_t comm,
                                 gyreStream_t stream);
/* Copies `count` elements of root's sendbuff to every rank's recvbuff. */
GYRE_API gyreResult_t gyreBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                    gyreDataType_t datatype, int root, gyreComm_t comm,
                                    gyreStream_t stream);
/* gyreBroadcast in place. */
GYRE_API gyreResult_t gyreBcast(void* buff, size_t count, gyreDataType_t datatype, int root,
                                gyreComm_t comm, gyreStream_t stream);
/* sendbuff has nranks * recvcount elements. Rank i gets block i of the reduction in recvbuff
 * (recvcount elements). In place: recvbuff == sendbuff + rank * recvcount. */
GYRE_API gyreResult_t gyreReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                        gyreDataType_t datatype, gyreRedOp_t op, gyreComm_t comm,
                                        gyreStream_t stream);
/* sendbuff has sendcount elements, recvbuff nranks * sendcount. Block i of recvbuff is rank i's
 * sendbuff, on every rank. In place: sendbuff == recvbuff + rank * sendcount. */
GYRE_API gyreResult_t gyreAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                    gyreDataType_t datatype, gyreComm_t comm, gyreStream_t stream);
/* Block j of rank i's sendbuff becomes block i of rank j's recvbuff. Both buffers have nranks
 * blocks of `count` elements. In place: sendbuff == recvbuff. */
GYRE_API gyreResult_t gyreAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                                   gyreDataType_t datatype, gyreComm_t comm, gyreStream_t stream);
/* Rank i's `count` elements become block i of root's recvbuff, of nranks * count elements. In place
 * at the root: sendbuff == recvbuff + root * count. */
GYRE_API gyreResult_t gyreGather(const void* sendbuff, void* recvbuff, size_t count,
                                 gyreDataType_t datatype, int root, gyreComm_t comm,
                                 gyreStream_t stream);
/* Rank i gets block i of root's sendbuff, which has nranks * count elements. In place at the root:
 * recvbuff == sendbuff + root * count. */
GYRE_API gyreResult_t gyreScatter(const void* sendbuff, void* recvbuff, size_t count,
                                  gyreDataType_t datatype, int root, gyreComm_t comm,
                                  gyreStream_t stream);
/* [gyre] Uneven blocks. The arrays have nranks counts and displacements, in elements. For
 * gyreAlltoAllv each rank gives its own arrays; rank i's sendcounts[j] equals rank j's
 * recvcounts[i]. For the other two all ranks give equal arrays; rank i's sendcount is
 * recvcounts[i]. The blocks of gyreReduceScatterv lie in sendbuff without gaps. */
GYRE_API gyreResult_t gyreAlltoAllv(const void* sendbuff, const size_t sendcounts[],
                                    const size_t sdispls[], void* recvbuff,
                                    const size_t recvcounts[], const size_t rdispls[],
                                    gyreDataType_t datatype, gyreComm_t comm, gyreStream_t stream);
GYRE_API gyreResult_t gyreAllGatherv(const void* sendbuff, size_t sendcount, void* recvbuff,
                                     const size_t recvcounts[], const size_t displs[],
                                     gyreDataType_t datatype, gyreComm_t comm, gyreStream_t stream);
GYRE_API gyreResult_t gyreReduceScatterv(const void* sendbuff, void* recvbuff,
                                         const size_t recvcounts[], gyreDataType_t datatype,
                                         gyreRedOp_t op, gyreComm_t comm, gyreStream_t stream);
/* [gyre] No rank's barrier ends before every rank has entered it. */
GYRE_API gyreResult_t gyreBarrier(gyreComm_t comm, gyreStream_t stream);

/* ---------------------------------------------------------------------------- point to point */

#define GYRE_ANY_SOURCE (-1)
#define GYRE_ANY_TAG (-1)
/* Sends `count` elements to `peer`. Its gyreRecv calls from this rank take the messages in the
 * order in which they were sent. Count and datatype of both ends must agree, else it is
 * gyreMismatch. gyreSend may return before the peer receives; do not rely on it. Put sends and
 * receives that depend on each other into one group. On a host communicator they may also go to
 * streams of their own, side by side and beside collectives. Each begins when those queued before
 * it have begun. A call with a NULL stream first waits for all that its communicator has queued. */
GYRE_API gyreResult_t gyreSend(const void* sendbuff, size_t count, gyreDataType_t datatype,
                               int peer, gyreComm_t comm, gyreStream_t stream);
GYRE_API gyreResult_t gyreRecv(void* recvbuff, size_t count, gyreDataType_t datatype, int peer,
                               gyreComm_t comm, gyreStream_t stream);
/* [gyre] The same with tags from 0 up; gyreSend's tag is 0. Host communicators only; a CUDA
 * communicator returns gyreInvalidUsage. A receive takes the first message with its tag. It may ask
 * for GYRE_ANY_SOURCE and GYRE_ANY_TAG, and finds the sender in *source and the tag in
 * *receivedTag; both may be NULL, and are written when the receive is done. A receive from any
 * source gets gyreMismatch if there were other ranks and all have left. A rank with a receive under
 * way keeps messages that come for later ones, up to 256 MiB together; more is gyreMismatch. */
GYRE_API gyreResult_t gyreSendTagged(const void* sendbuff, size_t count, gyreDataType_t datatype,
                                     int peer, int tag, gyreComm_t comm, gyreStream_t stream);
GYRE_API gyreResult_t gyreRecvTagged(void* recvbuff, size_t count, gyreDataType_t datatype,
                                     int peer, int tag, int* source, int* receivedTag,
                                     gyreComm_t comm, gyreStream_t stream);

/* ---------------------------------------------------------------------------- groups */

/* Calls between Start and End are collected. The outermost End carries them out together, and
 * returns their first error. Errors of calls on host streams are told at the stream. A group may
 * hold calls on any number of communicators, joining and splits. Collectives of one communicator
 * run as ORDER above says. Its sends and receives run beside them, on a CUDA device after them.
 * There is no other order within a group. Groups nest. If a collective, send, receive, split or
 * init was refused, the outermost End returns its error and carries out nothing of the group. */
GYRE_API gyreResult_t gyreGroupStart(void);
GYRE_API gyreResult_t gyreGroupEnd(void);

/* ---------------------------------------------------------------------------- host streams */

/* [gyre] Makes a host stream: a queue of operations on host memory. The progress thread carries
 * them out in order. It may serve several communicators, and several threads may use it at once. */
GYRE_API gyreResult_t gyreStreamCreate(gyreStream_t* stream);
/* The same with `flags` 0 or GYRE_STREAM_BY_CALLER. With the flag no progress thread is used. The
 * call that queues an operation begins it, as far as it goes without waiting. Any thread that waits
 * for work on such streams continues it: Synchronize, Destroy, or a call with a NULL stream. Query
 * and gyreCommGetAsyncError continue it a little. No thread is woken, so a rank that computes on
 * all its cores loses none. Operations on different streams and communicators run side by side. On
 * one host whose memory reaches all ranks, a rank that waits also does the reduction work of ranks
 * that have begun a large all-reduce and compute again. An operation's deadline counts from its
 * begin. */
#define GYRE_STREAM_BY_CALLER 1
GYRE_API gyreResult_t gyreStreamCreateWithFlags(gyreStream_t* stream, unsigned int flags);
/* Waits for what is queued, then frees the stream. Returns errors as gyreStreamSynchronize. If
 * there is not even memory to wait, it returns gyreSystemError, and the stream goes on: call it
 * again. */
GYRE_API gyreResult_t gyreStreamDestroy(gyreStream_t stream);
/* Waits for what is queued. Returns the first error of an operation since the last Synchronize. If
 * there is not even memory to wait, it returns gyreSystemError ("out of memory"): call it again. */
GYRE_API gyreResult_t gyreStreamSynchronize(gyreStream_t stream);
/* gyreSuccess: all that was queued is done. gyreInProgress: some of it is not. Any other code is
 * the first error since the last Synchronize; other operations may still be under way. */
GYRE_API gyreResult_t gyreStreamQuery(gyreStream_t stream);
/* Operations queued on `stream` from now on wait for those queued on `other` so far. Both are host
 * streams. */
GYRE_API gyreResult_t gyreStreamWait(gyreStream_t stream, gyreStream_t other);
/* Queues a callback. It is called when all operations queued before are done, with the first error
 * so far, on the thread that drives the stream. It must not block, nor call Gyre but to query. */
typedef void (*gyreStreamCallback_t)(gyreStream_t stream, gyreResult_t status, void* user);
GYRE_API gyreResult_t gyreStreamAddCallback(gyreStream_t stream, gyreStreamCallback_t callback,
                                            void* user);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* GYRE_H_ */
