#include "tests/support/fake_verbs/pair_verbs.h"

#include "lib/loaded/shared_verbs.h"
#include "tests/support/fake_verbs/fake_verbs.h"

namespace gyre::tests {
namespace {

const loaded::Verbs* wanted = nullptr;

loaded::SharedVerbs& shared_of_pairs() {
  static loaded::SharedVerbs& shared = *new loaded::SharedVerbs;
  return shared;
}

}  // namespace

loaded::SharedVerbs* pair_verbs() {
  if (wanted == nullptr) {
    static const FakeVerbs& own = *new FakeVerbs;
    use_pair_verbs(&own.table());
  }
  return &shared_of_pairs();
}

void use_pair_verbs(const loaded::Verbs* verbs) {
  wanted = verbs;
  shared_of_pairs().use(verbs);
}

loaded::SharedVerbs* machine_verbs() {
  static loaded::SharedVerbs& machine = *new loaded::SharedVerbs;
  return &machine;
}

}  // namespace gyre::tests
