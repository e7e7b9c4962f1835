/* Sends one way over one plain socket, as one_way.c does by gyreSend: see one_way_loop.h. */
#include "bench/compare/one_way_loop.h"
#include "bench/compare/raw_sockets.h"

static void send_all(void* self, char* buffer, size_t bytes) {
  for (size_t sent = 0; sent < bytes;)
    sent += moved(send(*(const int*)self, buffer + sent, bytes - sent, MSG_NOSIGNAL), "send");
}

static void receive_all(void* self, char* buffer, size_t bytes, int soon) {
  for (size_t got = 0; got < bytes;)
    got +=
        moved(recv(*(const int*)self, buffer + got, bytes - got, soon ? MSG_DONTWAIT : 0), "recv");
}

int main(int argc, char** argv) {
  const struct OneWayPlan plan = read_one_way_plan(argc, argv, "raw_one_way");
  int fd = -1;
  const int rank = fork_with_socket(&fd);
  const struct OneWay way = {rank, &fd, send_all, receive_all};
  run_one_way(&way, &plan);
  return join_ranks();
}
