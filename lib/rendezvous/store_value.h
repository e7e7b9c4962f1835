// The value of an id in a caller's store: the id itself, or, if the ranks share a file of secrets,
// the id encrypted under that secret. Then read access to the store is not enough to join.
#pragma once

#include "lib/base/status.h"
#include "lib/trust/unique_id.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace gyre::rendezvous {

// Both: the file's secret, if there is one.
Result<std::vector<std::uint8_t>> store_value_of(const trust::UniqueId& id,
                                                 const std::optional<trust::Secret>& secret);
Result<trust::UniqueId> id_of_store_value(const std::vector<std::uint8_t>& value,
                                          const std::optional<trust::Secret>& secret);

}  // namespace gyre::rendezvous
