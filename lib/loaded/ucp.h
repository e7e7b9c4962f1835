// The functions of UCP, UCX's layer for messages, that Gyre calls, as a table. `load_ucp` fills it
// by dlopen; a fake in the tests fills it itself. Unlike UCT (ucx.h), UCP keeps its ABI: each
// structure begins with a mask of the fields that count, and new releases add at the end alone. The
// types below have the fields that Gyre names. UCX's headers are not used.
#pragma once

#include "lib/base/status.h"
#include "lib/loaded/table_object.h"
#include "lib/loaded/ucx.h"

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>

namespace gyre::loaded {

struct UcpContext;   // ucp_context
struct UcpConfig;    // ucp_config_t
struct UcpWorker;    // ucp_worker
struct UcpEndpoint;  // ucp_ep
struct UcpAddress;   // ucp_address_t: of a worker, of the size that came with it

struct UcpParameters {  // ucp_params_t
  std::uint64_t field_mask;
  std::uint64_t features;
  std::uint64_t unused[4];
  int workers_shared;  // workers of the context belong to several threads
  // What follows is read only if the mask says so.
  std::uint64_t rest[16];
};
static_assert(offsetof(UcpParameters, workers_shared) == 48);

struct UcpContextAttributes {  // ucp_context_attr_t; what the mask names is filled in
  std::uint64_t field_mask;
  std::size_t request_bytes;
  int thread_mode;
  std::uint64_t rest[16];
};
static_assert(offsetof(UcpContextAttributes, thread_mode) == 16);

struct UcpWorkerParameters {  // ucp_worker_params_t
  std::uint64_t field_mask;
  int thread_mode;
  std::uint64_t processors[16];
  std::uint64_t unused[3];
  std::uint64_t flags;
  std::uint64_t rest[24];
};
static_assert(offsetof(UcpWorkerParameters, flags) == 168);

struct UcpWorkerAttributes {  // ucp_worker_attr_t; what the mask names is filled in
  std::uint64_t field_mask;
  int thread_mode;
  std::uint32_t address_flags;  // an input
  UcpAddress* address;
  std::size_t address_bytes;
  std::uint64_t rest[24];
};
static_assert(offsetof(UcpWorkerAttributes, address) == 16);

// A connection has failed. Called by ucp_worker_progress.
using UcpErrorHandler = void (*)(void* user, UcpEndpoint* endpoint, UcxStatus status);

struct UcpEndpointParameters {  // ucp_ep_params_t
  std::uint64_t field_mask;
  const UcpAddress* address;
  int error_mode;
  UcpErrorHandler on_error;
  void* on_error_user;
  std::uint64_t rest[24];
};
static_assert(offsetof(UcpEndpointParameters, on_error) == 24);

struct UcpRequestParameters {  // ucp_request_param_t
  std::uint32_t field_mask;
  std::uint32_t flags;
  void* unused[5];
  int memory_type;
  std::uint64_t rest[16];
};
static_assert(offsetof(UcpRequestParameters, memory_type) == 48);

struct UcpArrivalParameters {  // ucp_am_recv_param_t
  std::uint64_t attributes;
  UcpEndpoint* reply;
};
// An active message has come. Called by ucp_worker_progress. With `arrival_promised` the bytes are
// still at the sender, and `data` is what ucp_am_recv_data_nbx fetches them by.
using UcpMessageHandler = UcxStatus (*)(void* user, const void* header, std::size_t header_bytes,
                                        void* data, std::size_t bytes,
                                        const UcpArrivalParameters* parameters);
struct UcpHandlerParameters {  // ucp_am_handler_param_t
  std::uint64_t field_mask;
  unsigned id;
  std::uint32_t flags;
  UcpMessageHandler handler;
  void* user;
};
static_assert(offsetof(UcpHandlerParameters, handler) == 16);

// ucs_log_func_t: a line of UCX's log. `format` is printf's.
using UcxLogHandler = int (*)(const char* file, unsigned line, const char* function, int level,
                              const void* component, const char* format, std::va_list arguments);

namespace ucp {

inline constexpr const char* library = "libucp.so.0";
inline constexpr unsigned major = 1, oldest_minor = 13;

// ucs_status_t
inline constexpr UcxStatus in_progress = 1, no_resource = -2, no_memory = -4, unreachable = -6,
                           no_device = -14, busy = -15, canceled = -16, exceeds_limit = -21;
// Functions that may need time return null (done), a status below 0 as an address, or a request.
inline bool is_request(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) - 1 < static_cast<std::uintptr_t>(-100) - 1;
}
inline UcxStatus status_of(const void* pointer) {
  return is_request(pointer) ? in_progress
                             : static_cast<UcxStatus>(reinterpret_cast<std::intptr_t>(pointer));
}

inline constexpr std::uint64_t parameter_features = 1, parameter_workers_shared = 1 << 5;
inline constexpr std::uint64_t feature_wakeup = 1 << 4, feature_active_messages = 1 << 6;
inline constexpr std::uint64_t context_thread_mode = 1 << 1;
inline constexpr std::uint64_t worker_thread_mode = 1, worker_flags = 1 << 5;
inline constexpr std::uint64_t worker_may_leave_requests = 1;
inline constexpr std::uint64_t worker_address = 1 << 1, worker_address_flags = 1 << 2;
inline constexpr std::uint32_t address_of_network_only = 1;
inline constexpr int serialized_threads = 1, multiple_threads = 2;  // ucs_thread_mode_t
inline constexpr std::uint64_t endpoint_address = 1, endpoint_error_mode = 1 << 1,
                               endpoint_error_handler = 1 << 2;
inline constexpr int errors_unhandled = 0, errors_of_peer = 1;  // ucp_err_handling_mode_t
inline constexpr std::uint32_t request_flags = 1 << 4, request_memory_type = 1 << 6;
inline constexpr int host_memory = 0;  // ucs_memory_type_t
inline constexpr std::uint32_t close_by_force = 1;
inline constexpr std::uint32_t send_eager = 1 << 1, send_rendezvous = 1 << 2;
inline constexpr std::uint64_t handler_id = 1, handler_flags = 1 << 1, handler_function = 1 << 2,
                               handler_user = 1 << 3;
inline constexpr std::uint32_t handler_whole_message = 1;
inline constexpr std::uint64_t arrival_promised = 1 << 17;
// ucs_log_level_t
inline constexpr int log_fatal = 0, log_error = 1, log_warning = 2;
inline constexpr int log_stop = 0;  // ucs_log_func_rc_t

}  // namespace ucp

// result, member, the library's name, parameters
#define GYRE_UCP_FUNCTIONS(X)                                                                  \
  X(void, version, "ucp_get_version", (unsigned* major, unsigned* minor, unsigned* release))   \
  X(const char*, status_text, "ucs_status_string", (UcxStatus status))                         \
  X(UcxStatus, read_config, "ucp_config_read",                                                 \
    (const char* prefix, const char* file, UcpConfig** config))                                \
  X(UcxStatus, modify_config, "ucp_config_modify",                                             \
    (UcpConfig * config, const char* name, const char* value))                                 \
  X(void, release_config, "ucp_config_release", (UcpConfig * config))                          \
  X(UcxStatus, make_context, "ucp_init_version",                                               \
    (unsigned major, unsigned minor, const UcpParameters* parameters, const UcpConfig* config, \
     UcpContext** context))                                                                    \
  X(void, destroy_context, "ucp_cleanup", (UcpContext * context))                              \
  X(UcxStatus, query_context, "ucp_context_query",                                             \
    (UcpContext * context, UcpContextAttributes * attributes))                                 \
  X(UcxStatus, make_worker, "ucp_worker_create",                                               \
    (UcpContext * context, const UcpWorkerParameters* parameters, UcpWorker** worker))         \
  X(void, destroy_worker, "ucp_worker_destroy", (UcpWorker * worker))                          \
  X(UcxStatus, query_worker, "ucp_worker_query",                                               \
    (UcpWorker * worker, UcpWorkerAttributes * attributes))                                    \
  X(void, release_address, "ucp_worker_release_address",                                       \
    (UcpWorker * worker, UcpAddress * address))                                                \
  X(UcxStatus, event_descriptor, "ucp_worker_get_efd", (UcpWorker * worker, int* descriptor))  \
  X(UcxStatus, arm, "ucp_worker_arm", (UcpWorker * worker))                                    \
  X(unsigned, progress, "ucp_worker_progress", (UcpWorker * worker))                           \
  X(UcxStatus, handle_messages, "ucp_worker_set_am_recv_handler",                              \
    (UcpWorker * worker, const UcpHandlerParameters* parameters))                              \
  X(UcxStatus, make_endpoint, "ucp_ep_create",                                                 \
    (UcpWorker * worker, const UcpEndpointParameters* parameters, UcpEndpoint** endpoint))     \
  X(void*, close_endpoint, "ucp_ep_close_nbx",                                                 \
    (UcpEndpoint * endpoint, const UcpRequestParameters* parameters))                          \
  X(void, print_endpoint, "ucp_ep_print_info", (UcpEndpoint * endpoint, std::FILE * file))     \
  X(void*, send, "ucp_am_send_nbx",                                                            \
    (UcpEndpoint * endpoint, unsigned id, const void* header, std::size_t header_bytes,        \
     const void* data, std::size_t bytes, const UcpRequestParameters* parameters))             \
  X(void*, fetch, "ucp_am_recv_data_nbx",                                                      \
    (UcpWorker * worker, void* promised, void* place, std::size_t bytes,                       \
     const UcpRequestParameters* parameters))                                                  \
  X(UcxStatus, request_status, "ucp_request_check_status", (void* request))                    \
  X(void, free_request, "ucp_request_free", (void* request))                                   \
  X(void, push_log_handler, "ucs_log_push_handler", (UcxLogHandler handler))

struct Ucp {
#define GYRE_UCP_MEMBER(result, member, symbol, parameters) result(*member) parameters = nullptr;
  GYRE_UCP_FUNCTIONS(GYRE_UCP_MEMBER)
#undef GYRE_UCP_MEMBER
};

// Refuses releases that are too old. Nothing else of them is called.
Status find_ucp(Ucp& table, const UcxFinder& find);
// Filled in; the library stays loaded. Its constructors change how the process takes signals, and
// that is put right again. What it logs goes to Gyre's log, unless the program had loaded it
// before. The error says what is missing and what to install.
Result<std::unique_ptr<const Ucp>> load_ucp(const char* library = ucp::library);
// "1.13.1"
std::string release_of(const Ucp& table);
// A call that failed; by an error of this process (memory, devices) or of another one.
Status ucp_failure(const Ucp& table, std::string_view call, UcxStatus status);

template <typename Object, void (*Ucp::*destroy)(Object*)>
using UcpObject = Owned<TableObjectTraits<Ucp, Object, destroy>>;
using UcpConfigHandle = UcpObject<UcpConfig, &Ucp::release_config>;
using UcpContextHandle = UcpObject<UcpContext, &Ucp::destroy_context>;
using UcpWorkerHandle = UcpObject<UcpWorker, &Ucp::destroy_worker>;

}  // namespace gyre::loaded
