// The layout of UCX's types, as Gyre declares them, beside that of the headers of the release that
// is installed here. To take a new release into the range: install its headers, and run this.
#include "lib/loaded/ucp.h"
#include "lib/loaded/ucx.h"
#include "tests/support/catch.h"

#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>
#include <uct/api/uct.h>

namespace ucx_layout_test {

using namespace gyre::loaded;

TEST_CASE("UCX's headers have the layout that Gyre takes for known", "[ucx]") {
  static_assert(sizeof(ucs_status_t) == sizeof(UcxStatus));
  static_assert(sizeof(uct_md_resource_desc_t) == sizeof(UctDomainName));
  static_assert(sizeof(uct_component_attr_t) == sizeof(UctComponentAttributes));
  static_assert(sizeof(uct_tl_resource_desc_t) == sizeof(UctResource));
  static_assert(sizeof(uct_iface_params_t) <= sizeof(UctInterfaceParameters));
  static_assert(sizeof(uct_iface_attr_t) <= sizeof(UctInterfaceAttributes));
  static_assert(sizeof(ucs_async_mode_t) == sizeof(int));
  static_assert(sizeof(ucs_thread_mode_t) == sizeof(int));
#define SAME(theirs, their_member, ours, our_member) \
  CHECK(offsetof(theirs, their_member) == offsetof(ours, our_member))
  SAME(uct_component_attr_t, name, UctComponentAttributes, name);
  SAME(uct_component_attr_t, md_resource_count, UctComponentAttributes, domain_count);
  SAME(uct_component_attr_t, md_resources, UctComponentAttributes, domains);
  SAME(uct_tl_resource_desc_t, tl_name, UctResource, transport);
  SAME(uct_tl_resource_desc_t, dev_name, UctResource, device);
  SAME(uct_iface_params_t, open_mode, UctInterfaceParameters, open_mode);
  SAME(uct_iface_params_t, mode.device.tl_name, UctInterfaceParameters, transport);
  SAME(uct_iface_params_t, mode.device.dev_name, UctInterfaceParameters, device);
  SAME(uct_iface_attr_t, overhead, UctInterfaceAttributes, overhead_s);
  SAME(uct_iface_attr_t, bandwidth.dedicated, UctInterfaceAttributes, dedicated_bytes_per_s);
  SAME(uct_iface_attr_t, bandwidth.shared, UctInterfaceAttributes, shared_bytes_per_s);
  SAME(uct_iface_attr_t, latency.c, UctInterfaceAttributes, latency_s);
  SAME(uct_iface_attr_t, latency.m, UctInterfaceAttributes, latency_per_endpoint_s);
#undef SAME
  CHECK(UCS_OK == ucx::ok);
  CHECK(UCS_ASYNC_MODE_POLL == ucx::async_poll);
  CHECK(UCS_THREAD_MODE_SINGLE == ucx::single_thread);
  CHECK(UCT_COMPONENT_ATTR_FIELD_NAME == ucx::component_name);
  CHECK(UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT == ucx::component_domain_count);
  CHECK(UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES == ucx::component_domains);
  CHECK(UCT_IFACE_PARAM_FIELD_OPEN_MODE == ucx::parameter_open_mode);
  CHECK(UCT_IFACE_PARAM_FIELD_DEVICE == ucx::parameter_device);
  CHECK(UCT_IFACE_OPEN_MODE_DEVICE == ucx::open_device);
}

TEST_CASE("UCP's headers have the layout that Gyre takes for known", "[ucx]") {
  static_assert(sizeof(ucp_params_t) <= sizeof(UcpParameters));
  static_assert(sizeof(ucp_context_attr_t) <= sizeof(UcpContextAttributes));
  static_assert(sizeof(ucp_worker_params_t) <= sizeof(UcpWorkerParameters));
  static_assert(sizeof(ucp_worker_attr_t) <= sizeof(UcpWorkerAttributes));
  static_assert(sizeof(ucp_ep_params_t) <= sizeof(UcpEndpointParameters));
  static_assert(sizeof(ucp_request_param_t) <= sizeof(UcpRequestParameters));
  static_assert(sizeof(ucp_am_handler_param_t) <= sizeof(UcpHandlerParameters));
  static_assert(sizeof(ucp_am_recv_param_t) >= sizeof(UcpArrivalParameters));
  static_assert(sizeof(ucp_err_handling_mode_t) == sizeof(int));
  static_assert(sizeof(ucs_memory_type_t) == sizeof(int));
  static_assert(sizeof(ucs_log_level_t) == sizeof(int));
  static_assert(sizeof(ucs_log_func_rc_t) == sizeof(int));
#define SAME(theirs, their_member, ours, our_member) \
  CHECK(offsetof(theirs, their_member) == offsetof(ours, our_member))
  SAME(ucp_params_t, features, UcpParameters, features);
  SAME(ucp_params_t, mt_workers_shared, UcpParameters, workers_shared);
  SAME(ucp_context_attr_t, thread_mode, UcpContextAttributes, thread_mode);
  SAME(ucp_worker_params_t, thread_mode, UcpWorkerParameters, thread_mode);
  SAME(ucp_worker_params_t, cpu_mask, UcpWorkerParameters, processors);
  SAME(ucp_worker_params_t, flags, UcpWorkerParameters, flags);
  SAME(ucp_worker_attr_t, address_flags, UcpWorkerAttributes, address_flags);
  SAME(ucp_worker_attr_t, address, UcpWorkerAttributes, address);
  SAME(ucp_worker_attr_t, address_length, UcpWorkerAttributes, address_bytes);
  SAME(ucp_ep_params_t, address, UcpEndpointParameters, address);
  SAME(ucp_ep_params_t, err_mode, UcpEndpointParameters, error_mode);
  SAME(ucp_ep_params_t, err_handler.cb, UcpEndpointParameters, on_error);
  SAME(ucp_ep_params_t, err_handler.arg, UcpEndpointParameters, on_error_user);
  SAME(ucp_request_param_t, op_attr_mask, UcpRequestParameters, field_mask);
  SAME(ucp_request_param_t, flags, UcpRequestParameters, flags);
  SAME(ucp_request_param_t, memory_type, UcpRequestParameters, memory_type);
  SAME(ucp_am_handler_param_t, id, UcpHandlerParameters, id);
  SAME(ucp_am_handler_param_t, flags, UcpHandlerParameters, flags);
  SAME(ucp_am_handler_param_t, cb, UcpHandlerParameters, handler);
  SAME(ucp_am_handler_param_t, arg, UcpHandlerParameters, user);
  SAME(ucp_am_recv_param_t, recv_attr, UcpArrivalParameters, attributes);
  SAME(ucp_am_recv_param_t, reply_ep, UcpArrivalParameters, reply);
#undef SAME
}

TEST_CASE("UCP's headers have the values that Gyre takes for known", "[ucx]") {
  CHECK(UCS_INPROGRESS == ucp::in_progress);
  CHECK(UCS_ERR_NO_RESOURCE == ucp::no_resource);
  CHECK(UCS_ERR_NO_MEMORY == ucp::no_memory);
  CHECK(UCS_ERR_UNREACHABLE == ucp::unreachable);
  CHECK(UCS_ERR_NO_DEVICE == ucp::no_device);
  CHECK(UCS_ERR_BUSY == ucp::busy);
  CHECK(UCS_ERR_CANCELED == ucp::canceled);
  CHECK(UCS_ERR_EXCEEDS_LIMIT == ucp::exceeds_limit);
  CHECK(UCP_PARAM_FIELD_FEATURES == ucp::parameter_features);
  CHECK(UCP_PARAM_FIELD_MT_WORKERS_SHARED == ucp::parameter_workers_shared);
  CHECK(UCP_FEATURE_WAKEUP == ucp::feature_wakeup);
  CHECK(UCP_FEATURE_AM == ucp::feature_active_messages);
  CHECK(UCP_ATTR_FIELD_THREAD_MODE == ucp::context_thread_mode);
  CHECK(UCP_WORKER_PARAM_FIELD_THREAD_MODE == ucp::worker_thread_mode);
  CHECK(UCP_WORKER_PARAM_FIELD_FLAGS == ucp::worker_flags);
  CHECK(UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK == ucp::worker_may_leave_requests);
  CHECK(UCP_WORKER_ATTR_FIELD_ADDRESS == ucp::worker_address);
  CHECK(UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS == ucp::worker_address_flags);
  CHECK(UCP_WORKER_ADDRESS_FLAG_NET_ONLY == ucp::address_of_network_only);
  CHECK(UCS_THREAD_MODE_SERIALIZED == ucp::serialized_threads);
  CHECK(UCS_THREAD_MODE_MULTI == ucp::multiple_threads);
  CHECK(UCP_EP_PARAM_FIELD_REMOTE_ADDRESS == ucp::endpoint_address);
  CHECK(UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE == ucp::endpoint_error_mode);
  CHECK(UCP_EP_PARAM_FIELD_ERR_HANDLER == ucp::endpoint_error_handler);
  CHECK(UCP_ERR_HANDLING_MODE_NONE == ucp::errors_unhandled);
  CHECK(UCP_ERR_HANDLING_MODE_PEER == ucp::errors_of_peer);
  CHECK(UCP_OP_ATTR_FIELD_FLAGS == ucp::request_flags);
  CHECK(UCP_OP_ATTR_FIELD_MEMORY_TYPE == ucp::request_memory_type);
  CHECK(UCS_MEMORY_TYPE_HOST == ucp::host_memory);
  CHECK(UCP_EP_CLOSE_FLAG_FORCE == ucp::close_by_force);
  CHECK(UCP_AM_SEND_FLAG_EAGER == ucp::send_eager);
  CHECK(UCP_AM_SEND_FLAG_RNDV == ucp::send_rendezvous);
  CHECK(UCP_AM_HANDLER_PARAM_FIELD_ID == ucp::handler_id);
  CHECK(UCP_AM_HANDLER_PARAM_FIELD_FLAGS == ucp::handler_flags);
  CHECK(UCP_AM_HANDLER_PARAM_FIELD_CB == ucp::handler_function);
  CHECK(UCP_AM_HANDLER_PARAM_FIELD_ARG == ucp::handler_user);
  CHECK(UCP_AM_FLAG_WHOLE_MSG == ucp::handler_whole_message);
  CHECK(UCP_AM_RECV_ATTR_FLAG_RNDV == ucp::arrival_promised);
  CHECK(UCS_LOG_LEVEL_FATAL == ucp::log_fatal);
  CHECK(UCS_LOG_LEVEL_ERROR == ucp::log_error);
  CHECK(UCS_LOG_LEVEL_WARN == ucp::log_warning);
  CHECK(UCS_LOG_FUNC_RC_STOP == ucp::log_stop);
  for (const std::intptr_t value : {0L, -1L, -80L, -100L, 4096L}) {
    void* const pointer = reinterpret_cast<void*>(value);
    CAPTURE(value);
    CHECK(UCS_PTR_IS_PTR(pointer) == ucp::is_request(pointer));
    CHECK(UCS_PTR_STATUS(pointer) == ucp::status_of(pointer));
  }
}

}  // namespace ucx_layout_test
