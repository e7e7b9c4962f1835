/* A rank that sends a text, over and over, to all others: by broadcasts, large and small, and by
 * sends around the ring. Argument: the text. For tests that look at what is on the wire. */
#include <gyre/gyre.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(gyreResult_t result, gyreComm_t comm) {
  if (result == gyreSuccess) return 0;
  fprintf(stderr, "error %d %s\n", (int)result, gyreGetLastError(comm));
  return 1;
}

static int holds(const char* data, size_t bytes, const char* text) {
  const size_t length = strlen(text);
  for (size_t i = 0; i < bytes; ++i)
    if (data[i] != text[i % length]) return 0;
  return 1;
}

int main(int argc, char** argv) {
  static const size_t sizes[] = {64, 4096, 300000, 1 << 20};
  enum { largest = 1 << 20 };
  gyreComm_t comm = NULL;
  int rank = 0, size = 0;
  char *data = calloc(largest, 1), *got = calloc(largest, 1);
  if (argc != 2 || argv[1][0] == 0 || data == NULL || got == NULL) return 2;
  if (failed(gyreCommInitEnv(&comm, NULL), NULL)) return 3;
  if (failed(gyreCommUserRank(comm, &rank), comm) || failed(gyreCommCount(comm, &size), comm))
    return 3;
  for (size_t i = 0; i < largest; ++i) data[i] = argv[1][i % strlen(argv[1])];
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    const size_t bytes = sizes[i];
    if (failed(gyreBroadcast(data, got, bytes, gyreInt8, 0, comm, NULL), comm)) return 3;
    if (!holds(got, bytes, argv[1])) return 1;
    memset(got, 0, bytes);
    if (failed(gyreGroupStart(), comm) ||
        failed(gyreSend(data, bytes, gyreInt8, (rank + 1) % size, comm, NULL), comm) ||
        failed(gyreRecv(got, bytes, gyreInt8, (rank + size - 1) % size, comm, NULL), comm) ||
        failed(gyreGroupEnd(), comm))
      return 3;
    if (!holds(got, bytes, argv[1])) return 1;
  }
  if (failed(gyreCommDestroy(comm), NULL)) return 3;
  free(data);
  free(got);
  return 0;
}
