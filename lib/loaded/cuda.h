// The functions of the CUDA driver that Gyre calls, as a table. `load_cuda` fills it by dlopen; a
// fake in the tests fills it itself. Neither the CUDA runtime nor CUDA's headers are used: the
// types, values and signatures below are those of cuda.h 13.0 (CUDA Driver API,
// docs.nvidia.com/cuda). Members are named by what the functions do; the driver's own names stand
// beside them.
#pragma once

#include "lib/base/status.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace gyre::loaded {

using CuResult = int;  // CUresult
using CuDevice = int;  // CUdevice: its number in this process
using CuDevicePointer = unsigned long long;
struct CuContextBody;
struct CuStreamBody;
struct CuEventBody;
struct CuModuleBody;
struct CuFunctionBody;
struct CuGraphBody;
struct CuGraphRunBody;
struct CuGraphNodeBody;
struct CuUserObjectBody;
using CuContext = CuContextBody*;
using CuStream = CuStreamBody*;  // a cudaStream_t as well; null: the default stream
using CuEvent = CuEventBody*;
using CuModule = CuModuleBody*;
using CuFunction = CuFunctionBody*;
using CuGraph = CuGraphBody*;
using CuGraphRun = CuGraphRunBody*;  // CUgraphExec: a graph made ready to launch
using CuGraphNode = CuGraphNodeBody*;
using CuUserObject = CuUserObjectBody*;  // what graphs keep alive
struct CuUuid {
  unsigned char bytes[16];
};
struct CuIpcHandle {  // CUipcMemHandle: names memory of one process in another
  unsigned char bytes[64];
};
using CuMemory = unsigned long long;  // CUmemGenericAllocationHandle: physical memory
struct CuMemoryPlace {                // CUmemLocation
  int kind = 1;                       // CU_MEM_LOCATION_TYPE_DEVICE
  int device = 0;                     // its number in this process
};
struct CuMemoryKind {  // CUmemAllocationProp
  int kind = 1;        // CU_MEM_ALLOCATION_TYPE_PINNED
  int handles = 0;     // by which other processes get it
  CuMemoryPlace place;
  void* of_windows = nullptr;
  unsigned char compression = 0, for_nics = 0;
  unsigned short usage = 0;
  unsigned char reserved[4] = {};
};
static_assert(sizeof(CuMemoryKind) == 32);
struct CuMemoryAccess {  // CUmemAccessDesc
  CuMemoryPlace place;   // who gets it
  int flags = 3;         // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};
static_assert(sizeof(CuMemoryAccess) == 12);
struct alignas(8) CuLaunchAttribute {  // CUlaunchAttribute, whose value is a union of 64 bytes
  int id = 0;
  int unused = 0;
  int value = 0;
  unsigned char more[60] = {};
};
static_assert(sizeof(CuLaunchAttribute) == 72);
struct CuLaunchConfig {  // CUlaunchConfig
  unsigned grid_x = 1, grid_y = 1, grid_z = 1;
  unsigned block_x = 1, block_y = 1, block_z = 1;
  unsigned shared_bytes = 0;
  CuStream stream = nullptr;
  const CuLaunchAttribute* attributes = nullptr;
  unsigned count = 0;  // of the attributes
};
static_assert(sizeof(CuLaunchConfig) == 56);

namespace cu {

inline constexpr CuResult success = 0;
inline constexpr CuResult invalid_value = 1;
inline constexpr CuResult out_of_memory = 2;
inline constexpr CuResult no_device = 100;
inline constexpr CuResult invalid_device = 101;
inline constexpr CuResult invalid_image = 200;
inline constexpr CuResult invalid_context = 201;
inline constexpr CuResult map_failed = 205;
inline constexpr CuResult peer_access_unsupported = 217;
inline constexpr CuResult invalid_handle = 400;
inline constexpr CuResult not_found = 500;
inline constexpr CuResult not_ready = 600;
inline constexpr CuResult launch_out_of_resources = 701;
inline constexpr CuResult peer_access_already_enabled = 704;
inline constexpr CuResult capture_unsupported = 900, capture_spoiled = 901;
inline constexpr CuResult capture_implicit = 906;  // of the default stream

// CUdevice_attribute
inline constexpr int max_threads_per_block = 1;
inline constexpr int multiprocessor_count = 16;
inline constexpr int l2_cache_bytes = 38;
inline constexpr int compute_capability_major = 75;
inline constexpr int compute_capability_minor = 76;
inline constexpr int virtual_memory = 102;  // CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_
inline constexpr int file_descriptor_handles = 103;  // ..._SUPPORTED, HANDLE_TYPE_POSIX_FILE_...
// ..._GPU_DIRECT_RDMA_SUPPORTED, ..._GPU_DIRECT_RDMA_WRITES_ORDERING, ..._DMA_BUF_SUPPORTED
inline constexpr int nics_reach_memory = 116, nic_writes_ordering = 118, exports_dmabuf = 124;
inline constexpr int sync_domain_count = 126;  // of CUDA 12.0: ..._MEM_SYNC_DOMAIN_COUNT
inline constexpr int mps_enabled = 133;        // of CUDA 12.3 and later
// CUGPUDirectRDMAWritesOrdering: from here on the device itself finds what NICs have written.
inline constexpr int ordered_for_owner = 100;
// CUpointer_attribute
inline constexpr int pointer_memory_type = 2;
inline constexpr int pointer_buffer_id = 7;
inline constexpr int pointer_is_managed = 8;
inline constexpr int pointer_device_ordinal = 9;
inline constexpr int pointer_is_legacy = 10;  // ..._IS_LEGACY_CUDA_IPC_CAPABLE: by cuMemAlloc
inline constexpr int pointer_range_start = 11;
inline constexpr int pointer_range_size = 12;
inline constexpr int pointer_pool = 17;  // ..._MEMPOOL_HANDLE: of cuMemAllocAsync
// CUmemorytype
inline constexpr unsigned memory_host = 1;
inline constexpr unsigned memory_device = 2;
// CUfunction_attribute
inline constexpr int function_max_threads = 0;
inline constexpr unsigned stream_non_blocking = 1;
// CU_STREAM_LEGACY, which null means as well, and CU_STREAM_PER_THREAD, another one in each thread.
inline const CuStream default_stream = reinterpret_cast<CuStream>(std::uintptr_t{1});
inline const CuStream thread_stream = reinterpret_cast<CuStream>(std::uintptr_t{2});
inline constexpr unsigned event_disable_timing = 2;
inline constexpr unsigned ipc_lazy_peer_access = 1;  // the only flags that there are
inline constexpr int handle_file_descriptor = 1;     // CUmemAllocationHandleType
inline constexpr int granularity_recommended = 1;    // CUmemAllocationGranularity_flags
inline constexpr int range_dmabuf = 1;               // CUmemRangeHandleType
inline constexpr unsigned host_alloc_portable = 1, host_alloc_device_map = 2;
// CUstreamCaptureStatus, CUstreamCaptureMode
inline constexpr int capture_none = 0, capture_active = 1, capture_invalidated = 2;
inline constexpr int capture_global = 0;
inline constexpr int capture_thread_local = 1;
inline constexpr int capture_relaxed = 2;
inline constexpr unsigned no_destructor_sync = 1;  // the only kind of user objects that there is
inline constexpr unsigned graph_takes_reference = 1;
// CUlaunchAttributeID; CUlaunchMemSyncDomain
inline constexpr int launch_priority = 8, launch_sync_domain = 10;
inline constexpr int remote_domain = 1;

}  // namespace cu

// member, the driver's name, the CUDA version whose form of it is meant (as cuGetProcAddress
// counts: 1000 * major + 10 * minor), parameters
#define GYRE_CUDA_FUNCTIONS(X)                                                                    \
  X(driver_version, "cuDriverGetVersion", 2020, (int* version))                                   \
  X(init, "cuInit", 2000, (unsigned flags))                                                       \
  X(error_name, "cuGetErrorName", 6000, (CuResult error, const char** text))                      \
  X(error_string, "cuGetErrorString", 6000, (CuResult error, const char** text))                  \
  X(device_count, "cuDeviceGetCount", 2000, (int* count))                                         \
  X(device_get, "cuDeviceGet", 2000, (CuDevice * device, int ordinal))                            \
  X(device_name, "cuDeviceGetName", 2000, (char* name, int bytes, CuDevice device))               \
  X(device_attribute, "cuDeviceGetAttribute", 2000, (int* value, int which, CuDevice device))     \
  X(device_uuid, "cuDeviceGetUuid", 11040, (CuUuid * uuid, CuDevice device))                      \
  X(device_pci_bus_id, "cuDeviceGetPCIBusId", 4010, (char* id, int bytes, CuDevice device))       \
  X(device_can_access_peer, "cuDeviceCanAccessPeer", 4000,                                        \
    (int* can, CuDevice device, CuDevice peer))                                                   \
  X(primary_retain, "cuDevicePrimaryCtxRetain", 7000, (CuContext * made, CuDevice device))        \
  X(primary_release, "cuDevicePrimaryCtxRelease", 11000, (CuDevice device))                       \
  X(current, "cuCtxGetCurrent", 4000, (CuContext * now))                                          \
  X(set_current, "cuCtxSetCurrent", 4000, (CuContext now))                                        \
  X(current_device, "cuCtxGetDevice", 2000, (CuDevice * device))                                  \
  X(enable_peer_access, "cuCtxEnablePeerAccess", 4000, (CuContext peer, unsigned flags))          \
  X(allocate, "cuMemAlloc", 3020, (CuDevicePointer * memory, std::size_t bytes))                  \
  X(free, "cuMemFree", 3020, (CuDevicePointer memory))                                            \
  X(allocate_host, "cuMemHostAlloc", 2020, (void** memory, std::size_t bytes, unsigned flags))    \
  X(free_host, "cuMemFreeHost", 2000, (void* memory))                                             \
  X(host_device_pointer, "cuMemHostGetDevicePointer", 3020,                                       \
    (CuDevicePointer * seen, void* memory, unsigned flags))                                       \
  X(ipc_export, "cuIpcGetMemHandle", 4010, (CuIpcHandle * handle, CuDevicePointer memory))        \
  X(ipc_import, "cuIpcOpenMemHandle", 11000,                                                      \
    (CuDevicePointer * memory, CuIpcHandle handle, unsigned flags))                               \
  X(ipc_close, "cuIpcCloseMemHandle", 4010, (CuDevicePointer memory))                             \
  X(memory_granularity, "cuMemGetAllocationGranularity", 10020,                                   \
    (std::size_t * bytes, const CuMemoryKind* kind, int option))                                  \
  X(memory_create, "cuMemCreate", 10020,                                                          \
    (CuMemory * memory, std::size_t bytes, const CuMemoryKind* kind, unsigned long long flags))   \
  X(memory_release, "cuMemRelease", 10020, (CuMemory memory))                                     \
  X(memory_export, "cuMemExportToShareableHandle", 10020,                                         \
    (void* handle, CuMemory memory, int handle_type, unsigned long long flags))                   \
  X(memory_import, "cuMemImportFromShareableHandle", 10020,                                       \
    (CuMemory * memory, void* handle, int handle_type))                                           \
  X(addresses_reserve, "cuMemAddressReserve", 10020,                                              \
    (CuDevicePointer * begin, std::size_t bytes, std::size_t alignment, CuDevicePointer wanted,   \
     unsigned long long flags))                                                                   \
  X(addresses_free, "cuMemAddressFree", 10020, (CuDevicePointer begin, std::size_t bytes))        \
  X(memory_map, "cuMemMap", 10020,                                                                \
    (CuDevicePointer at, std::size_t bytes, std::size_t offset, CuMemory memory,                  \
     unsigned long long flags))                                                                   \
  X(memory_unmap, "cuMemUnmap", 10020, (CuDevicePointer at, std::size_t bytes))                   \
  X(memory_set_access, "cuMemSetAccess", 10020,                                                   \
    (CuDevicePointer at, std::size_t bytes, const CuMemoryAccess* access, std::size_t count))     \
  X(copy_to_device, "cuMemcpyHtoDAsync", 3020,                                                    \
    (CuDevicePointer to, const void* from, std::size_t bytes, CuStream stream))                   \
  X(copy_to_host, "cuMemcpyDtoHAsync", 3020,                                                      \
    (void* to, CuDevicePointer from, std::size_t bytes, CuStream stream))                         \
  X(pointer_attributes, "cuPointerGetAttributes", 7000,                                           \
    (unsigned count, int* which, void** values, CuDevicePointer pointer))                         \
  X(stream_create, "cuStreamCreate", 2000, (CuStream * stream, unsigned flags))                   \
  X(stream_destroy, "cuStreamDestroy", 4000, (CuStream stream))                                   \
  X(stream_synchronize, "cuStreamSynchronize", 2000, (CuStream stream))                           \
  X(stream_owner, "cuStreamGetCtx", 9020, (CuStream stream, CuContext * owner))                   \
  X(stream_flags, "cuStreamGetFlags", 7000, (CuStream stream, unsigned* flags))                   \
  X(stream_wait_event, "cuStreamWaitEvent", 3020,                                                 \
    (CuStream stream, CuEvent event, unsigned flags))                                             \
  X(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", 10010, (int* mode))               \
  X(event_create, "cuEventCreate", 2000, (CuEvent * event, unsigned flags))                       \
  X(event_destroy, "cuEventDestroy", 4000, (CuEvent event))                                       \
  X(event_record, "cuEventRecord", 2000, (CuEvent event, CuStream stream))                        \
  X(event_query, "cuEventQuery", 2000, (CuEvent event))                                           \
  X(module_load, "cuModuleLoadData", 2000, (CuModule * module, const void* image))                \
  X(module_unload, "cuModuleUnload", 2000, (CuModule module))                                     \
  X(module_function, "cuModuleGetFunction", 2000,                                                 \
    (CuFunction * function, CuModule module, const char* name))                                   \
  X(function_attribute, "cuFuncGetAttribute", 2020, (int* value, int which, CuFunction function)) \
  X(blocks_per_multiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor", 6050,               \
    (int* blocks, CuFunction function, int threads, std::size_t shared_bytes))                    \
  X(launch, "cuLaunchKernel", 4000,                                                               \
    (CuFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,    \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, CuStream stream,                  \
     void** parameters, void** extra))                                                            \
  X(launch_host, "cuLaunchHostFunc", 10000,                                                       \
    (CuStream stream, void (*function)(void*), void* body))                                       \
  X(memory_info, "cuMemGetInfo", 3020, (std::size_t * free, std::size_t * total))                 \
  X(copy_on_device, "cuMemcpyDtoDAsync", 3020,                                                    \
    (CuDevicePointer to, CuDevicePointer from, std::size_t bytes, CuStream stream))               \
  X(stream_begin_capture, "cuStreamBeginCapture", 10010, (CuStream stream, int mode))             \
  X(stream_end_capture, "cuStreamEndCapture", 10000, (CuStream stream, CuGraph * graph))          \
  X(graph_instantiate, "cuGraphInstantiateWithFlags", 11040,                                      \
    (CuGraphRun * run, CuGraph graph, unsigned long long flags))                                  \
  X(graph_launch, "cuGraphLaunch", 10000, (CuGraphRun run, CuStream stream))                      \
  X(graph_destroy, "cuGraphDestroy", 10000, (CuGraph graph))                                      \
  X(graph_run_destroy, "cuGraphExecDestroy", 10000, (CuGraphRun run))                             \
  X(stream_capture_info, "cuStreamGetCaptureInfo", 11030,                                         \
    (CuStream stream, int* status, std::uint64_t* id, CuGraph* graph,                             \
     const CuGraphNode** dependencies, std::size_t* count))                                       \
  X(user_object_create, "cuUserObjectCreate", 11030,                                              \
    (CuUserObject * object, void* body, void (*destroy)(void*), unsigned references,              \
     unsigned flags))                                                                             \
  X(user_object_release, "cuUserObjectRelease", 11030, (CuUserObject object, unsigned count))     \
  X(graph_retain, "cuGraphRetainUserObject", 11030,                                               \
    (CuGraph graph, CuUserObject object, unsigned count, unsigned flags))

// The same of what older drivers may lack: null then. cuLaunchKernelEx is of 11.8, but its memory
// synchronisation domains are of 12.0.
#define GYRE_CUDA_OPTIONAL_FUNCTIONS(X)                                                   \
  X(launch_with, "cuLaunchKernelEx", 12000,                                               \
    (const CuLaunchConfig* config, CuFunction function, void** parameters, void** extra)) \
  X(priority_range, "cuCtxGetStreamPriorityRange", 5050, (int* least, int* greatest))     \
  X(range_handle, "cuMemGetHandleForAddressRange", 11070,                                 \
    (void* handle, CuDevicePointer begin, std::size_t bytes, int handle_type,             \
     unsigned long long flags))

class CudaRest;

struct CudaDriver {
#define GYRE_CUDA_MEMBER(member, symbol, version, parameters) \
  CuResult(*member) parameters = nullptr;
  GYRE_CUDA_FUNCTIONS(GYRE_CUDA_MEMBER)
  GYRE_CUDA_OPTIONAL_FUNCTIONS(GYRE_CUDA_MEMBER)
#undef GYRE_CUDA_MEMBER

  // Who keeps count of this process's kernels (cuda_rest.h); null: nobody does.
  std::shared_ptr<CudaRest> rest = nullptr;

  // Success, or what `call` came to: by the driver's name for it and its words.
  Status check(CuResult result, std::string_view call) const;
};

// By the driver's names and versions as above; null where there is none.
using FindCuda = std::function<void*(const char* symbol, int version)>;
// Fills the table in. The error names what is missing that every driver should have, and what CUDA
// the driver is of.
Status find_cuda(CudaDriver& driver, const FindCuda& find);

enum class CudaPresence {
  wanted,          // loads the driver; that takes it a while
  only_if_loaded,  // by somebody else in this process, who uses CUDA then
};

// Filled in and initialised. The library stays loaded for good, as CUDA's own users keep it. The
// error says what is missing.
Result<std::unique_ptr<const CudaDriver>> load_cuda(CudaPresence presence);

// "13.0", of 13000.
std::string shown_as_cuda(int version);
// The newest CUDA that the driver is of: "CUDA 13.0". It may lack functions, and `init` as well.
std::string cuda_version_shown(const CudaDriver& driver);

// As nvidia-smi writes it: "GPU-01234567-89ab-...", or "MIG-..." for an instance of a GPU.
std::string shown(const CuUuid& uuid, bool is_instance = false);
// The same of a device; empty if the driver does not say. That it is an instance stands in its
// name.
std::string find_uuid(const CudaDriver& driver, CuDevice device);

// A pointer as the driver knows it.
struct CudaPointer {
  bool known = false;      // false: memory that CUDA did not allocate, or that it freed
  bool on_device = false;  // or pinned host memory
  bool managed = false;
  // By cuMemAlloc: what cuCtxEnablePeerAccess opens to other devices, and CUDA IPC to other
  // processes.
  bool legacy = false;
  bool of_pool = false;  // by cuMemAllocAsync
  int device = -1;
  std::uint64_t range_begin = 0, range_bytes = 0;  // of the allocation
  std::uint64_t id = 0;  // of the allocation: no later one of this process has it
};
Result<CudaPointer> find_pointer(const CudaDriver& driver, const void* pointer);

// Makes `owner` the calling thread's for its lifetime: a library leaves no trace of its own there.
// Nor do its calls spoil what others capture meanwhile.
class CurrentContext {
 public:
  CurrentContext(const CudaDriver& driver, CuContext owner);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const CudaDriver& driver_;
  CuContext before_ = nullptr;
  bool changed_ = false;
  int mode_;  // of captures, as it was
};

}  // namespace gyre::loaded
