// LinkLetter: what the receiving end of a link writes to the sending end: how to connect. The
// endpoint in it is its transport's to judge.
#pragma once

#include "lib/control/control.h"
#include "lib/transport/region.h"
#include "lib/transport/transport.h"

#include <cstdint>
#include <optional>

namespace gyre::comm {

struct LinkLetter {
  std::uint32_t transport = 0;  // its place in the list of transports, which all ranks share
  transport::Probe probe;       // how to try the writer's regions
  transport::Endpoint endpoint;
};

control::Letter encode(const LinkLetter& letter);
// Nothing if it is malformed, or names a place beyond `transports`.
std::optional<LinkLetter> decode_link_letter(const control::Letter& bytes, std::size_t transports);

}  // namespace gyre::comm
