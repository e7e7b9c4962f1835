// Catch2, version 2 (one header) or 3 (many). Tests include this and nothing of Catch2's, so that
// they compile with both; what the versions name differently has a name of ours here. A file with a
// main defines CATCH_CONFIG_RUNNER before it includes anything.
#pragma once

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_adapters.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#ifdef CATCH_CONFIG_RUNNER
#include <catch2/catch_session.hpp>
#endif
#else
#include <catch2/catch.hpp>
#define GYRE_CATCH_2
#endif

#include <cstdint>
#include <string>

#ifdef GYRE_CATCH_2
namespace gyre::tests {
inline std::uint32_t rng_seed() { return Catch::rngSeed(); }  // what --rng-seed says
inline auto has_text(const std::string& text) { return Catch::Matchers::Contains(text); }
#ifdef CATCH_CONFIG_RUNNER
namespace command_line = Catch::clara;
#endif
}  // namespace gyre::tests
#else
using Catch::Approx;
namespace gyre::tests {
inline std::uint32_t rng_seed() { return Catch::getSeed(); }
inline auto has_text(const std::string& text) { return Catch::Matchers::ContainsSubstring(text); }
#ifdef CATCH_CONFIG_RUNNER
namespace command_line = Catch::Clara;
#endif
}  // namespace gyre::tests
#endif
