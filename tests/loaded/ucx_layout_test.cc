// The layout of UCX's types, as Gyre declares them, beside that of the headers of the release that
// is installed here. To take a new release into the range: install its headers, and run this.
#include "lib/loaded/ucx.h"
#include "tests/support/catch.h"

#include <uct/api/uct.h>

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
