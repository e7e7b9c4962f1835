// MetricsPlace: where GYRE_METRICS says that a process's metrics are served.
#pragma once

#include "lib/base/status.h"
#include "lib/trust/address.h"

#include <string>

namespace gyre::control {

struct MetricsPlace {
  trust::SocketAddress address;  // TCP or AF_UNIX
  std::string path;              // of an AF_UNIX socket's file; empty for TCP
};

// "9400" (on 127.0.0.1), "1.2.3.4:9400" or "[::1]:9400", or "unix:/path", in which %h and %p become
// host and process id. Processes of a host inherit one setting, so `local_rank` is added to the
// port, unless that is 0: any.
Result<MetricsPlace> read_metrics_place(const std::string& text, int local_rank);

}  // namespace gyre::control
