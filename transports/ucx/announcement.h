// The first word of an announcement (Transport::announcement) by a process with UCX. It stands
// apart from ucx.h, as the levels of a job read it.
#pragma once

#include <string_view>

namespace gyre::transport {

inline constexpr std::string_view ucx_announcement = "ucx=";

}  // namespace gyre::transport
