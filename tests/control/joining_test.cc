// Joining: what a process does while it waits to hear who the other ranks are.
#include "tests/support/control/scripted_job.h"

using namespace gyre::test;

TEST_CASE("who joins dials the root again when the connection breaks") {
  ScriptedJob job(true);
  job.require_joined();
  job.member->leave();
}
