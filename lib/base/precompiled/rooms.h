// Headers that most rooms, tools and benchmarks include, parsed once for all of them (see
// lib/meson.build). A file still includes what it uses: some builds have no precompiled headers.
// Nothing includes this file, so it needs no guard. Headers that few sources include stay out: each
// compilation would make the templates that a header's own functions use. For nlohmann/json.hpp
// that takes longer than parsing the others.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>
