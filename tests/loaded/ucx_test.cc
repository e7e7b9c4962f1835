// The function table of UCX: without UCX, with releases whose layout is not known, and with one
// that lacks a function.
#include "lib/loaded/ucx.h"

#include "tests/support/catch.h"
#include "tests/support/fake_ucx/fake_ucx.h"

namespace ucx_test {

using namespace gyre;
using namespace gyre::tests;

namespace {

std::string refusal(const FakeUcxOptions& options) {
  const FakeUcx fake(options);
  const auto table = fake.load();
  CHECK(fake.calls() == 0);
  if (table.ok()) return "";
  CHECK(table.status().code() == Code::InvalidUsage);
  return std::string(table.status().message());
}

}  // namespace

TEST_CASE("without UCX the error names the library and the package", "[ucx]") {
  const auto table = loaded::load_ucx("libucp-of-nobody.so.0");
  REQUIRE_FALSE(table.ok());
  CHECK(table.status().code() == Code::InvalidUsage);
  const std::string text(table.status().message());
  CHECK_THAT(text, has_text("libucp-of-nobody.so.0 was not found (libucp-of-nobody.so.0: "));
  CHECK_THAT(text, has_text("): install libucx0, or ucx"));
}

TEST_CASE("releases of UCX whose layout is not known are refused in one line", "[ucx]") {
  struct Release {
    unsigned major, minor, release;
    std::string refused;  // empty: taken
  };
  for (const Release& one :
       {Release{1, 8, 1, "UCX 1.8.1"}, Release{1, 9, 0, ""}, Release{1, 13, 1, ""},
        Release{1, 22, 7, ""}, Release{1, 23, 0, "UCX 1.23.0"}, Release{2, 10, 0, "UCX 2.10.0"}}) {
    CAPTURE(one.major, one.minor);
    const std::string text =
        refusal({.major = one.major, .minor = one.minor, .release = one.release});
    CHECK(text == (one.refused.empty()
                       ? ""
                       : one.refused + " is installed, and its layout is not known: "
                                       "install one of 1.9 to 1.22"));
  }
}

TEST_CASE("a release that lacks a function is refused by the function's name", "[ucx]") {
  for (const char* symbol : {"ucp_get_version", "ucs_status_string", "uct_iface_query"}) {
    CAPTURE(symbol);
    CHECK(refusal({.absent = symbol}) ==
          "UCX has no " + std::string(symbol) + ": install it anew, all of one release");
  }
  // The release says more than what it lacks.
  CHECK_THAT(refusal({.minor = 40, .absent = "uct_iface_query"}), has_text("UCX 1.40.1"));
}

}  // namespace ucx_test
