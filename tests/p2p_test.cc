// The ways between GPUs: what is found out about them, and what all ranks make of it; leases on
// memory that is lent.
#include "tests/support/fake_cuda.h"
#include "tests/support/fake_nvml.h"
#include "transports/p2p/lease.h"
#include "transports/p2p/survey.h"

#include <catch2/catch.hpp>

#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

using namespace gyre;
using namespace gyre::p2p;
using namespace gyre::tests;
namespace nvml = loaded::nvml;

namespace {

std::string uuid_of(int gpu) {
  return loaded::shown(loaded::CuUuid{{0xfa, 0xce, static_cast<unsigned char>(gpu)}});
}

// One GPU of a process on host 1, which knows of the others what is given.
Gpu gpu(int number, std::uint8_t process, std::vector<Toward> toward = {}) {
  Gpu made;
  made.host.fill(1);
  made.process.fill(process);
  made.uuid = uuid_of(number);
  made.toward = std::move(toward);
  return made;
}

Toward toward(int number, Access access = Access::reaches, Path path = Path::unknown,
              std::uint32_t lanes = 0) {
  return {uuid_of(number), access, path, lanes};
}

bool mentions(const std::string& text, const std::string& word) {
  INFO(text);
  return text.find(word) != std::string::npos;
}

}  // namespace

TEST_CASE("the way between two GPUs is the same from both ends", "[p2p]") {
  struct Case {
    Gpu here, there;
    Way way;
    Path path;
    const char* reason;  // a word of it; empty: none
  };
  Gpu elsewhere = gpu(1, 2);
  elsewhere.host.fill(2);
  const Case cases[] = {
      {gpu(0, 1), gpu(0, 1), Way::pointer, Path::same, ""},
      {gpu(0, 1), gpu(0, 2), Way::ipc, Path::same, ""},
      {gpu(0, 1, {toward(1)}), gpu(1, 1, {toward(0)}), Way::pointer, Path::unknown, ""},
      {gpu(0, 1, {toward(1)}), gpu(1, 2, {toward(0)}), Way::ipc, Path::unknown, ""},
      {gpu(0, 1), gpu(1, 2, {toward(0)}), Way::ipc, Path::unknown, "the driver will"},
      {gpu(0, 1), gpu(1, 2), Way::ipc, Path::unknown, "the driver will"},
      {gpu(0, 1), elsewhere, Way::relay, Path::unknown, "another host"},
      // One of them is enough to refuse, or to know what lies between.
      {gpu(0, 1, {toward(1, Access::no_peer_access)}), gpu(1, 2, {toward(0)}), Way::relay,
       Path::unknown, "the driver finds no way"},
      {gpu(0, 1, {toward(1, Access::reaches, Path::nvlink, 18)}),
       gpu(1, 2, {toward(0, Access::disabled)}), Way::relay, Path::nvlink, "GYRE_P2P_DISABLE"},
      {gpu(0, 1, {toward(1, Access::too_far, Path::interconnect)}), gpu(1, 2), Way::relay,
       Path::interconnect, "GYRE_P2P_LEVEL"},
  };
  for (const Case& one : cases) {
    const Between out = find_way(one.here, one.there), back = find_way(one.there, one.here);
    INFO(out.reason);
    CHECK((out.way == one.way && back.way == one.way));
    CHECK((out.path == one.path && back.path == one.path));
    CHECK(out.lanes == back.lanes);
    CHECK(out.reason.empty() == (*one.reason == '\0'));
    CHECK(mentions(out.reason, one.reason));
    CHECK(mentions(back.reason, one.reason));
  }
}

TEST_CASE("lines of 128 bytes stay whole on one GPU and over NVLink alone", "[p2p]") {
  const auto near = [](int to) { return toward(to, Access::reaches, Path::nvlink, 4); };
  CHECK(keep_lines_whole(std::vector{gpu(0, 1), gpu(0, 2)}));
  CHECK(keep_lines_whole(
      std::vector{gpu(0, 1, {near(1)}), gpu(1, 2, {near(0)}), gpu(0, 3, {near(1)})}));
  CHECK_FALSE(keep_lines_whole(std::vector{gpu(0, 1), gpu(1, 2)}));
  CHECK_FALSE(keep_lines_whole(std::vector{gpu(0, 1, {toward(1)}), gpu(1, 2, {toward(0)})}));
  Gpu elsewhere = gpu(0, 2);
  elsewhere.host.fill(2);
  CHECK_FALSE(keep_lines_whole(std::vector{gpu(0, 1), elsewhere}));
}

TEST_CASE("the driver says what can be reached, NVML what is hidden and what lies between",
          "[p2p]") {
  // GPUs 2, 3 and 5 of a machine; the process sees 3 and 5.
  FakeCuda cuda({.devices = 2, .peer_access = true, .visible = {3, 5}});
  FakeNvmlOptions options{.gpus = {2, 3, 5}};
  options.between = [](int here, int there) {
    if (here == 2 || there == 2) return FakeBetween{.p2p = false, .level = nvml::topology_system};
    return FakeBetween{.level = nvml::topology_hostbridge, .lanes = 4};
  };
  const auto table = cuda.table();
  const OwnGpu own{0, uuid_of(3), "0000:13:00.0"};
  SECTION("with NVML") {
    const FakeNvml fake(options);
    const auto found = survey(*table, fake.table().get(), own, {});
    CHECK(found == std::vector{toward(5, Access::reaches, Path::nvlink, 4),
                               toward(2, Access::no_peer_access, Path::interconnect)});
  }
  SECTION("without NVML") { CHECK(survey(*table, nullptr, own, {}) == std::vector{toward(5)}); }
  SECTION("over a switch of NVLink") {
    options.between = [](int, int) { return FakeBetween{}; };
    options.switch_lanes = [](int gpu) { return gpu == 2 ? 0U : gpu == 3 ? 18U : 12U; };
    const FakeNvml fake(options);
    const auto found = survey(*table, fake.table().get(), own, {});
    CHECK(found == std::vector{toward(5, Access::reaches, Path::nvlink, 12),
                               toward(2, Access::reaches, Path::interconnect)});
  }
}

TEST_CASE("GYRE_P2P_LEVEL leaves out what is farther, as far as anybody knows", "[p2p]") {
  struct Case {
    int level;
    Path path;
  };
  const Case cases[] = {
      {nvml::topology_internal, Path::one_switch}, {nvml::topology_single, Path::one_switch},
      {nvml::topology_multiple, Path::switches},   {nvml::topology_hostbridge, Path::host_bridge},
      {nvml::topology_node, Path::host_bridge},    {nvml::topology_system, Path::interconnect}};
  FakeCuda cuda({.devices = 2});
  const auto table = cuda.table();
  const OwnGpu own{0, uuid_of(0), "0000:10:00.0"};
  for (const Case& one : cases) {
    const FakeNvml fake({.between = [&](int, int) { return FakeBetween{.level = one.level}; }});
    for (const Path farthest : {Path::same, Path::nvlink, Path::one_switch, Path::switches,
                                Path::host_bridge, Path::interconnect}) {
      const Access wanted = one.path <= farthest ? Access::reaches : Access::too_far;
      CHECK(survey(*table, fake.table().get(), own, {.farthest = farthest}) ==
            std::vector{toward(1, wanted, one.path)});
    }
    CHECK(survey(*table, fake.table().get(), own, {.disabled = true}) ==
          std::vector{toward(1, Access::disabled, one.path)});
  }
  CHECK(survey(*table, nullptr, own, {.farthest = Path::nvlink}) == std::vector{toward(1)});
  CHECK(survey(*table, nullptr, own, {.farthest = Path::same}) ==
        std::vector{toward(1, Access::too_far)});
}

TEST_CASE("paths are named as NCCL names them", "[p2p]") {
  for (int i = 0; i < path_count; ++i) {
    const auto path = static_cast<Path>(i);
    CHECK(path_named(path_name(path)) == path);
  }
  CHECK_FALSE(path_named("NODE"));
  CHECK(path_shown(Between{Way::ipc, Path::nvlink, 18, ""}) == "NVL, 18 lanes");
  CHECK(path_shown(Between{Way::ipc, Path::host_bridge, 0, ""}) == "PHB");
}

TEST_CASE("a lease ends when the last borrower has let go, and nobody borrows after that",
          "[p2p]") {
  auto lease = Lease::make();
  REQUIRE(lease.ok());
  const auto pid = static_cast<std::uint32_t>(getpid());
  {
    auto first = Borrowing::begin(pid, lease->name());
    REQUIRE(first.ok());
    {
      const auto second = Borrowing::begin(pid, lease->name());
      REQUIRE(second.ok());
      CHECK_FALSE(lease->end());
    }
    CHECK_FALSE(lease->end());
  }
  CHECK(lease->end());
  CHECK(lease->end());
  CHECK_FALSE(Borrowing::begin(pid, lease->name()).ok());
}

TEST_CASE("a borrower that is killed has let go", "[p2p]") {
  auto lease = Lease::make();
  REQUIRE(lease.ok());
  int borrowed[2];
  REQUIRE(pipe(borrowed) == 0);
  const auto pid = static_cast<std::uint32_t>(getpid());
  const pid_t child = fork();
  if (child == 0) {
    const auto borrowing = Borrowing::begin(pid, lease->name());
    const char good = borrowing.ok() ? 1 : 0;
    if (write(borrowed[1], &good, 1) == 1) pause();
    _exit(1);
  }
  char good = 0;
  REQUIRE(read(borrowed[0], &good, 1) == 1);
  CHECK(good == 1);
  CHECK_FALSE(lease->end());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(lease->end());
  close(borrowed[0]);
  close(borrowed[1]);
}

TEST_CASE("what is no lease is not taken for one", "[p2p]") {
  auto lease = Lease::make();
  REQUIRE(lease.ok());
  const auto pid = static_cast<std::uint32_t>(getpid());
  LeaseName other = lease->name();
  ++other.inode;
  CHECK_FALSE(Borrowing::begin(pid, other).ok());
  CHECK_FALSE(Borrowing::begin(pid, {0, 1}).ok());
  CHECK_FALSE(Borrowing::begin(pid, {1 << 20, 1}).ok());
  CHECK_FALSE(Borrowing::begin(1U << 22, lease->name()).ok());  // no such process
}
