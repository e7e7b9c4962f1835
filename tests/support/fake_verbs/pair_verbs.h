// The devices of the Sides of Kind::rdma, which share them: those of a fake that lives as long as
// the program, if no test says another one. Those of this machine, for Kind::rdma_device.
#pragma once

namespace gyre::loaded {
struct Verbs;
class SharedVerbs;
}  // namespace gyre::loaded

namespace gyre::tests {

// Null in a build without RDMA.
loaded::SharedVerbs* pair_verbs();
loaded::SharedVerbs* machine_verbs();
// Null: the fake of its own again.
void use_pair_verbs(const loaded::Verbs* verbs);

}  // namespace gyre::tests
