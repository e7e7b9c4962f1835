// The functions of libibverbs that Gyre calls, as a table. `load_verbs` fills it by dlopen; a fake
// in the tests fills it itself. Types are those of rdma-core's header. Some functions are inline
// there and call the device's provider: the table has them as well, so that a fake replaces all.
#pragma once

#include "lib/base/status.h"
#include "lib/loaded/table_object.h"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <sys/types.h>

namespace gyre::loaded {

// result, member, the library's name, parameters
#define GYRE_VERBS_SYMBOLS(X)                                                                      \
  X(ibv_device**, device_list, "ibv_get_device_list", (int* count))                                \
  X(void, free_device_list, "ibv_free_device_list", (ibv_device * *list))                          \
  X(const char*, device_name, "ibv_get_device_name", (ibv_device * device))                        \
  X(ibv_context*, open_device, "ibv_open_device", (ibv_device * device))                           \
  X(int, close_device, "ibv_close_device", (ibv_context * context))                                \
  X(int, query_device, "ibv_query_device", (ibv_context * context, ibv_device_attr * device))      \
  X(ssize_t, gid_table, "_ibv_query_gid_table",                                                    \
    (ibv_context * context, ibv_gid_entry * entries, std::size_t most, std::uint32_t flags,        \
     std::size_t entry_bytes))                                                                     \
  X(ibv_pd*, alloc_pd, "ibv_alloc_pd", (ibv_context * context))                                    \
  X(int, dealloc_pd, "ibv_dealloc_pd", (ibv_pd * domain))                                          \
  X(ibv_mr*, reg_mr, "ibv_reg_mr", (ibv_pd * domain, void* start, std::size_t bytes, int access))  \
  X(int, dereg_mr, "ibv_dereg_mr", (ibv_mr * region))                                              \
  X(ibv_comp_channel*, create_comp_channel, "ibv_create_comp_channel", (ibv_context * context))    \
  X(int, destroy_comp_channel, "ibv_destroy_comp_channel", (ibv_comp_channel * channel))           \
  X(ibv_cq*, create_cq, "ibv_create_cq",                                                           \
    (ibv_context * context, int entries, void* user, ibv_comp_channel* channel, int vector))       \
  X(int, destroy_cq, "ibv_destroy_cq", (ibv_cq * queue))                                           \
  X(int, get_cq_event, "ibv_get_cq_event",                                                         \
    (ibv_comp_channel * channel, ibv_cq * *queue, void** user))                                    \
  X(void, ack_cq_events, "ibv_ack_cq_events", (ibv_cq * queue, unsigned count))                    \
  X(int, get_async_event, "ibv_get_async_event", (ibv_context * context, ibv_async_event * event)) \
  X(void, ack_async_event, "ibv_ack_async_event", (ibv_async_event * event))                       \
  X(ibv_qp*, create_qp, "ibv_create_qp", (ibv_pd * domain, ibv_qp_init_attr * wanted))             \
  X(int, modify_qp, "ibv_modify_qp", (ibv_qp * pair, ibv_qp_attr * wanted, int mask))              \
  X(int, destroy_qp, "ibv_destroy_qp", (ibv_qp * pair))                                            \
  X(const char*, status_text, "ibv_wc_status_str", (ibv_wc_status status))

// Of rdma-core 34; null where the library is older.
#define GYRE_VERBS_OPTIONAL_SYMBOLS(X)                                                        \
  X(ibv_mr*, reg_dmabuf_mr, "ibv_reg_dmabuf_mr",                                              \
    (ibv_pd * domain, std::uint64_t offset, std::size_t bytes, std::uint64_t start, int file, \
     int access))

struct Verbs {
#define GYRE_VERBS_MEMBER(result, member, symbol, parameters) result(*member) parameters = nullptr;
  GYRE_VERBS_SYMBOLS(GYRE_VERBS_MEMBER)
  GYRE_VERBS_OPTIONAL_SYMBOLS(GYRE_VERBS_MEMBER)
#undef GYRE_VERBS_MEMBER
  // Inline in the header.
  int (*query_port)(ibv_context* context, std::uint8_t number, ibv_port_attr* port) = nullptr;
  int (*post_send)(ibv_qp* pair, ibv_send_wr* first, ibv_send_wr** bad) = nullptr;
  int (*post_recv)(ibv_qp* pair, ibv_recv_wr* first, ibv_recv_wr** bad) = nullptr;
  int (*poll_cq)(ibv_cq* queue, int most, ibv_wc* completions) = nullptr;
  int (*req_notify_cq)(ibv_cq* queue, int solicited_only) = nullptr;
};

// Filled in; the library stays loaded. The error says what is missing and what to install. Without
// the folder where the kernel shows its devices there are none, and the library is not looked for:
// it would look there.
Result<std::unique_ptr<const Verbs>> load_verbs(const char* library = "libibverbs.so.1",
                                                const char* kernel = "/sys/class/infiniband_verbs");

template <typename Object, int (*Verbs::*destroy)(Object*)>
using VerbsObject = Owned<TableObjectTraits<Verbs, Object, destroy>>;
using VerbsContext = VerbsObject<ibv_context, &Verbs::close_device>;
using VerbsDomain = VerbsObject<ibv_pd, &Verbs::dealloc_pd>;
using VerbsMemory = VerbsObject<ibv_mr, &Verbs::dereg_mr>;
using VerbsChannel = VerbsObject<ibv_comp_channel, &Verbs::destroy_comp_channel>;
using VerbsQueue = VerbsObject<ibv_cq, &Verbs::destroy_cq>;
using VerbsPair = VerbsObject<ibv_qp, &Verbs::destroy_qp>;

}  // namespace gyre::loaded
