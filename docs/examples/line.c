/* Fits a line to points by gradient descent, in strict C99: each rank has its own points, and
 * descends along the mean of all ranks' gradients.   gyre run -n 2 ./line */
#include <gyre/gradsync.h>

#include <stdio.h>

static int failed(const char* text) {
  fprintf(stderr, "%s\n", text);
  return 1;
}

int main(void) {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  gyreComm_t comm;
  gyreGrad_t grad;
  float slope[1] = {0}, offset[1] = {0}, slope_gradient[1], offset_gradient[1];
  const gyreGradTensor_t tensors[2] = {{"slope", 1, gyreFloat, slope, slope_gradient},
                                       {"offset", 1, gyreFloat, offset, offset_gradient}};
  int rank, step, i;
  config.device = GYRE_DEVICE_HOST; /* host memory, whether there is a GPU or not */
  if (gyreCommInitEnv(&comm, &config) != gyreSuccess) return failed(gyreGetLastError(NULL));
  gyreCommUserRank(comm, &rank);
  if (gyreGradCreate(&grad, comm, tensors, 2, NULL) != gyreSuccess)
    return failed(gyreGradGetLastError());
  for (step = 0; step < 400; ++step) {
    slope_gradient[0] = offset_gradient[0] = 0;
    for (i = 0; i < 8; ++i) {
      const float x = (float)(i + 8 * rank) / 8;
      const float error = slope[0] * x + offset[0] - (3 * x + 1);
      slope_gradient[0] += error * x / 8;
      offset_gradient[0] += error / 8;
    }
    gyreGradReady(grad, 1, NULL);
    gyreGradReady(grad, 0, NULL);
    if (gyreGradWait(grad) != gyreSuccess) return failed(gyreGradGetLastError());
    slope[0] -= 0.3f * slope_gradient[0];
    offset[0] -= 0.3f * offset_gradient[0];
  }
  if (gyreGradCompare(grad) != gyreSuccess) return failed(gyreGradGetLastError());
  if (rank == 0) printf("y = %.2f x + %.2f\n", (double)slope[0], (double)offset[0]);
  if (gyreGradDestroy(grad) != gyreSuccess) return failed(gyreGradGetLastError());
  return gyreCommDestroy(comm) != gyreSuccess;
}
