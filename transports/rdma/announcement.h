// The first word of an announcement (Transport::announcement) by a process with usable ports. It
// stands apart from ports.h, as the choice of protocols reads it without libibverbs's header.
#pragma once

#include <string_view>

namespace gyre::transport {

inline constexpr std::string_view rdma_announcement = "rdma=";

}  // namespace gyre::transport
