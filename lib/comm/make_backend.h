// Makes a communicator's backend.
#pragma once

#include "lib/comm/backend.h"
#include "lib/trust/unique_id.h"

#include <memory>

namespace gyre::comm {

// The one place that asks whether the communicator is on a GPU. Before it joins as `id`.
Result<std::unique_ptr<Backend>> make_backend(CommunicatorState& state, const Services& services,
                                              control::ControlPlane& plane,
                                              const trust::UniqueId& id);

}  // namespace gyre::comm
