// Port: this rank's end of one way of a link, with the positions that outlive a call. A plan's lane
// uses a port by its link index; no two lanes share one.
#pragma once

#include "lib/transport/transport.h"

#include <memory>

namespace gyre::exec {

struct SendPort {
  int peer = 0;
  int channel = 0;
  std::unique_ptr<transport::Connection> connection;
  transport::SlotWriter slots;
  transport::LineWriter lines;
};

struct ReceivePort {
  int peer = 0;
  int channel = 0;
  std::unique_ptr<transport::Connection> connection;
  transport::SlotReader slots;
  transport::LineReader lines;
};

}  // namespace gyre::exec
