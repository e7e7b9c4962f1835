// The statuses of failed work requests, for people.
#pragma once

#include "lib/loaded/verbs.h"

#include <string>
#include <string_view>

namespace gyre::transport {

// "IBV_WC_RETRY_EXC_ERR (transport retry counter exceeded)".
std::string completion_text(const loaded::Verbs& verbs, ibv_wc_status status);
// What people can do about it; empty if nothing is known to help.
std::string_view completion_remedy(ibv_wc_status status);
// Whether this end's own memory or queues are to blame.
bool is_own_failure(ibv_wc_status status);

}  // namespace gyre::transport
