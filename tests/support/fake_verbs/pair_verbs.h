// The verbs table of the Sides of Kind::rdma: a fake that lives as long as the program, if no test
// says another one.
#pragma once

namespace gyre::loaded {
struct Verbs;
}

namespace gyre::tests {

// Null in a build without RDMA.
const loaded::Verbs* pair_verbs();
// Null: the fake of its own again.
void use_pair_verbs(const loaded::Verbs* verbs);

}  // namespace gyre::tests
