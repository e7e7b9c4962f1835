// The one main of all Catch2 tests.
#define CATCH_CONFIG_RUNNER
#include "tests/support/catch.h"

int main(int count, char** arguments) { return Catch::Session().run(count, arguments); }
