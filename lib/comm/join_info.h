// JoinInfo: a rank's message to all others when it joins: the settings that all ranks must share,
// the device whose memory it works on, and the processors that it may use. It says where in its
// host those are, too, what its transports announce, how wide its wires are, and with whom it takes
// turns. It travels in the roster. A peer's bytes are never trusted: settings are compared whole,
// and an invalid processor mask, locality or note of a machine is ignored.
#pragma once

#include "lib/control/control.h"

#include <string_view>

namespace gyre::comm {

struct JoinInfo {
  std::string_view settings;
  std::string_view device;             // see GpuInfo; empty: host memory
  std::string_view processors;         // a mask, see processor_mask
  std::string_view locality;           // see topology::Locality
  std::string_view announcement = {};  // see transport::Transport
  std::string_view machine = {};       // see MachineNote; empty: it knows nothing of its host
  std::string_view wires = {};         // see wires_text
  std::string_view yields = {};        // see yield_group
};

control::MessageBytes encode(const JoinInfo& note);
// Views of the message, which outlives them.
JoinInfo read_join_info(const control::MessageBytes& message);

}  // namespace gyre::comm
