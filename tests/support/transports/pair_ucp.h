// UCX as the Sides of a test have it. Kind::ucx: a fake that lives as long as the program, if no
// test says another one. Kind::ucx_shm and Kind::ucx_tcp: this machine's, by one of its ways alone,
// and on loopback.
#pragma once

#include "lib/loaded/shared_ucp.h"

namespace gyre::tests {

loaded::SharedUcp* pair_ucp();
// Null: the fake of its own again.
void use_pair_ucp(const loaded::Ucp* table);

enum class MachineUcx { shared_memory, tcp };
// Ready for a context to be made.
loaded::SharedUcp* machine_ucp(MachineUcx way);

}  // namespace gyre::tests
