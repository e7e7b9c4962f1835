#include "lib/comm/backend.h"

#include <fmt/core.h>

namespace gyre::comm {

Status not_registered(std::uint64_t handle) {
  return invalid_argument(fmt::format("{:#x} was not registered on this communicator", handle));
}

}  // namespace gyre::comm
