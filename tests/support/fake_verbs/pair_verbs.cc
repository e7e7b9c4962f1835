#include "tests/support/fake_verbs/pair_verbs.h"

#include "tests/support/fake_verbs/fake_verbs.h"

namespace gyre::tests {
namespace {

const loaded::Verbs* wanted = nullptr;

}  // namespace

const loaded::Verbs* pair_verbs() {
  if (wanted != nullptr) return wanted;
  static const FakeVerbs& own = *new FakeVerbs;
  return &own.table();
}

void use_pair_verbs(const loaded::Verbs* verbs) { wanted = verbs; }

}  // namespace gyre::tests
