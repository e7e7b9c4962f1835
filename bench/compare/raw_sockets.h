/* Two processes on this host and one TCP connection between them: what plain sockets do, for
 * programs that measure the limit of a transport over them. */
#pragma once

#include "bench/compare/fork_ranks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static inline int must(int result, const char* call) {
  if (result >= 0) return result;
  perror(call);
  exit(2);
}

/* Reno, which is the fastest over loopback, whatever the system prefers. */
static inline int fresh_socket(void) {
  const int on = 1;
  const int fd = must(socket(AF_INET, SOCK_STREAM, 0), "socket");
  must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "TCP_NODELAY");
  (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
  return fd;
}

/* This process and another one from here on, each with its end. Returns this one's rank. */
static inline int fork_with_socket(int* end) {
  struct sockaddr_in address;
  socklen_t length = sizeof address;
  const int door = fresh_socket();
  memset(&address, 0, sizeof address);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  must(bind(door, (struct sockaddr*)&address, length), "bind");
  must(listen(door, 1), "listen");
  must(getsockname(door, (struct sockaddr*)&address, &length), "getsockname");
  const int dialed = fresh_socket();
  must(connect(dialed, (struct sockaddr*)&address, length), "connect");
  const int came = must(accept(door, NULL, NULL), "accept");
  close(door);
  const int rank = fork_ranks(2);
  close(rank == 0 ? came : dialed);
  *end = rank == 0 ? dialed : came;
  return rank;
}

/* What has moved; 0 if it would wait. Ends the process if the other one has ended. */
static inline size_t moved(ssize_t result, const char* call) {
  if (result > 0) return (size_t)result;
  if (result < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  if (result == 0) errno = ECONNRESET;
  must(-1, call);
  return 0;
}

static inline size_t send_some(int fd, const void* data, size_t bytes) {
  return moved(send(fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL), "send");
}

static inline size_t receive_some(int fd, void* data, size_t bytes) {
  return moved(recv(fd, data, bytes, MSG_DONTWAIT), "recv");
}
