/* clang-format off */
/* transport.h: the interface of transports that are built outside of Gyre.
 *
 * A transport plug-in is a shared library with one function, gyreTransportPlugin. It returns a
 * table of functions that move bytes between two ranks. Gyre loads it if the environment says so:
 *
 *     GYRE_TRANSPORT_PLUGIN=/opt/lib/libmine.so     several are separated by ':'
 *     GYRE_TRANSPORT=mine,tcp                       the table's name is a value of GYRE_TRANSPORT
 *
 * All ranks need the same two values. Gyre's own transports come before plug-ins: without
 * GYRE_TRANSPORT a plug-in is taken only for peers that no other transport reaches. A library stays
 * loaded until the process ends. docs/examples/unix_transport.c is a plug-in to copy from.
 *
 * WORDS
 *   context    a plug-in's state for one rank of one communicator: from open to close
 *   listener   where one peer's stream comes in: from listen to closeListener
 *   stream     bytes from one rank to another, in order, reliable, one way: from connect or accept
 *              to closeStream
 *   endpoint   the bytes by which the sender of a stream finds its listener
 *
 * HOW A STREAM COMES ABOUT   The receiver calls listen. Its endpoint travels to the sender, over
 *          Gyre's encrypted control plane. The sender calls connect with it. The receiver calls
 *          accept until a stream comes that begins with the right secret. Gyre writes and checks
 *          this secret itself: it is in the first bytes of each stream. So others may connect to a
 *          listener, and do no harm. Then the listener is closed. Gyre cuts messages out of the
 *          bytes and checks their headers. Gyre never encrypts a plug-in's bytes. With
 *          GYRE_TCP_SECURITY=tls it takes no plug-in to another host.
 *
 * RESULTS  Functions return one of the results below; any other value fails the link. A function
 *          that returns gyreTransportPeerError or gyreTransportOwnError writes the reason to
 *          why->text: what failed, and errno's text. PeerError blames the peer: errors then name
 *          its rank. OwnError is for what this process lacks, such as memory or descriptors. An
 *          error is final: Gyre then closes the stream or listener.
 *
 * NOTHING BLOCKS   No function waits, neither for the peer nor for the network. What cannot be done
 *          now is gyreTransportAgain. Gyre sets the deadlines (GYRE_TIMEOUT, GYRE_INIT_TIMEOUT) and
 *          calls again until then.
 *
 * THREADS  For one context, listener or stream, one thread at a time is in a function, and a call
 *          happens before the next one. Different ones may be used by different threads at the same
 *          time. A plug-in that shares state among them locks it. gyreTransportPlugin is called
 *          once by each process. A plug-in makes no signal handlers and does not end the process.
 *          Its descriptors are close-on-exec. No exception leaves a function.
 *
 * OWNERSHIP  Gyre owns all memory that it passes. A plug-in uses it during the call alone; only
 *          gyreTransportSelf_t's address stays until close. The table and the texts in it stay
 *          until the process ends. A context is closed after all of its listeners and streams. Each
 *          is closed once. A child of fork calls nothing for what its parent has opened.
 *
 * VERSIONS The structs only grow, at their ends, and `size` says what the other side knows. Gyre
 *          takes a member beyond a table's size for NULL. A plug-in reads no member beyond a
 *          struct's size. So plug-ins and Gyre need not be of one release. What cannot be said in
 *          this way makes a new GYRE_TRANSPORT_VERSION, and Gyre refuses tables of another one. */
#ifndef GYRE_TRANSPORT_H
#define GYRE_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GYRE_TRANSPORT_VERSION 1u

#define GYRE_TRANSPORT_MAX_NAME 31        /* bytes of a name */
#define GYRE_TRANSPORT_MAX_ENDPOINT 1024  /* bytes of an endpoint */
#define GYRE_TRANSPORT_MAX_ANNOUNCEMENT 256

typedef int gyreTransportResult_t;
enum {
  gyreTransportOk = 0,
  gyreTransportAgain = 1,      /* nothing can be done now: call again */
  gyreTransportClosed = 2,     /* the other end has closed the stream, after its last byte */
  gyreTransportPeerError = 3,  /* the peer, or the way to it, failed or does not exist */
  gyreTransportOwnError = 4    /* this process failed */
};

/* Why a function failed. Gyre gives it with an empty text; a longer reason is cut short. */
typedef struct {
  size_t size;     /* sizeof(gyreTransportWhy_t) of Gyre's header */
  char text[256];  /* ends with a zero byte */
} gyreTransportWhy_t;

/* What Gyre says of the rank that opens a context. */
typedef struct {
  size_t size;          /* sizeof(gyreTransportSelf_t) of Gyre's header */
  const char* address;  /* "10.0.0.1:4711": where this process listens for Gyre, by
                           GYRE_SOCKET_IFNAME; empty: nowhere. A plug-in opens ports of its own. */
  int64_t livenessMs;   /* GYRE_LIVENESS_TIMEOUT: how long another host may be silent */
} gyreTransportSelf_t;

/* What Gyre says of a peer. Its values are the peer's own word. */
typedef struct {
  size_t size;              /* sizeof(gyreTransportPeer_t) of Gyre's header */
  int sameProcess;          /* it is a thread of this process, or this rank itself */
  int sameHost;             /* both run under one kernel */
  int sameNetwork;          /* and are in one network namespace: abstract sockets are seen there */
  int sameUser;             /* and have one user id */
  const char* address;      /* like gyreTransportSelf_t's */
  const unsigned char* announcement;  /* what its context announced */
  size_t announcementBytes;
} gyreTransportPeer_t;

/* A part of the bytes to send, or of the room for bytes that are received. */
typedef struct {
  void* data;  /* when sending, the bytes are not written */
  size_t bytes;
} gyreTransportPart_t;

/* What ends the sleep of a thread that waits for a stream or listener. */
typedef struct {
  size_t size;     /* sizeof(gyreTransportWait_t) of Gyre's header */
  int descriptor;  /* Gyre gives -1: nothing ends the sleep. It then lasts a millisecond at most. */
  short events;    /* for poll: POLLIN, POLLOUT */
} gyreTransportWait_t;

/* Handles; each plug-in defines the structs. */
typedef struct gyreTransportContext* gyreTransportContext_t;
typedef struct gyreTransportListener* gyreTransportListener_t;
typedef struct gyreTransportStream* gyreTransportStream_t;

/* The table. Functions that may be NULL say so. A handle that a function returns with
 * gyreTransportOk is not NULL. */
typedef struct {
  size_t size;          /* sizeof(gyreTransportTable_t) of the plug-in's header */
  unsigned version;     /* GYRE_TRANSPORT_VERSION of the plug-in's header */
  unsigned flags;       /* none yet: 0 */
  const char* name;     /* for GYRE_TRANSPORT: a letter, then letters, digits and _, all in lower
                           case; no other transport has it */
  const char* reaches;  /* for people, one line: whom it reaches, "hosts on one Foo network" */

  /* Makes the rank's context. PeerError stands for a network that does not exist here: the
   * transport then reaches nobody, and Gyre says why. OwnError fails the communicator. */
  gyreTransportResult_t (*open)(const gyreTransportSelf_t* self, gyreTransportContext_t* context,
                                gyreTransportWhy_t* why);
  void (*close)(gyreTransportContext_t context);

  /* NULL: nothing. What all peers get to know before they judge whether they reach this rank:
   * writes at most GYRE_TRANSPORT_MAX_ANNOUNCEMENT bytes and their number. */
  gyreTransportResult_t (*announce)(gyreTransportContext_t context, unsigned char* announcement,
                                    size_t* bytes, gyreTransportWhy_t* why);

  /* Whether the peer can be reached: Ok, or PeerError. The reason is shown to people in both
   * cases. Both ends must judge alike. */
  gyreTransportResult_t (*reach)(gyreTransportContext_t context, const gyreTransportPeer_t* peer,
                                 gyreTransportWhy_t* why);

  /* Listens for one stream of that peer. Writes at most GYRE_TRANSPORT_MAX_ENDPOINT bytes of
   * endpoint and their number, which is not 0. */
  gyreTransportResult_t (*listen)(gyreTransportContext_t context, const gyreTransportPeer_t* peer,
                                  gyreTransportListener_t* listener, unsigned char* endpoint,
                                  size_t* bytes, gyreTransportWhy_t* why);
  /* The next stream that has come, or Again. It is called until the right one has come. */
  gyreTransportResult_t (*accept)(gyreTransportListener_t listener, gyreTransportStream_t* stream,
                                  gyreTransportWhy_t* why);
  /* Streams that came and were not accepted fail at their senders. */
  void (*closeListener)(gyreTransportListener_t listener);

  /* Begins a stream to the listener. `send` says Again until it is there, so that the receiver need
   * not have accepted it yet. The endpoint is the peer's word: a plug-in checks it. */
  gyreTransportResult_t (*connect)(gyreTransportContext_t context, const unsigned char* endpoint,
                                   size_t bytes, gyreTransportStream_t* stream,
                                   gyreTransportWhy_t* why);

  /* Takes bytes, from the first part on: Ok with their number, which is not 0, or Again. What was
   * taken arrives even if closeStream follows a flush. Gyre has at most 64 parts, none empty. */
  gyreTransportResult_t (*send)(gyreTransportStream_t stream, const gyreTransportPart_t* parts,
                                size_t count, size_t* moved, gyreTransportWhy_t* why);
  /* NULL: bytes that send has taken need no more calls. Else: Ok once that is so, or Again. */
  gyreTransportResult_t (*flush)(gyreTransportStream_t stream, gyreTransportWhy_t* why);
  /* Stores bytes that have come, from the first part on: Ok with their number, which is not 0;
   * Again; or Closed. */
  gyreTransportResult_t (*receive)(gyreTransportStream_t stream, const gyreTransportPart_t* parts,
                                   size_t count, size_t* moved, gyreTransportWhy_t* why);
  void (*closeStream)(gyreTransportStream_t stream);

  /* Before a thread sleeps: what says that accept, or send (toSend is 1: also connecting and
   * flush) or receive (0), can do something again. */
  void (*waitListener)(gyreTransportListener_t listener, gyreTransportWait_t* wait);
  void (*waitStream)(gyreTransportStream_t stream, int toSend, gyreTransportWait_t* wait);

  /* NULL: nothing can be said. Called now and then while a thread waits long: PeerError if the
   * peer's process has ended, or if its host has not answered for limitMs. Else Ok. */
  gyreTransportResult_t (*check)(gyreTransportStream_t stream, int64_t limitMs,
                                 gyreTransportWhy_t* why);
} gyreTransportTable_t;

/* The plug-in's function. `version` is Gyre's GYRE_TRANSPORT_VERSION. NULL: the plug-in cannot work
 * with it, or not on this machine. */
typedef const gyreTransportTable_t* (*gyreTransportPlugin_t)(unsigned version);
#define GYRE_TRANSPORT_ENTRY "gyreTransportPlugin"
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const gyreTransportTable_t* gyreTransportPlugin(unsigned version);

#ifdef __cplusplus
}
#endif
#endif
