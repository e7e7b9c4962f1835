/* clang-format off */
/* gyre.h: collective communication between processes, threads and GPUs.
 *
 * This file is the manual. Names, values and meanings follow NCCL's nccl.h, so that s/nccl/gyre/
 * ports a program; what goes beyond NCCL is marked [gyre].
 *
 * WORDS
 *   rank          one participant: a process or a thread, numbered 0 .. n-1 in a communicator
 *   communicator  n ranks that talk to each other; each rank holds one gyreComm_t for its place in
 *                 it
 *   collective    a call that every rank of a communicator makes, in the same order and with
 *                 agreeing arguments
 *   in place      sendbuff == recvbuff (all-reduce, reduce, broadcast, all-to-all); sendbuff is
 *                 the own block of recvbuff (all-gather, all-gatherv, gather at the root); recvbuff
 *                 is the own block of sendbuff (reduce-scatter, reduce-scatterv, scatter at the
 *                 root). Any other overlap is refused, as any of gyreAlltoAllv is.
 *
 * UNITS    counts are numbers of elements, never bytes. Any count and any alignment are allowed; 0
 *          is a call without data that still needs every rank. A buffer may be NULL where a rank
 *          has no element in it: at count 0, or where only the root's is used. The arrays of
 *          v-functions are the caller's again when the call returns.
 *
 * MEMORY   A communicator works on host memory or on CUDA memory, by gyreConfig_t.device. The
 *          library never keeps a user's buffer beyond the call (host, NULL stream) or beyond the
 *          operation's place in its stream. After a call was refused before it began, buffers are
 *          untouched; after a peer failed they are undefined. No peer writes into them once the
 *          call has returned, with an error too. For that a failed call waits until no thread of
 *          its own process uses them. A rank of another process may stand still in the middle of
 *          writing into output of gyreMemAlloc (it was stopped, its machine was paused): after 500
 *          ms the library gives the output private pages with what is in them. A line of the log
 *          says so (WARN); calls with that memory copy from then on, until it is freed.
 *
 * STREAMS  On a host communicator a NULL stream means: the calling thread does the work and the
 *          call returns when it is done. With a host stream (gyreStreamCreate) the call returns at
 *          once and the work is done in stream order by the process's one progress thread, or by
 *          calls that wait (GYRE_STREAM_BY_CALLER).
 *
 * GRAPHS   A CUDA communicator's calls can be captured into CUDA graphs, on all ranks alike, and
 *          replayed. A graph keeps what its kernels need, also when its communicator has been
 *          destroyed; after gyreCommAbort or an error its replays end at once and do nothing. Where
 *          GPUs exchange through memory of the host, replays wake the thread that carries it. A
 *          replay that waits for such a rank which has destroyed its communicator and its graphs is
 *          given up: the communicator gets gyreMismatch, or, if it is destroyed, a line of the log
 *          says so (WARN) and its graphs do nothing from then on.
 *
 * GPUS     Kernels of ranks wait for each other, so what may run at one time has to fit the GPU at
 *          one time. When a communicator is made, its ranks get blocks of their GPUs for as long as
 *          it, or a graph with a call of it, exists (or until it fails), and memory for links. What
 *          other communicators of its processes hold is taken; of the rest it gets half, beside
 *          what eight communicators need at the least, and never less than four blocks a rank. If
 *          that is not left, or memory is not, init fails with gyreInvalidUsage and says who holds
 *          what. config.maxCTAs and GYRE_MAX_CTAS limit it to four blocks a rank for each channel;
 *          config.minCTAs and GYRE_MIN_CTAS give it so many where there is room, at the expense of
 *          later ones. All communicators count as busy at one time. Not counted: those of processes
 *          that never share a communicator. Several ranks of one process on one GPU need a stream
 *          each that waits for no other: made with cudaStreamNonBlocking, and neither the default
 *          stream nor one that two of them share; a call that would hang is refused. More of them
 *          than CUDA_DEVICE_MAX_CONNECTIONS (8 by default, 2 under MPS; 32 where Gyre loads the
 *          driver first) are refused, and warned of where it is several communicators together; so
 *          is CUDA_LAUNCH_BLOCKING=1. A call that finds 256 launches of its communicator before it
 *          waits for some of them to end. Memory of a communicator that has ended, and of
 *          gyreMemFree, is given back to the driver when no kernel of the process's communicators
 *          is on its way, as the driver may wait for them; gyreMemAlloc and init wait for such a
 *          moment, for up to 10 s.
 *
 * THREADS  Any thread may call any function. One communicator is used by one thread at a time; a
 *          second thread that enters at the same time gets gyreInvalidUsage. gyreCommAbort,
 *          gyreCommGetAsyncError, gyreCommCount, gyreCommUserRank, gyreCommCuDevice and
 *          gyreGetLastError may be called at any time from any thread. A group belongs to its
 *          thread. A thread must not be cancelled (pthread_cancel) or jump out of a callback
 *          (longjmp, exceptions) while it is inside a call: its communicator stays busy then.
 *
 * FORK     A child may not use its parent's communicators, streams and objects of gradsync.h: its
 *          calls get gyreInvalidUsage. It drops a group that the forking thread had open, and may
 *          make communicators of its own. A child that is forked inside a callback is to end there
 *          or to exec; otherwise its call gets gyreInvalidUsage, or it ends with the thread that
 *          came back. Memory of gyreMemAlloc stays shared: what the child stores there its parent
 *          sees.
 *
 * PROCESS  A program that closes descriptors which it did not open (closefrom, a loop over all
 *          numbers) takes those of the library too. Close them before the first communicator. After
 *          it, within a second or two, calls return gyreSystemError, those of other ranks
 *          gyreRemoteError; the process makes no communicator any more. New files of the program
 *          with the same numbers are neither written to nor closed, but for a transfer over tcp
 *          that is under way at that moment.
 *
 * ERRORS   Every function returns a gyreResult_t; none throws, aborts the process or hangs: each
 *          wait has a deadline (GYRE_TIMEOUT). gyreGetLastError gives the whole story: what was
 *          called, what failed, which rank is to blame, what to do. When a rank dies or aborts,
 *          every other rank's current or next call on that communicator returns gyreRemoteError,
 *          naming it; the communicator can then only be aborted or destroyed. Where memory reaches
 *          all ranks, a call that was under way still ends well on the host if it needs no more of
 *          that rank: what it gave before stays. A path between two hosts that carries nothing any
 *          more, in one direction or both, is gyreRemoteError within GYRE_LIVENESS_TIMEOUT + 1 s,
 *          naming both ends. Who needs a rank that has destroyed its communicator gets gyreMismatch
 *          ("has left"). gyreTimeout names the rank that is in no call, or in an earlier one, at
 *          the end of the chain of those who wait. What a call's settings rule out (GYRE_ALGO,
 *          GYRE_PROTO, GYRE_BUFFSIZE) is gyreInvalidUsage on all ranks before anything has
 *          happened; the communicator goes on. Nothing is lost where memory, descriptors or threads
 *          run out: it is gyreSystemError, which names the limit.
 *
 * SECURITY Ranks prove to each other that they hold the id's secret, and all that the control plane
 *          says goes by TLS 1.3 (pre-shared key). Each data connection shows a ticket of its own,
 *          good for one use, that went by the control plane. Data over TCP is neither encrypted nor
 *          authenticated after that, unless GYRE_TCP_SECURITY=tls: set it where others can read or
 *          change what is on the wire. Processes of one user on one host trust each other: they can
 *          read each other's memory anyway. A gyreUniqueId holds the secret: who reads it can join.
 *          gyreCommInitStore gives it to the store as it is, or encrypted where all ranks have the
 *          same GYRE_RENDEZVOUS_SECRET_FILE. docs/security.md says who can read and do what.
 *
 * CODES    What each means and what to do; `gyre why --explain CODE` says it too.
 *  gyreSuccess            no error: nothing to do
 *  gyreUnhandledCudaError a CUDA call failed: read the cause; check the device and driver
 *  gyreSystemError        a system call failed: read the cause: it names the call and the limit
 *  gyreInternalError      Gyre broke one of its own rules: report it with GYRE_DEBUG=INFO output
 *  gyreInvalidArgument    an argument is wrong: correct the argument that the text names
 *  gyreInvalidUsage       the call is not allowed here: follow the text; the call had no effect
 *  gyreRemoteError        another rank failed: see the named rank first; destroy and start anew
 *  gyreInProgress         not finished yet: ask again with gyreCommGetAsyncError
 *  gyreTimeout            a deadline passed: see the named rank; raise GYRE_TIMEOUT if it is slow
 *  gyreMismatch           ranks called different things: make the calls agree on all ranks
 *  gyreAborted            the communicator was aborted: destroy it
 *
 * RESULTS  All ranks get the same bits. The same job (number of ranks, counts, types, settings)
 *          gives the same bits each time. Operands are combined lower rank first. NaN and infinity
 *          propagate, also through min and max; NaNs come out canonical. 16- and 8-bit floats are
 *          summed in 32-bit float wherever several operands meet. Overflow: integers wrap; e5m2
 *          becomes infinity, e4m3 (which has none) NaN. gyreConfig_t.reproducible = 1 also makes
 *          results independent of algorithm and transport: operands in rank order, rounded once.
 *
 * SETTINGS Environment variables GYRE_*: `gyre settings` lists them. Each communicator reads them
 *          when it is made. A value that cannot be parsed whole is an error, never a silent
 *          default.
 *
 * LOG      GYRE_DEBUG=WARN (default), NONE, VERSION, INFO or TRACE. GYRE_DEBUG_SUBSYS chooses among
 *          the INFO and TRACE lines: INIT, BOOTSTRAP, ENV, GRAPH (ways between ranks), TUNING
 *          (algorithms), NET, SHM, ALLOC, COLL and P2P (TRACE: each call), CALL (calls that fail),
 *          ALL (default), or ^ and those to leave out. GYRE_DEBUG_FILE says where to: a file of
 *          this user's with one name, which is appended to, or a character device; a link, a FIFO
 *          and what belongs to others are refused. The first communicator of a process decides. No
 *          line waits for its reader: those that find no room are lost, and the next one that
 *          fits says how many. A reader that has gone, or a closed stderr, does no harm.
 */
/* clang-format on */
#ifndef GYRE_H_
#define GYRE_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#define GYRE_MAJOR 0
#define GYRE_MINOR 1
#define GYRE_PATCH 0
#define GYRE_VERSION_CODE 100
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

/* A communicator: an index and a generation, never an address. A stale or made-up handle is
 * answered with gyreInvalidArgument. */
typedef struct gyreComm* gyreComm_t;

/* A host stream (gyreStreamCreate), or a cudaStream_t, unchanged, on a CUDA communicator. */
typedef struct CUstream_st* gyreStream_t;

#define GYRE_UNIQUE_ID_BYTES 128
/* Opaque. Contains a secret: whoever has it may join. Do not log it or put it on a command line. */
typedef struct {
  char internal[GYRE_UNIQUE_ID_BYTES];
} gyreUniqueId;

typedef enum {
  gyreSuccess = 0,
  gyreUnhandledCudaError = 1,
  gyreSystemError = 2,     /* a system call failed; the text names it */
  gyreInternalError = 3,   /* a bug in Gyre */
  gyreInvalidArgument = 4, /* the call is refused; nothing happened */
  gyreInvalidUsage = 5, /* right arguments at the wrong place, or not available; nothing happened */
  gyreRemoteError = 6,  /* another rank died or failed; the text names it */
  gyreInProgress = 7,   /* non-blocking communicator: ask gyreCommGetAsyncError again */
  gyreTimeout = 8,      /* a deadline passed; the text names the rank that did not come */
  gyreMismatch = 9,     /* [gyre] ranks called different things; the text shows the calls */
  gyreAborted = 10,     /* [gyre] this communicator was aborted */
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
  gyreAvg = 4,  /* sum, divided by n at the end (floats in 32 bit; integers truncate toward zero) */
  gyreBand = 5, /* [gyre] bitwise and: integer types only */
  gyreBor = 6,  /* [gyre] bitwise or */
  gyreBxor = 7, /* [gyre] bitwise exclusive or */
  gyreNumOps = 8,
  /* Values from gyreNumOps up are made by gyreRedOpCreatePreMulSum. */
  gyreMaxRedOp = INT_MAX
} gyreRedOp_t;

typedef enum {
  gyreScalarDevice = 0,       /* the scalar lies where the communicator's buffers lie */
  gyreScalarHostImmediate = 1 /* the scalar lies in host memory and is read during the call */
} gyreScalarResidence_t;

#define GYRE_CONFIG_UNDEF_INT INT_MIN
#define GYRE_CONFIG_UNDEF_PTR NULL
#define GYRE_SPLIT_NOCOLOR (-1)
#define GYRE_DEVICE_HOST (-1)

/* Start from GYRE_CONFIG_INITIALIZER and set what you mean. Fields are only ever appended; `size`
 * tells the library which the caller knows. GYRE_CONFIG_UNDEF_INT and _PTR mean "the library
 * decides". A GYRE_ variable of the same meaning beats a field: GYRE_TIMEOUT, GYRE_INIT_TIMEOUT,
 * GYRE_REPRODUCIBLE, GYRE_MAX_CTAS and GYRE_MIN_CTAS (0 says nothing), GYRE_TRANSPORT. */
typedef struct {
  size_t size;          /* sizeof(gyreConfig_t) of the caller */
  unsigned int magic;   /* GYRE_CONFIG_MAGIC */
  unsigned int version; /* GYRE_VERSION_CODE of the caller's header */
  int blocking; /* 1 (default): calls return when they are done; 0: gyreInProgress, see NCCL */
  int cgaClusterSize;   /* NCCL's; no effect */
  int minCTAs;          /* channels to take of a GPU, as far as there is room (GPUS above) */
  int maxCTAs;          /* channels, at most */
  const char* netName;  /* transport between hosts: there is "tcp" ("Socket" is the same) */
  int splitShare;       /* NCCL's; no effect */
  int trafficClass;     /* NCCL's, of RDMA; no effect */
  const char* commName; /* shown in logs and errors; copied during init */
  int device;        /* [gyre] GYRE_DEVICE_HOST, or a CUDA device; default: the current CUDA device
                        if there is a driver and this build has kernels, else host */
  int reproducible;  /* [gyre] 1: only plans that sum in rank order and round once */
  int timeoutMs;     /* [gyre] deadline of each operation; default 30 minutes (GYRE_TIMEOUT) */
  int initTimeoutMs; /* [gyre] deadline to meet, in whole seconds, rounded up; default 2 minutes
                        (GYRE_INIT_TIMEOUT) */
} gyreConfig_t;

#define GYRE_CONFIG_MAGIC 0x67797265u
/* clang-format off */
#define GYRE_CONFIG_INITIALIZER {                                                               \
  sizeof(gyreConfig_t), GYRE_CONFIG_MAGIC, GYRE_VERSION_CODE,                                   \
  GYRE_CONFIG_UNDEF_INT, GYRE_CONFIG_UNDEF_INT, GYRE_CONFIG_UNDEF_INT, GYRE_CONFIG_UNDEF_INT,   \
  GYRE_CONFIG_UNDEF_PTR, GYRE_CONFIG_UNDEF_INT, GYRE_CONFIG_UNDEF_INT, GYRE_CONFIG_UNDEF_PTR,   \
  GYRE_CONFIG_UNDEF_INT, GYRE_CONFIG_UNDEF_INT, GYRE_CONFIG_UNDEF_INT, GYRE_CONFIG_UNDEF_INT }
/* clang-format on */

/* ---------------------------------------------------------------------------- errors and version
 */

/* The library's GYRE_VERSION_CODE. */
GYRE_API gyreResult_t gyreGetVersion(int* version);
/* A short text for a code. Static; never NULL. */
GYRE_API const char* gyreGetErrorString(gyreResult_t result);
/* What went wrong last on this communicator, or in this thread if `comm` is NULL or was never made:
 * causes, culprits, remedy. Valid until this thread's next call of gyreGetLastError. Never NULL. */
GYRE_API const char* gyreGetLastError(gyreComm_t comm);

/* ---------------------------------------------------------------------------- communicators */

/* Makes an id; the process is the meeting point until all have joined. Call it in one rank and pass
 * the id to the others by your own means. Until all have come and are of this host, it listens by
 * TCP, as they do while they join, at the interface that GYRE_SOCKET_IFNAME chooses; not if a
 * launcher's variables say that it has started several ranks, all on this host, and that variable
 * is unset. */
GYRE_API gyreResult_t gyreGetUniqueId(gyreUniqueId* uniqueId);

/* Joins as `rank` of `nranks`. Returns when all ranks have come, or with gyreTimeout naming those
 * who did not. Within a group, or with blocking = 0, it only begins. */
GYRE_API gyreResult_t gyreCommInitRank(gyreComm_t* comm, int nranks, gyreUniqueId commId, int rank);
GYRE_API gyreResult_t gyreCommInitRankConfig(gyreComm_t* comm, int nranks, gyreUniqueId commId,
                                             int rank, gyreConfig_t* config);
/* `ndev` ranks in this process: comms[i] is rank i. devlist[i] is its device: GYRE_DEVICE_HOST for
 * host memory; NULL means host memory for all where there is no CUDA driver. */
GYRE_API gyreResult_t gyreCommInitAll(gyreComm_t* comms, int ndev, const int* devlist);
/* [gyre] Rank and size from the launcher: gyre run, torchrun, mpirun (Open MPI, MPICH, Intel),
 * srun, or GYRE_RANK and GYRE_SIZE. Ranks meet as GYRE_RENDEZVOUS_* says, or by themselves on one
 * host. `config` may be NULL. */
GYRE_API gyreResult_t gyreCommInitEnv(gyreComm_t* comm, gyreConfig_t* config);

/* [gyre] A key-value store of the caller, through which the ranks pass the id. Keys are
 * NUL-terminated texts. Both functions return 0 on success; `get` waits for the key, at most
 * `timeoutMs`, and stores the value's length in *bytes (which holds the buffer's size before).
 * Called during init only. */
typedef struct {
  void* user;
  int (*set)(void* user, const char* key, const void* value, size_t bytes);
  int (*get)(void* user, const char* key, void* value, size_t* bytes, int timeoutMs);
} gyreStore_t;
/* `key` names this communicator in the store: unique among all that use the store. What is set
 * there contains the id's secret, in clear unless GYRE_RENDEZVOUS_SECRET_FILE is set. */
GYRE_API gyreResult_t gyreCommInitStore(gyreComm_t* comm, int nranks, int rank,
                                        const gyreStore_t* store, const char* key,
                                        gyreConfig_t* config);

/* A new communicator for each color, ranks ordered by key, then by old rank. GYRE_SPLIT_NOCOLOR
 * gets a NULL handle, and so does a split that fails: `comm` is broken then, on every rank, as all
 * have to hear of it. What `config` leaves undefined, or all if it is NULL, is as in `comm`.
 * Collective. With blocking = 0, *newcomm is written before
 * gyreCommGetAsyncError(comm) stops saying gyreInProgress. If it is not NULL then, it is the
 * caller's to end, also where an error of `comm` is told: that came right after the split. */
GYRE_API gyreResult_t gyreCommSplit(gyreComm_t comm, int color, int key, gyreComm_t* newcomm,
                                    gyreConfig_t* config);
/* Waits for this rank's operations. */
GYRE_API gyreResult_t gyreCommFinalize(gyreComm_t comm);
/* Finishes this rank's operations and frees it. Local: it does not wait for other ranks. A process
 * that ends without it has died, to the others. */
GYRE_API gyreResult_t gyreCommDestroy(gyreComm_t comm);
/* Ends every operation here and on all ranks with gyreRemoteError, and frees it. Returns within 1 s
 * whatever the peers do. May be called from any thread while another is inside a call. */
GYRE_API gyreResult_t gyreCommAbort(gyreComm_t comm);
/* The communicator's lasting error, gyreInProgress, or gyreSuccess. [gyre] On a device, asked after
 * a call's place in its stream was reached, gyreSuccess means that the call went well; while a
 * kernel has given up and it is not known why yet, it is gyreInProgress. [gyre] Of a non-blocking
 * communicator an error is told once its calls have ended: buffers and handles are the caller's. */
GYRE_API gyreResult_t gyreCommGetAsyncError(gyreComm_t comm, gyreResult_t* asyncError);
GYRE_API gyreResult_t gyreCommCount(gyreComm_t comm, int* count);
GYRE_API gyreResult_t gyreCommUserRank(gyreComm_t comm, int* rank);
/* The CUDA device, or GYRE_DEVICE_HOST. */
GYRE_API gyreResult_t gyreCommCuDevice(gyreComm_t comm, int* device);

/* ---------------------------------------------------------------------------- memory */

/* Zeroed memory for the communicators that the calling thread would make by default: of its current
 * CUDA device where there is a driver and this build has kernels, else of the host (see
 * gyreConfig_t.device). Peers on this host reach it directly; other memory that is not registered
 * works at the price of copies. Of the host it is page-aligned; of a device it takes whole granules
 * of the driver's (2 MiB on most), which other GPUs of this process that can reach it may use too.
 * Processes of the host map it once all ranks of a communicator have been offered it, which takes
 * milliseconds and no call waits for: gyreCommRegister or the first call that uses it begins; a
 * call, or a capture, that comes before copies. Where a device has no memory that processes can
 * share, or a rank cannot map it, calls between processes copy, and GYRE_DEBUG=INFO says why. */
GYRE_API gyreResult_t gyreMemAlloc(void** ptr, size_t size);
/* [gyre] The same, of GYRE_DEVICE_HOST or of a CUDA device, whatever is current. */
GYRE_API gyreResult_t gyreMemAllocOn(void** ptr, size_t size, int device);
/* What either of them gave; NULL is nothing. No call, no kernel and no graph uses it any more: for
 * kernels it does not wait. Other processes that have mapped memory of a device let go of it when
 * their kernels rest, those whose calls were captured with their communicators and graphs; only
 * then is it free. */
GYRE_API gyreResult_t gyreMemFree(void* ptr);
/* Tells the communicator of a buffer that will be used often. Memory from gyreMemAlloc is reached
 * directly with or without it; with it, other processes map memory of a device before the first
 * call. Other memory of a device (cudaMalloc, cuMemAlloc) is reached directly by processes of the
 * host once it is registered, as memory from gyreMemAlloc is, but while their kernels rest: the
 * whole allocation that the buffer lies in, by CUDA IPC, on this communicator. What CUDA IPC does
 * not know (memory of cudaMallocAsync and of other pools, of cuMemCreate, managed, of the host) is
 * copied between processes as before; GYRE_DEBUG=INFO says so, and why. Deregister it before you
 * free it: a call on memory that was freed and allocated anew meanwhile gets gyreInvalidUsage.
 * *handle is valid until Deregister succeeds or the communicator ends. */
GYRE_API gyreResult_t gyreCommRegister(gyreComm_t comm, void* buff, size_t size, void** handle);
/* Calls and graphs that use it have ended. After gyreSuccess it may be freed, if nothing else of
 * its allocation is registered, on any communicator. [gyre] gyreInProgress, or the error of a
 * communicator that is broken: it may not, and the handle stays valid, since another process still
 * has it open; calls copy it again, so go on, and call this again later. Processes let go of it
 * when their kernels rest, for which this waits a second at the most; one whose calls were captured
 * lets go with its communicator and graphs. So it succeeds at once if calls have ended on all ranks
 * and none makes the next one before all have deregistered. Memory that is registered to the end
 * may be freed when all ranks have destroyed their communicators, and the graphs with their calls.
 */
GYRE_API gyreResult_t gyreCommDeregister(gyreComm_t comm, void* handle);

/* ---------------------------------------------------------------------------- reductions */

/* An op: each rank's input times *scalar (an element of `datatype`), then sum. Local to `comm`;
 * ranks may have different scalars. It may be destroyed when the calls with it have returned. */
GYRE_API gyreResult_t gyreRedOpCreatePreMulSum(gyreRedOp_t* op, void* scalar,
                                               gyreDataType_t datatype,
                                               gyreScalarResidence_t residence, gyreComm_t comm);
GYRE_API gyreResult_t gyreRedOpDestroy(gyreRedOp_t op, gyreComm_t comm);

/* ---------------------------------------------------------------------------- collectives */

/* recvbuff[i] = op over all ranks of sendbuff[i], i < count, on every rank. */
GYRE_API gyreResult_t gyreAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                    gyreDataType_t datatype, gyreRedOp_t op, gyreComm_t comm,
                                    gyreStream_t stream);
/* The same, result on rank `root` only; recvbuff matters only there. */
GYRE_API gyreResult_t gyreReduce(const void* sendbuff, void* recvbuff, size_t count,
                                 gyreDataType_t datatype, gyreRedOp_t op, int root, gyreComm_t comm,
                                 gyreStream_t stream);
/* root's sendbuff to everybody's recvbuff. */
GYRE_API gyreResult_t gyreBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                    gyreDataType_t datatype, int root, gyreComm_t comm,
                                    gyreStream_t stream);
/* gyreBroadcast in place. */
GYRE_API gyreResult_t gyreBcast(void* buff, size_t count, gyreDataType_t datatype, int root,
                                gyreComm_t comm, gyreStream_t stream);
/* sendbuff has nranks * recvcount elements; rank i gets block i of the reduction. */
GYRE_API gyreResult_t gyreReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                        gyreDataType_t datatype, gyreRedOp_t op, gyreComm_t comm,
                                        gyreStream_t stream);
/* recvbuff has nranks * sendcount elements: rank i's sendbuff at block i. */
GYRE_API gyreResult_t gyreAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                    gyreDataType_t datatype, gyreComm_t comm, gyreStream_t stream);
/* Block j of rank i's sendbuff becomes block i of rank j's recvbuff; blocks of `count` elements. */
GYRE_API gyreResult_t gyreAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                                   gyreDataType_t datatype, gyreComm_t comm, gyreStream_t stream);
/* Every rank's `count` elements to blocks of root's recvbuff. */
GYRE_API gyreResult_t gyreGather(const void* sendbuff, void* recvbuff, size_t count,
                                 gyreDataType_t datatype, int root, gyreComm_t comm,
                                 gyreStream_t stream);
/* Blocks of root's sendbuff, `count` elements each, to the ranks. */
GYRE_API gyreResult_t gyreScatter(const void* sendbuff, void* recvbuff, size_t count,
                                  gyreDataType_t datatype, int root, gyreComm_t comm,
                                  gyreStream_t stream);
/* [gyre] Uneven blocks. Arrays of nranks counts and displacements, in elements; the v-tables of a
 * rank may be known to that rank alone for gyreAlltoAllv, and are equal on all ranks for the
 * others. */
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
/* [gyre] Nobody leaves before everybody has entered. */
GYRE_API gyreResult_t gyreBarrier(gyreComm_t comm, gyreStream_t stream);

/* ---------------------------------------------------------------------------- point to point */

#define GYRE_ANY_SOURCE (-1)
#define GYRE_ANY_TAG (-1)
/* `count` elements to `peer`, matched in order with its gyreRecv from this rank. Group several that
 * depend on each other; on host memory they may also be on streams of their own, where they go on
 * side by side, and beside collectives; each begins when those queued before it on its communicator
 * have begun. */
GYRE_API gyreResult_t gyreSend(const void* sendbuff, size_t count, gyreDataType_t datatype,
                               int peer, gyreComm_t comm, gyreStream_t stream);
GYRE_API gyreResult_t gyreRecv(void* recvbuff, size_t count, gyreDataType_t datatype, int peer,
                               gyreComm_t comm, gyreStream_t stream);
/* [gyre] The same with tags, of which gyreSend's is 0; a receiver may take GYRE_ANY_SOURCE and
 * GYRE_ANY_TAG, and learns who it was through *source and *receivedTag (may be NULL). If all other
 * ranks have left, it gets gyreMismatch. */
GYRE_API gyreResult_t gyreSendTagged(const void* sendbuff, size_t count, gyreDataType_t datatype,
                                     int peer, int tag, gyreComm_t comm, gyreStream_t stream);
GYRE_API gyreResult_t gyreRecvTagged(void* recvbuff, size_t count, gyreDataType_t datatype,
                                     int peer, int tag, int* source, int* receivedTag,
                                     gyreComm_t comm, gyreStream_t stream);

/* ---------------------------------------------------------------------------- groups */

/* Calls between Start and End are gathered and carried out together at End, on any number of
 * communicators of this thread; they may not be ordered against each other. Groups nest. If a call
 * in a group was refused, End returns its error and nothing of the group is carried out. Calls of
 * one communicator that go to different streams are ordered by their streams: ranks that order them
 * otherwise get gyreMismatch. Splits may be in a group. */
GYRE_API gyreResult_t gyreGroupStart(void);
GYRE_API gyreResult_t gyreGroupEnd(void);

/* ---------------------------------------------------------------------------- host streams */

/* [gyre] A queue of operations on host memory, carried out in order by the progress thread. For
 * CUDA communicators use CUDA's streams. A stream may serve several communicators. */
GYRE_API gyreResult_t gyreStreamCreate(gyreStream_t* stream);
/* The same with GYRE_STREAM_BY_CALLER in `flags`, or 0: what is queued is begun in the call that
 * queues it, as far as it goes without waiting, and goes on in any thread's calls that wait for
 * something queued on such a stream (Synchronize, Destroy, a call without a stream), and a little
 * in Query and gyreCommGetAsyncError. No thread is woken, so a rank that computes on all its cores
 * loses none of them; and where all ranks are of one host and memory reaches them, those that wait
 * first reduce the part of a large all-reduce that another one has begun and left. Operations go on
 * side by side on streams and communicators of their own. The operations' deadlines count from
 * their begin. */
#define GYRE_STREAM_BY_CALLER 1
GYRE_API gyreResult_t gyreStreamCreateWithFlags(gyreStream_t* stream, unsigned int flags);
/* Waits for what is queued, then frees it. */
GYRE_API gyreResult_t gyreStreamDestroy(gyreStream_t stream);
/* Waits for what is queued; returns the first error of an operation since the last Synchronize. */
GYRE_API gyreResult_t gyreStreamSynchronize(gyreStream_t stream);
/* gyreSuccess if all is done, gyreInProgress if not, or the first error. */
GYRE_API gyreResult_t gyreStreamQuery(gyreStream_t stream);
/* What is queued on `stream` from now on waits for what is queued on `other` until now. */
GYRE_API gyreResult_t gyreStreamWait(gyreStream_t stream, gyreStream_t other);
/* Called on the thread that drives the stream when all queued before is done, with the first error
 * so far. It must not block and must not call into Gyre, except to query. */
typedef void (*gyreStreamCallback_t)(gyreStream_t stream, gyreResult_t status, void* user);
GYRE_API gyreResult_t gyreStreamAddCallback(gyreStream_t stream, gyreStreamCallback_t callback,
                                            void* user);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* GYRE_H_ */
