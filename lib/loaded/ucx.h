// The functions of UCX that Gyre calls, as a table. `load_ucx` fills it by dlopen; a fake in the
// tests fills it itself. UCX's transport layer (UCT) says what each transport is worth on each
// device; UCP, the layer that UCX keeps compatible, does not.
//
// UCX promises no ABI of UCT. Its headers are not used: types and values below are what its
// releases 1.9 to 1.22 have in common (src/uct/api/uct.h, src/ucs/type). Other releases are
// refused.
#pragma once

#include "lib/base/status.h"
#include "lib/loaded/table_object.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace gyre::loaded {

using UcxStatus = std::int8_t;  // ucs_status_t, an enum of one byte
struct UcxAsync;                // ucs_async_context_t
struct UctComponent;            // uct_component_t: "tcp", "ib"
struct UctDomain;               // uct_md: a component's memory domain
struct UctWorker;               // uct_worker_t
struct UctInterface;            // uct_iface_t: a transport on a device, opened
struct UctConfig;               // uct_md_config_t, uct_iface_config_t

struct UctDomainName {  // uct_md_resource_desc_t
  char name[16];
};
struct UctComponentAttributes {  // uct_component_attr_t
  std::uint64_t field_mask;
  char name[16];
  unsigned domain_count;
  UctDomainName* domains;  // the caller's, with room for domain_count
  std::uint64_t flags;
};
static_assert(offsetof(UctComponentAttributes, domains) == 32);
static_assert(sizeof(UctComponentAttributes) == 48);

struct UctResource {  // uct_tl_resource_desc_t
  char transport[10];
  char device[32];
  int device_type;
  int system_device;  // from UCX 1.10 on only its first byte
};
static_assert(offsetof(UctResource, device_type) == 44);
static_assert(sizeof(UctResource) == 52);

struct UctInterfaceParameters {  // uct_iface_params_t
  std::uint64_t field_mask;
  std::uint64_t processors[16];  // ucs_cpu_set_t
  std::uint64_t open_mode;
  const char* transport;
  const char* device;
  // What follows is read only if the mask says so. New releases add to the end.
  std::uint64_t rest[64];
};
static_assert(offsetof(UctInterfaceParameters, open_mode) == 136);

struct UctInterfaceAttributes {  // uct_iface_attr_t
  std::uint64_t capabilities[39];
  std::size_t address_bytes[4];
  std::byte listening_address[128];  // sockaddr_storage
  double overhead_s;                 // of a message, on the processor
  double dedicated_bytes_per_s;      // of each process
  double shared_bytes_per_s;         // of all processes together
  double latency_s;
  double latency_per_endpoint_s;
  // What follows is not used. New releases add to the end, and clear all that they know.
  std::uint64_t rest[64];
};
static_assert(offsetof(UctInterfaceAttributes, overhead_s) == 472);

namespace ucx {

inline constexpr const char* library = "libucp.so.0";
// The releases whose layout is known.
inline constexpr unsigned major = 1, oldest_minor = 9, newest_minor = 22;

inline constexpr UcxStatus ok = 0;
// ucs_async_mode_t: no thread and no signal; nothing happens unless it is asked for.
inline constexpr int async_poll = 3;
inline constexpr int single_thread = 0;  // ucs_thread_mode_t
// uct_component_attr_field, uct_iface_params_field, uct_iface_open_mode
inline constexpr std::uint64_t component_name = 1, component_domain_count = 2,
                               component_domains = 4;
inline constexpr std::uint64_t parameter_open_mode = 2, parameter_device = 4;
inline constexpr std::uint64_t open_device = 1;

}  // namespace ucx

// result, member, the library's name, parameters
#define GYRE_UCX_FUNCTIONS(X)                                                                  \
  X(void, version, "ucp_get_version", (unsigned* major, unsigned* minor, unsigned* release))   \
  X(const char*, status_text, "ucs_status_string", (UcxStatus status))                         \
  X(UcxStatus, create_async, "ucs_async_context_create", (int mode, UcxAsync** async))         \
  X(void, destroy_async, "ucs_async_context_destroy", (UcxAsync * async))                      \
  X(UcxStatus, query_components, "uct_query_components",                                       \
    (UctComponent * **components, unsigned* count))                                            \
  X(void, release_components, "uct_release_component_list", (UctComponent * *components))      \
  X(UcxStatus, query_component, "uct_component_query",                                         \
    (UctComponent * component, UctComponentAttributes * attributes))                           \
  X(UcxStatus, read_domain_config, "uct_md_config_read",                                       \
    (UctComponent * component, const char* prefix, const char* file, UctConfig** config))      \
  X(void, release_config, "uct_config_release", (UctConfig * config))                          \
  X(UcxStatus, open_domain, "uct_md_open",                                                     \
    (UctComponent * component, const char* name, const UctConfig* config, UctDomain** domain)) \
  X(void, close_domain, "uct_md_close", (UctDomain * domain))                                  \
  X(UcxStatus, query_resources, "uct_md_query_tl_resources",                                   \
    (UctDomain * domain, UctResource * *resources, unsigned* count))                           \
  X(void, release_resources, "uct_release_tl_resource_list", (UctResource * resources))        \
  X(UcxStatus, create_worker, "uct_worker_create",                                             \
    (UcxAsync * async, int thread_mode, UctWorker** worker))                                   \
  X(void, destroy_worker, "uct_worker_destroy", (UctWorker * worker))                          \
  X(UcxStatus, read_interface_config, "uct_md_iface_config_read",                              \
    (UctDomain * domain, const char* transport, const char* prefix, const char* file,          \
     UctConfig** config))                                                                      \
  X(UcxStatus, open_interface, "uct_iface_open",                                               \
    (UctDomain * domain, UctWorker * worker, const UctInterfaceParameters* parameters,         \
     const UctConfig* config, UctInterface** made))                                            \
  X(void, close_interface, "uct_iface_close", (UctInterface * made))                           \
  X(UcxStatus, query_interface, "uct_iface_query",                                             \
    (UctInterface * made, UctInterfaceAttributes * attributes))

struct Ucx {
#define GYRE_UCX_MEMBER(result, member, symbol, parameters) result(*member) parameters = nullptr;
  GYRE_UCX_FUNCTIONS(GYRE_UCX_MEMBER)
#undef GYRE_UCX_MEMBER
};

// Where a function is; null if it is nowhere.
using UcxFinder = std::function<void*(const char* symbol)>;
// Refuses releases whose layout is not known. Nothing else of them is called.
Status find_ucx(Ucx& table, const UcxFinder& find);
// Filled in; the library stays loaded. Its constructors handle signals (UCX_HANDLE_ERRORS), and its
// log goes to stdout (UCX_LOG_FILE). The error says what is missing and what to install.
Result<std::unique_ptr<const Ucx>> load_ucx(const char* library = ucx::library);

template <typename Object, void (*Ucx::*destroy)(Object*)>
using UcxObject = Owned<TableObjectTraits<Ucx, Object, destroy>>;
using UcxAsyncContext = UcxObject<UcxAsync, &Ucx::destroy_async>;
using UcxWorker = UcxObject<UctWorker, &Ucx::destroy_worker>;
using UcxComponents = UcxObject<UctComponent*, &Ucx::release_components>;
using UcxConfig = UcxObject<UctConfig, &Ucx::release_config>;
using UcxDomain = UcxObject<UctDomain, &Ucx::close_domain>;
using UcxResources = UcxObject<UctResource, &Ucx::release_resources>;
using UcxInterface = UcxObject<UctInterface, &Ucx::close_interface>;

}  // namespace gyre::loaded
