// The main of all Catch2 tests that need no options of their own.
#include "tests/support/session.h"

int main(int count, char** arguments) { return gyre::tests::run_cases(count, arguments); }
