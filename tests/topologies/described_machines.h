// The machines that machines.py describes, and the captured ones beside it, for tests and
// benchmarks.
#pragma once

#include "lib/topology/topology.h"

#include <string>
#include <vector>

namespace gyre::tests {

std::vector<std::string> machine_names();  // sorted
// The topology file's text.
std::string machine_text(const std::string& name);
topology::Topology described_machine(const std::string& name);
// What the machine's file NAME.json says.
std::string expectation_text(const std::string& name);

}  // namespace gyre::tests
