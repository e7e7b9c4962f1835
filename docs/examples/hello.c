/* The smallest program, as in README.md: each rank contributes a one, and all get their sum. */
#include <gyre/gyre.h>

#include <stdio.h>

int main(void) {
  gyreComm_t comm;
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.device = GYRE_DEVICE_HOST; /* the CPU; the default is the current GPU, if there is one */
  float mine = 1.0f, sum = 0.0f;
  if (gyreCommInitEnv(&comm, &config) != gyreSuccess ||
      gyreAllReduce(&mine, &sum, 1, gyreFloat32, gyreSum, comm, NULL) != gyreSuccess)
    return fprintf(stderr, "%s\n", gyreGetLastError(NULL)), 1;
  printf("%g ranks are here\n", sum);
  return gyreCommDestroy(comm) != gyreSuccess;
}
