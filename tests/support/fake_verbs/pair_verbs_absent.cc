// In a build without RDMA.
#include "tests/support/fake_verbs/pair_verbs.h"

namespace gyre::tests {

loaded::SharedVerbs* pair_verbs() { return nullptr; }
loaded::SharedVerbs* machine_verbs() { return nullptr; }
void use_pair_verbs(const loaded::Verbs*) {}

}  // namespace gyre::tests
