/* Preloaded into a program: its TCP sockets give and take one byte a call. Short calls are as they
 * were: a kernel gives whole what a look before has shown, and takes the first bytes whole. At the
 * end it says how many calls were shortened. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static int is_tcp(int descriptor) {
  int type = 0, domain = 0;
  socklen_t length = sizeof type;
  if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &length) != 0) return 0;
  length = sizeof domain;
  if (getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0) return 0;
  return type == SOCK_STREAM && (domain == AF_INET || domain == AF_INET6);
}

enum { whole_bytes = 64 };

static atomic_ulong shortened;

/* So many of the bytes that a call names. */
static size_t allowed(int descriptor, size_t bytes) {
  if (bytes <= whole_bytes || !is_tcp(descriptor)) return bytes;
  atomic_fetch_add(&shortened, 1);
  return 1;
}

__attribute__((destructor)) static void say_how_many(void) {
  fprintf(stderr, "one_byte_io: %lu calls were shortened\n", atomic_load(&shortened));
}

#pragma GCC visibility push(default)

/* The real function of that name, which a later library has. */
#define REAL(name)               \
  static __typeof__(&name) real; \
  if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, #name)

ssize_t recv(int descriptor, void* bytes, size_t size, int flags) {
  REAL(recv);
  return real(descriptor, bytes, flags & MSG_PEEK ? size : allowed(descriptor, size), flags);
}

ssize_t send(int descriptor, const void* bytes, size_t size, int flags) {
  REAL(send);
  return real(descriptor, bytes, allowed(descriptor, size), flags);
}

ssize_t read(int descriptor, void* bytes, size_t size) {
  REAL(read);
  return real(descriptor, bytes, allowed(descriptor, size));
}

ssize_t write(int descriptor, const void* bytes, size_t size) {
  REAL(write);
  return real(descriptor, bytes, allowed(descriptor, size));
}

static size_t size_of(const struct iovec* parts, size_t count) {
  size_t size = 0, i;
  for (i = 0; i < count; ++i) size += parts[i].iov_len;
  return size;
}

/* The first byte of the parts, or nothing of them. */
static struct iovec first_byte(const struct iovec* parts, size_t count) {
  struct iovec one = {NULL, 0};
  size_t i;
  for (i = 0; i < count && one.iov_len == 0; ++i)
    if (parts[i].iov_len > 0) one = (struct iovec){parts[i].iov_base, 1};
  return one;
}

ssize_t readv(int descriptor, const struct iovec* parts, int count) {
  struct iovec one = first_byte(parts, (size_t)count);
  const size_t size = size_of(parts, (size_t)count);
  REAL(readv);
  if (allowed(descriptor, size) == size) return real(descriptor, parts, count);
  return real(descriptor, &one, 1);
}

ssize_t writev(int descriptor, const struct iovec* parts, int count) {
  struct iovec one = first_byte(parts, (size_t)count);
  const size_t size = size_of(parts, (size_t)count);
  REAL(writev);
  if (allowed(descriptor, size) == size) return real(descriptor, parts, count);
  return real(descriptor, &one, 1);
}

ssize_t recvmsg(int descriptor, struct msghdr* message, int flags) {
  struct msghdr less;
  struct iovec one;
  ssize_t got;
  const size_t size = size_of(message->msg_iov, message->msg_iovlen);
  REAL(recvmsg);
  if (allowed(descriptor, size) == size) return real(descriptor, message, flags);
  one = first_byte(message->msg_iov, message->msg_iovlen);
  less = *message;
  less.msg_iov = &one;
  less.msg_iovlen = 1;
  got = real(descriptor, &less, flags);
  message->msg_namelen = less.msg_namelen;
  message->msg_controllen = less.msg_controllen;
  message->msg_flags = less.msg_flags;
  return got;
}

ssize_t sendmsg(int descriptor, const struct msghdr* message, int flags) {
  struct msghdr less;
  struct iovec one;
  const size_t size = size_of(message->msg_iov, message->msg_iovlen);
  REAL(sendmsg);
  if (allowed(descriptor, size) == size) return real(descriptor, message, flags);
  one = first_byte(message->msg_iov, message->msg_iovlen);
  less = *message;
  less.msg_iov = &one;
  less.msg_iovlen = 1;
  return real(descriptor, &less, flags);
}
