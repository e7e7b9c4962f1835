// The function table of UCP: without UCX, with releases that are too old, with one that lacks a
// function; and how the library of this machine leaves the process.
#include "lib/loaded/ucp.h"

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/loaded/shared_ucp.h"
#include "tests/support/catch.h"
#include "tests/support/fake_ucx/fake_ucp.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace ucp_test {

using namespace gyre;
using namespace gyre::tests;

namespace {

std::string ucp_refusal(const FakeUcpOptions& options) {
  const FakeUcp fake(options);
  const auto table = fake.load();
  if (table.ok()) return "";
  CHECK(table.status().code() == Code::InvalidUsage);
  return std::string(table.status().message());
}

void* handler_of(int number) {
  struct sigaction now {};
  sigaction(number, nullptr, &now);
  return reinterpret_cast<void*>(now.sa_handler);
}

}  // namespace

TEST_CASE("without UCX's messages the error names the library and the package", "[ucx]") {
  const auto table = loaded::load_ucp("libucp-of-nobody.so.0");
  REQUIRE_FALSE(table.ok());
  CHECK(table.status().code() == Code::InvalidUsage);
  const std::string text(table.status().message());
  CHECK_THAT(text, has_text("libucp-of-nobody.so.0 was not found (libucp-of-nobody.so.0: "));
  CHECK_THAT(text, has_text("): install libucx0, or ucx"));
}

TEST_CASE("a release of UCX that is too old is refused in one line", "[ucx]") {
  CHECK(ucp_refusal({.minor = 13}).empty());
  CHECK(ucp_refusal({.minor = 40}).empty());
  CHECK(ucp_refusal({.minor = 12, .release = 1}) ==
        "UCX 1.12.1 is installed: install 1.13 or a newer 1");
  CHECK(ucp_refusal({.major = 2, .minor = 0, .release = 0}) ==
        "UCX 2.0.0 is installed: install 1.13 or a newer 1");
  CHECK(ucp_refusal({.absent = "ucp_am_send_nbx"}) ==
        "UCX has no ucp_am_send_nbx: install it anew, all of one release");
  // The release says more than what it lacks.
  CHECK_THAT(ucp_refusal({.minor = 9, .absent = "ucp_am_send_nbx"}), has_text("UCX 1.9.1"));
}

TEST_CASE("a context lives as long as somebody uses it", "[ucx]") {
  const FakeUcp fake;
  loaded::SharedUcp shared(&fake.table());
  auto first = shared.context(ns_per_s);
  REQUIRE(first.ok());
  CHECK(shared.context(ns_per_s)->get() == first->get());
  CHECK(fake.open_objects() == 1);
  *first = nullptr;
  CHECK(fake.open_objects() == 0);
  CHECK(shared.context(ns_per_s).ok());
}

TEST_CASE("a forked process gets a context of its own", "[ucx]") {
  const FakeUcp fake;
  loaded::SharedUcp shared(&fake.table());
  const auto own = shared.context(ns_per_s);
  REQUIRE(own.ok());
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const bool is_parents = (*own)->is_of_this_process();
    const auto another = shared.context(ns_per_s);
    _exit(!is_parents && another.ok() && another->get() != own->get() ? 0 : 1);
  }
  int state = 0;
  REQUIRE(waitpid(child, &state, 0) == child);
  CHECK(state == 0);
  CHECK(shared.context(ns_per_s)->get() == own->get());
}

TEST_CASE("each call that fails while a context is made is an error", "[ucx]") {
  for (const char* symbol : {"ucp_config_read", "ucp_init_version", "ucp_context_query"}) {
    CAPTURE(symbol);
    const FakeUcp fake({.failing = symbol});
    loaded::SharedUcp shared(&fake.table());
    const auto context = shared.context(ns_per_s);
    REQUIRE_FALSE(context.ok());
    CHECK_THAT(std::string(context.status().message()), has_text("Input/output error"));
    CHECK(fake.open_objects() == 0);
    // The next one is made.
    CHECK(shared.context(ns_per_s).ok());
  }
}

TEST_CASE("an error of UCX says whose it is, and what to do", "[ucx]") {
  const FakeUcp fake;
  const auto failure = [&](loaded::UcxStatus status) {
    return loaded::ucp_failure(fake.table(), "ucp_ep_create", status);
  };
  CHECK(failure(loaded::ucp::no_memory).code() == Code::SystemError);
  CHECK(failure(loaded::ucp::no_device).code() == Code::SystemError);
  CHECK(failure(loaded::ucp::unreachable).code() == Code::RemoteError);
  CHECK_THAT(std::string(failure(loaded::ucp::unreachable).message()),
             has_text("have to leave both ends a transport in common"));
  CHECK_THAT(std::string(failure(loaded::ucp::no_memory).message()), has_text("ucp_ep_create: "));
}

TEST_CASE("what this machine's UCX says is in the log", "[ucx]") {
  char folder[] = "/tmp/gyre-ucp-test-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/log";
  constexpr int absent = 77;
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    setenv("UCX_TLS", "nonsense", 1);
    const auto table = loaded::load_ucp();
    if (!table.ok()) _exit(absent);
    const bool logs = configure_log(LogLevel::warn, path).ok();
    _exit(logs && !loaded::UcpSharedContext::make(**table, ns_per_s).ok() ? 0 : 1);
  }
  int state = 0;
  REQUIRE(waitpid(child, &state, 0) == child);
  REQUIRE(WIFEXITED(state));
  std::string said;
  std::getline(std::ifstream(path), said);
  std::filesystem::remove_all(folder);
  if (WEXITSTATUS(state) == absent) return;
  CHECK(WEXITSTATUS(state) == 0);
  CHECK_THAT(said, has_text("GYRE WARN UCX: "));
}

TEST_CASE("this machine's UCX leaves the process's signals as they were", "[ucx]") {
  constexpr int numbers[] = {SIGHUP, SIGILL, SIGBUS, SIGFPE, SIGSEGV};
  std::vector<void*> before;
  for (const int number : numbers) before.push_back(handler_of(number));
  stack_t stack{}, now{};
  REQUIRE(sigaltstack(nullptr, &stack) == 0);
  const auto table = loaded::load_ucp();
  if (!table.ok()) {
    // Nothing to see on a machine without UCX but its absence.
    CHECK_THAT(std::string(table.status().message()), has_text("libucp.so.0"));
    return;
  }
  for (std::size_t i = 0; i < before.size(); ++i) CHECK(handler_of(numbers[i]) == before[i]);
  REQUIRE(sigaltstack(nullptr, &now) == 0);
  CHECK(now.ss_sp == stack.ss_sp);
  CHECK(release_of(**table).starts_with("1."));
}

}  // namespace ucp_test
