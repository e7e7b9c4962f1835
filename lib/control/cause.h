// Cause: why a communicator failed, as text that names ranks, host and process, and as bytes for
// the other ranks.
#pragma once

#include "lib/base/status.h"
#include "lib/trust/identity.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gyre::control {

// "rank 3", "ranks 0-3, 7"; a long list is cut.
std::string rank_text(const std::vector<int>& ranks);
// "rank 3 (host h, pid 123)"; without ranks it is the process that made the id.
std::string process_text(const std::vector<int>& ranks, const trust::ProcessIdentity& process);

std::vector<std::uint8_t> encode_cause(const Status& cause);
// Nothing if malformed. Without culprits beyond `size` ranks; 0: the size is not known.
std::optional<Status> decode_cause(std::span<const std::uint8_t> bytes, int size);

}  // namespace gyre::control
