/* Sends one way over one plain socket, as one_way.c does by gyreSend: prints a line of JSON with
 * the median half of a round trip, and the bandwidth of a window of sends whose last is answered.
 *
 *     raw_one_way BYTES ROUND_TRIPS WINDOWS SENDS_OF_A_WINDOW */
#include "bench/compare/raw_sockets.h"
#include "bench/compare/timing.h"

struct RawEnd {
  int fd, rank;
  char* buffer;
  size_t bytes;
};

static void send_all(const struct RawEnd* end, size_t bytes) {
  for (size_t sent = 0; sent < bytes;)
    sent += moved(send(end->fd, end->buffer + sent, bytes - sent, MSG_NOSIGNAL), "send");
}

static void receive_all(const struct RawEnd* end, size_t bytes, int spins) {
  for (size_t got = 0; got < bytes;)
    got += moved(recv(end->fd, end->buffer + got, bytes - got, spins ? MSG_DONTWAIT : 0), "recv");
}

static double half_round_trip_us(const struct RawEnd* end, int trips) {
  double* const times = malloc((size_t)trips * sizeof *times);
  if (times == NULL) exit(2);
  for (int i = -(trips / 10 + 3); i < trips; ++i) {
    const double began = now_us();
    if (end->rank == 0) send_all(end, end->bytes);
    receive_all(end, end->bytes, 1);
    if (end->rank == 1) send_all(end, end->bytes);
    if (i >= 0) times[i] = (now_us() - began) / 2;
  }
  const double middle = median(times, trips);
  free(times);
  return middle;
}

static double window_us(const struct RawEnd* end, int sends) {
  const double began = now_us();
  for (int i = 0; i < sends; ++i) {
    if (end->rank == 0)
      send_all(end, end->bytes);
    else
      receive_all(end, end->bytes, 0);
  }
  if (end->rank == 0)
    receive_all(end, 1, 0);
  else
    send_all(end, 1);
  return now_us() - began;
}

int main(int argc, char** argv) {
  if (argc != 5) {
    fprintf(stderr, "raw_one_way BYTES ROUND_TRIPS WINDOWS SENDS_OF_A_WINDOW\n");
    return 2;
  }
  struct RawEnd end = {-1, 0, NULL, (size_t)atol(argv[1])};
  const int trips = atoi(argv[2]), windows = atoi(argv[3]), sends = atoi(argv[4]);
  end.buffer = calloc(end.bytes + 1, 1);
  double* const times = malloc((size_t)windows * sizeof *times);
  if (end.buffer == NULL || times == NULL) return 2;
  end.rank = fork_with_socket(&end.fd);
  const double latency = half_round_trip_us(&end, trips);
  (void)window_us(&end, sends);
  for (int i = 0; i < windows; ++i) times[i] = window_us(&end, sends);
  const double window = median(times, windows);
  if (end.rank == 0)
    printf("{\"bytes\": %zu, \"half_round_trip_us\": %.3f, \"megabytes_per_s\": %.2f}\n", end.bytes,
           latency, (double)end.bytes * sends / window);
  free(times);
  free(end.buffer);
  return join_processes(0);
}
