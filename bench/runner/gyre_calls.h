// The result of a Gyre call as a Status with its text, and the variables of the tests.
#pragma once

#include "lib/base/status.h"
#include <gyre/gyre.h>

#include <string>
#include <string_view>

namespace gyre::bench {

// Success, or what Gyre says of a call that this thread has just made.
Status checked(gyreResult_t result, std::string_view call);

// A variable of the tests: GYRE_TESTS_<name>, else NCCL_TESTS_<name>, else nothing.
const char* tests_variable(const std::string& name);

}  // namespace gyre::bench
