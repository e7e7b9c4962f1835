// What most tests include, parsed once for all of them (see meson.build beside). A test still
// includes what it uses: some builds have no precompiled headers. Nothing includes this file, so it
// needs no guard.

#include "tests/support/catch.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>
