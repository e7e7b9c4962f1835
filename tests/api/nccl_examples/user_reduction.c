/* A user-defined reduction: each rank's input times a scalar of its own, then the sum. The library
 * allocates the memory, and the program registers it. */
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#define RANKS 4
#define COUNT 5000

static void check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  fprintf(stderr, "%s: %s (%s)\n", what, ncclGetErrorString(result), ncclGetLastError(NULL));
  exit(1);
}

int main(void) {
  ncclComm_t comms[RANKS];
  ncclRedOp_t ops[RANKS];
  double* data[RANKS];
  void* named[RANKS];
  int version = 0, device, i, k, wrong = 0;
  check(ncclGetVersion(&version), "ncclGetVersion");
  check(ncclCommInitAll(comms, RANKS, NULL), "ncclCommInitAll");
  for (i = 0; i < RANKS; ++i) {
    double weight = 0.5 * (i + 1);
    check(ncclMemAlloc((void**)&data[i], COUNT * sizeof(double)), "ncclMemAlloc");
    check(ncclCommRegister(comms[i], data[i], COUNT * sizeof(double), &named[i]),
          "ncclCommRegister");
    for (k = 0; k < COUNT; ++k) data[i][k] = k;
    check(
        ncclRedOpCreatePreMulSum(&ops[i], &weight, ncclFloat64, ncclScalarHostImmediate, comms[i]),
        "ncclRedOpCreatePreMulSum");
    check(ncclCommCuDevice(comms[i], &device), "ncclCommCuDevice");
  }
  check(ncclGroupStart(), "ncclGroupStart");
  for (i = 0; i < RANKS; ++i)
    check(ncclAllReduce(data[i], data[i], COUNT, ncclFloat64, ops[i], comms[i], NULL),
          "ncclAllReduce");
  check(ncclGroupEnd(), "ncclGroupEnd");
  for (i = 0; i < RANKS; ++i) {
    for (k = 0; k < COUNT; ++k) wrong += data[i][k] != 5.0 * k;
    check(ncclRedOpDestroy(ops[i], comms[i]), "ncclRedOpDestroy");
    check(ncclCommDeregister(comms[i], named[i]), "ncclCommDeregister");
    check(ncclCommDestroy(comms[i]), "ncclCommDestroy");
    check(ncclMemFree(data[i]), "ncclMemFree");
  }
  printf(wrong == 0 ? "right\n" : "wrong\n");
  return wrong != 0 || version <= 0;
}
