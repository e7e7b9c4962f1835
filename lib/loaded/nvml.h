// The functions of NVIDIA's management library that Gyre calls, as a table. `load_nvml` fills it by
// dlopen; a fake in the tests fills it itself. NVML sees GPUs of the host that CUDA_VISIBLE_DEVICES
// hides, and knows what connects GPUs. Its headers are not used: types and values below are those
// of nvml.h 13.0 (NVML API reference, docs.nvidia.com/deploy/nvml-api).
#pragma once

#include "lib/base/status.h"

#include <memory>

namespace gyre::loaded {

using NvmlResult = int;  // nvmlReturn_t
struct NvmlDeviceBody;
using NvmlDevice = NvmlDeviceBody*;  // nvmlDevice_t
struct NvmlPciInfo {                 // nvmlPciInfo_t
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(NvmlPciInfo) == 68);
struct NvmlFieldValue {  // nvmlFieldValue_t
  unsigned field, scope;
  long long timestamp, latency_us;
  int type;           // of the value
  NvmlResult result;  // of this field alone
  union {
    unsigned as_unsigned;
    unsigned long long bits;
  } value;
};
static_assert(sizeof(NvmlFieldValue) == 40);

namespace nvml {

inline constexpr NvmlResult success = 0;
inline constexpr unsigned uuid_bytes = 96;  // NVML_DEVICE_UUID_V2_BUFFER_SIZE
inline constexpr unsigned max_links = 18;   // NVML_NVLINK_MAX_LINKS
// nvmlGpuP2PCapsIndex_t, nvmlGpuP2PStatus_t
inline constexpr int p2p_read = 0, p2p_write = 1;
inline constexpr int p2p_ok = 0;
// nvmlGpuTopologyLevel_t
inline constexpr int topology_internal = 0;   // two GPUs of one board
inline constexpr int topology_single = 10;    // one PCIe switch
inline constexpr int topology_multiple = 20;  // several, no host bridge
inline constexpr int topology_hostbridge = 30;
inline constexpr int topology_node = 40;  // one NUMA node
inline constexpr int topology_system = 50;
// nvmlIntNvLinkDeviceType_t
inline constexpr int nvlink_to_gpu = 0, nvlink_to_switch = 2;
inline constexpr unsigned enabled = 1;  // nvmlEnableState_t
// NVML_FI_DEV_C2C_LINK_...: how many links; of one, whether it is active, and its megabytes per s
inline constexpr unsigned c2c_count = 170, c2c_status = 171, c2c_max_bandwidth = 172;

}  // namespace nvml

// member, the library's name, parameters
#define GYRE_NVML_FUNCTIONS(X)                                                                  \
  X(init, "nvmlInit_v2", ())                                                                    \
  X(device_count, "nvmlDeviceGetCount_v2", (unsigned* count))                                   \
  X(device_by_index, "nvmlDeviceGetHandleByIndex_v2", (unsigned index, NvmlDevice* device))     \
  X(device_by_bus_id, "nvmlDeviceGetHandleByPciBusId_v2", (const char* id, NvmlDevice* device)) \
  X(device_uuid, "nvmlDeviceGetUUID", (NvmlDevice device, char* uuid, unsigned bytes))          \
  X(device_pci, "nvmlDeviceGetPciInfo_v3", (NvmlDevice device, NvmlPciInfo * info))             \
  X(cuda_capability, "nvmlDeviceGetCudaComputeCapability",                                      \
    (NvmlDevice device, int* major, int* minor))                                                \
  X(p2p_status, "nvmlDeviceGetP2PStatus",                                                       \
    (NvmlDevice device, NvmlDevice peer, int index, int* status))                               \
  X(topology_between, "nvmlDeviceGetTopologyCommonAncestor",                                    \
    (NvmlDevice device, NvmlDevice peer, int* level))                                           \
  X(nvlink_state, "nvmlDeviceGetNvLinkState", (NvmlDevice device, unsigned link, unsigned* on)) \
  X(nvlink_remote_type, "nvmlDeviceGetNvLinkRemoteDeviceType",                                  \
    (NvmlDevice device, unsigned link, int* type))                                              \
  X(nvlink_remote_pci, "nvmlDeviceGetNvLinkRemotePciInfo_v2",                                   \
    (NvmlDevice device, unsigned link, NvmlPciInfo* info))                                      \
  X(field_values, "nvmlDeviceGetFieldValues",                                                   \
    (NvmlDevice device, int count, NvmlFieldValue* values))

struct Nvml {
#define GYRE_NVML_MEMBER(member, symbol, parameters) NvmlResult(*member) parameters = nullptr;
  GYRE_NVML_FUNCTIONS(GYRE_NVML_MEMBER)
#undef GYRE_NVML_MEMBER
};

// Filled in and initialised; the library stays loaded. The error says what is missing.
Result<std::unique_ptr<const Nvml>> load_nvml();

}  // namespace gyre::loaded
