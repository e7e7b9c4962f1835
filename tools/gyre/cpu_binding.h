// The processors that each local rank may use. They are chosen once, before any rank starts, from
// the processors that this process itself may use.
#pragma once

#include "lib/base/status.h"
#include "lib/topology/processor_set.h"

#include <string>
#include <vector>

namespace gyre::tools {

enum class BindingChoice { automatic, core, numa, none };

struct CpuBinding {
  std::vector<topology::ProcessorSet> sets;  // one for each rank; empty: not bound
  std::string reason;                        // what was chosen and why, for people
};

// automatic: one core each while there are as many cores as ranks, else none.
Result<CpuBinding> choose_binding(BindingChoice choice, int ranks);

}  // namespace gyre::tools
