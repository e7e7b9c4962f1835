// The fake CUDA driver of fake_cuda.h as library functions. A libgyre.so.0 that has it as its
// driver (tests/meson.build) exports these next to gyre.h, for programs with their own view of
// devices, streams and memory (tests/torch/fake_gpu). The names have the library's prefix. A call
// that the fake refuses ends the process: it is a mistake of the test.
#pragma once

#include <gyre/gyre.h>

extern "C" {

typedef struct CUevent_st* gyreFakeEvent_t;
typedef struct CUgraphExec_st* gyreFakeGraph_t;

// Once in a process, before the first communicator; not before a fork.
GYRE_API void gyreFakeStart(int devices);
// Of the calling thread, as the driver has it; 0 where none was set.
GYRE_API int gyreFakeGetDevice(void);
GYRE_API void gyreFakeSetDevice(int device);
// Not zeroed. Freed memory is overwritten where the stream gets there, and may be given again then:
// as PyTorch's own allocator does it, on the stream that was current when it was allocated.
GYRE_API void* gyreFakeAllocate(int device, size_t bytes);
GYRE_API void gyreFakeFree(void* memory, size_t bytes, gyreStream_t stream, int device);
// NULL is a device's default stream, here and below.
GYRE_API gyreStream_t gyreFakeStreamCreate(int device);
GYRE_API int gyreFakeStreamQuery(gyreStream_t stream, int device);
// Waits for all streams of the device.
GYRE_API void gyreFakeDeviceSynchronize(int device);
// Calls the function where the stream gets there; it may not call anything of this file or of
// gyre.h.
GYRE_API void gyreFakeStreamCall(gyreStream_t stream, int device, void (*function)(void*),
                                 void* user);
GYRE_API void gyreFakeStreamSynchronize(gyreStream_t stream, int device);
GYRE_API gyreFakeEvent_t gyreFakeEventCreate(int device);
GYRE_API void gyreFakeEventDestroy(gyreFakeEvent_t event);
GYRE_API void gyreFakeEventRecord(gyreFakeEvent_t event, gyreStream_t stream, int device);
GYRE_API void gyreFakeStreamWait(gyreStream_t stream, int device, gyreFakeEvent_t event);
GYRE_API int gyreFakeEventQuery(gyreFakeEvent_t event);
// What is put on the stream from now on waits until the gate is opened; once.
GYRE_API void* gyreFakeGateClose(gyreStream_t stream, int device);
GYRE_API void gyreFakeGateOpen(void* gate);
// Captures what is put on the stream; a run of it is put on a stream.
GYRE_API void gyreFakeCaptureBegin(gyreStream_t stream);
GYRE_API int gyreFakeIsCapturing(gyreStream_t stream);
GYRE_API gyreFakeGraph_t gyreFakeCaptureEnd(gyreStream_t stream);
GYRE_API void gyreFakeGraphLaunch(gyreFakeGraph_t graph, gyreStream_t stream);
GYRE_API void gyreFakeGraphDestroy(gyreFakeGraph_t graph);
// Why the machine that carries kernels out stopped; "" if it did not. Valid until the next call.
GYRE_API const char* gyreFakeFailure(void);

}  // extern "C"
