/* A transport plug-in: streams over Unix sockets, between processes and threads of one host.
 *
 *     cc -std=c99 -shared -fPIC unix_transport.c $(pkg-config --cflags gyre) \
 *        -o libunix_transport.so
 *     export GYRE_TRANSPORT_PLUGIN=$PWD/libunix_transport.so GYRE_TRANSPORT=unix
 *     gyre run -n 2 ./program
 *
 * gyre/transport.h is the manual. A listener is a socket with a name in the abstract namespace,
 * which is its endpoint. */
#define _GNU_SOURCE 1

#include <gyre/transport.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct gyreTransportContext {
  unsigned listeners; /* that it has made */
};
struct gyreTransportListener {
  int socket;
};
struct gyreTransportStream {
  int socket;
};

/* The reason, and errno's text if there is one. */
static gyreTransportResult_t fail(gyreTransportResult_t result, const char* what, int number,
                                  gyreTransportWhy_t* why) {
  snprintf(why->text, sizeof why->text, "%s%s%s", what, number != 0 ? ": " : "",
           number != 0 ? strerror(number) : "");
  return result;
}

/* Of a call on the way to the peer: our fault only where we lack something. */
static gyreTransportResult_t failed_call(const char* call, int number, gyreTransportWhy_t* why) {
  const int own = number == EMFILE || number == ENFILE || number == ENOMEM || number == ENOBUFS;
  return fail(own ? gyreTransportOwnError : gyreTransportPeerError, call, number, why);
}

static gyreTransportResult_t unix_open(const gyreTransportSelf_t* self,
                                       gyreTransportContext_t* context, gyreTransportWhy_t* why) {
  (void)self;
  *context = calloc(1, sizeof **context);
  return *context != NULL ? gyreTransportOk : fail(gyreTransportOwnError, "calloc", errno, why);
}

static void unix_close(gyreTransportContext_t context) { free(context); }

static gyreTransportResult_t unix_reach(gyreTransportContext_t context,
                                        const gyreTransportPeer_t* peer, gyreTransportWhy_t* why) {
  (void)context;
  if (!peer->sameHost) return fail(gyreTransportPeerError, "another host", 0, why);
  if (!peer->sameNetwork) return fail(gyreTransportPeerError, "another network namespace", 0, why);
  return fail(gyreTransportOk, "same host", 0, why);
}

/* A name that begins with a zero byte is in the abstract namespace, and goes with its socket. */
static socklen_t name_of(struct sockaddr_un* address, const unsigned char* name, size_t bytes) {
  memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  memcpy(address->sun_path + 1, name, bytes);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + bytes);
}

static int make_socket(void) {
  return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static gyreTransportResult_t unix_listen(gyreTransportContext_t context,
                                         const gyreTransportPeer_t* peer,
                                         gyreTransportListener_t* listener, unsigned char* endpoint,
                                         size_t* bytes, gyreTransportWhy_t* why) {
  struct sockaddr_un address;
  char name[64];
  (void)peer;
  *bytes = (size_t)snprintf(name, sizeof name, "gyre-unix-%d-%p-%u", (int)getpid(), (void*)context,
                            context->listeners++);
  memcpy(endpoint, name, *bytes);
  *listener = calloc(1, sizeof **listener);
  if (*listener == NULL) return fail(gyreTransportOwnError, "calloc", errno, why);
  (*listener)->socket = make_socket();
  if ((*listener)->socket >= 0 &&
      bind((*listener)->socket, (struct sockaddr*)&address, name_of(&address, endpoint, *bytes)) ==
          0 &&
      listen((*listener)->socket, 16) == 0)
    return gyreTransportOk;
  fail(gyreTransportOwnError, "listen at a Unix socket", errno, why);
  if ((*listener)->socket >= 0) close((*listener)->socket);
  free(*listener);
  return gyreTransportOwnError;
}

/* It owns the socket from here, also if it fails. */
static gyreTransportResult_t make_stream(int socket, gyreTransportStream_t* stream,
                                         gyreTransportWhy_t* why) {
  *stream = calloc(1, sizeof **stream);
  if (*stream == NULL) {
    close(socket);
    return fail(gyreTransportOwnError, "calloc", ENOMEM, why);
  }
  (*stream)->socket = socket;
  return gyreTransportOk;
}

static gyreTransportResult_t unix_accept(gyreTransportListener_t listener,
                                         gyreTransportStream_t* stream, gyreTransportWhy_t* why) {
  const int socket = accept4(listener->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (socket >= 0) return make_stream(socket, stream, why);
  if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return gyreTransportAgain;
  return fail(gyreTransportOwnError, "accept", errno, why);
}

static void unix_close_listener(gyreTransportListener_t listener) {
  close(listener->socket);
  free(listener);
}

/* A Unix socket is connected at once, or not at all. */
static gyreTransportResult_t unix_connect(gyreTransportContext_t context,
                                          const unsigned char* endpoint, size_t bytes,
                                          gyreTransportStream_t* stream, gyreTransportWhy_t* why) {
  struct sockaddr_un address;
  int socket, number;
  (void)context;
  if (bytes > sizeof address.sun_path - 1)
    return fail(gyreTransportPeerError, "the endpoint is no name of a Unix socket", 0, why);
  socket = make_socket();
  if (socket < 0) return fail(gyreTransportOwnError, "socket", errno, why);
  if (connect(socket, (struct sockaddr*)&address, name_of(&address, endpoint, bytes)) == 0)
    return make_stream(socket, stream, why);
  number = errno;
  close(socket);
  return failed_call("connect to a Unix socket", number, why);
}

#define MAX_PARTS 64

static struct msghdr message_of(const gyreTransportPart_t* parts, size_t count,
                                struct iovec* vectors) {
  struct msghdr message;
  size_t i;
  memset(&message, 0, sizeof message);
  for (i = 0; i < count && i < MAX_PARTS; ++i) {
    vectors[i].iov_base = parts[i].data;
    vectors[i].iov_len = parts[i].bytes;
  }
  message.msg_iov = vectors;
  message.msg_iovlen = i;
  return message;
}

static gyreTransportResult_t unix_send(gyreTransportStream_t stream,
                                       const gyreTransportPart_t* parts, size_t count,
                                       size_t* moved, gyreTransportWhy_t* why) {
  struct iovec vectors[MAX_PARTS];
  const struct msghdr message = message_of(parts, count, vectors);
  const ssize_t sent = sendmsg(stream->socket, &message, MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return gyreTransportAgain;
  if (sent < 0) return failed_call("send", errno, why);
  *moved = (size_t)sent;
  return gyreTransportOk;
}

static gyreTransportResult_t unix_receive(gyreTransportStream_t stream,
                                          const gyreTransportPart_t* parts, size_t count,
                                          size_t* moved, gyreTransportWhy_t* why) {
  struct iovec vectors[MAX_PARTS];
  struct msghdr message = message_of(parts, count, vectors);
  const ssize_t got = recvmsg(stream->socket, &message, 0);
  if (got == 0) return gyreTransportClosed;
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return gyreTransportAgain;
  if (got < 0) return failed_call("receive", errno, why);
  *moved = (size_t)got;
  return gyreTransportOk;
}

static void unix_close_stream(gyreTransportStream_t stream) {
  close(stream->socket);
  free(stream);
}

static void unix_wait_listener(gyreTransportListener_t listener, gyreTransportWait_t* wait) {
  wait->descriptor = listener->socket;
  wait->events = POLLIN;
}

static void unix_wait_stream(gyreTransportStream_t stream, int to_send, gyreTransportWait_t* wait) {
  wait->descriptor = stream->socket;
  wait->events = to_send ? POLLOUT : POLLIN;
}

/* A process that ends closes its sockets, so that an end is seen by a poll. Bytes that came before
 * it may still be here: then receive says Closed behind them. */
static gyreTransportResult_t unix_check(gyreTransportStream_t stream, int64_t limit_ms,
                                        gyreTransportWhy_t* why) {
  struct pollfd look = {stream->socket, POLLIN, 0};
  char byte;
  (void)limit_ms; /* there is no network between the two */
  if (poll(&look, 1, 0) < 0 || (look.revents & (POLLHUP | POLLERR)) == 0) return gyreTransportOk;
  if (recv(stream->socket, &byte, 1, MSG_PEEK) > 0) return gyreTransportOk;
  return fail(gyreTransportPeerError, "the peer has closed its socket", 0, why);
}

const gyreTransportTable_t* gyreTransportPlugin(unsigned version) {
  static gyreTransportTable_t table;
  if (version != GYRE_TRANSPORT_VERSION) return NULL;
  table.size = sizeof table;
  table.version = GYRE_TRANSPORT_VERSION;
  table.name = "unix";
  table.reaches = "ranks of one host, by Unix sockets";
  table.open = unix_open;
  table.close = unix_close;
  table.reach = unix_reach;
  table.listen = unix_listen;
  table.accept = unix_accept;
  table.closeListener = unix_close_listener;
  table.connect = unix_connect;
  table.send = unix_send;
  table.receive = unix_receive;
  table.closeStream = unix_close_stream;
  table.waitListener = unix_wait_listener;
  table.waitStream = unix_wait_stream;
  table.check = unix_check;
  return &table;
}
