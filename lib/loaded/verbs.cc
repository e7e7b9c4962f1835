#include "lib/loaded/verbs.h"

#include <fmt/core.h>

#include <cerrno>
#include <dlfcn.h>
#include <unistd.h>

namespace gyre::loaded {
namespace {

int query_port(ibv_context* context, std::uint8_t number, ibv_port_attr* port) {
  const verbs_context* const extended = verbs_get_ctx_op(context, query_port);
  return extended == nullptr ? ENOSYS : extended->query_port(context, number, port, sizeof *port);
}

int post_send(ibv_qp* pair, ibv_send_wr* first, ibv_send_wr** bad) {
  return ibv_post_send(pair, first, bad);
}

int post_recv(ibv_qp* pair, ibv_recv_wr* first, ibv_recv_wr** bad) {
  return ibv_post_recv(pair, first, bad);
}

int poll_cq(ibv_cq* queue, int most, ibv_wc* completions) {
  return ibv_poll_cq(queue, most, completions);
}

int req_notify_cq(ibv_cq* queue, int solicited_only) {
  return ibv_req_notify_cq(queue, solicited_only);
}

}  // namespace

Result<std::unique_ptr<const Verbs>> load_verbs(const char* library, const char* kernel) {
  if (access(kernel, F_OK) != 0) return invalid_usage("the kernel of this machine has no RDMA");
  void* const opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    const char* const why = dlerror();
    return invalid_usage(fmt::format(
        "{} was not found ({}): install libibverbs1 and ibverbs-providers, or rdma-core", library,
        why != nullptr ? why : "no reason given"));
  }
  auto table = std::make_unique<Verbs>();
#define GYRE_VERBS_FIND(result, member, symbol, parameters)                         \
  table->member = reinterpret_cast<decltype(table->member)>(dlsym(opened, symbol)); \
  if (table->member == nullptr)                                                     \
    return invalid_usage(                                                           \
        fmt::format("{} has no {}: install rdma-core 32 or newer", library, symbol));
  GYRE_VERBS_SYMBOLS(GYRE_VERBS_FIND)
#undef GYRE_VERBS_FIND
#define GYRE_VERBS_FIND(result, member, symbol, parameters) \
  table->member = reinterpret_cast<decltype(table->member)>(dlsym(opened, symbol));
  GYRE_VERBS_OPTIONAL_SYMBOLS(GYRE_VERBS_FIND)
#undef GYRE_VERBS_FIND
  table->query_port = query_port;
  table->post_send = post_send;
  table->post_recv = post_recv;
  table->poll_cq = poll_cq;
  table->req_notify_cq = req_notify_cq;
  return std::unique_ptr<const Verbs>(std::move(table));
}

}  // namespace gyre::loaded
