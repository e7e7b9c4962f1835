// From a launcher's variables to a joined communicator, with the real control plane: each way of
// rendezvous leads to one job, again and again in one process.
#include "tests/support/rendezvous/small_plane.h"

#include <future>
#include <sys/mman.h>

namespace rendezvous_join_test {

using namespace gyre;
using namespace gyre::control;
using namespace gyre::rendezvous;
using namespace gyre::rendezvous::test;

namespace {

constexpr int ranks = 4;
constexpr int meetings = 3;

// What one rank tells of `meetings` meetings in a row: the names of the ids, or the first error.
std::string join_all(const Settings& settings, LaunchPlace place) {
  auto plane = ControlPlane::start(settings);
  if (!plane.ok()) return std::string(plane.status().message());
  std::string names;
  for (int i = 0; i < meetings; ++i) {
    place.earlier_exchanges = i;
    const auto id = meet(**plane, settings, place);
    if (!id.ok()) return std::string(id.status().message());
    const auto member = (*plane)->join(*id, place.size, place.rank, MessageBytes{1}, settings);
    if (!member.ok()) return std::string(member.status().message());
    while ((*member)->state() == Membership::State::joining)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if ((*member)->failed()) return std::string((*member)->failure().message());
    if ((*member)->roster().process_of_rank.size() != ranks) return "a wrong roster";
    (*member)->leave();
    names += trust::short_name(*id) + " ";
  }
  return names;
}

void check_all_join(const Settings& settings, const std::string& job) {
  const auto reports =
      run_job(ranks, [&](int rank) { return join_all(settings, place_of(rank, ranks, job)); });
  for (const std::string& text : reports) CHECK(text == reports[0]);
  CHECK(reports[0].size() == 9 * meetings);
  CHECK(reports[0].substr(0, 9) != reports[0].substr(9, 9));
}

Settings on_loopback() {
  Settings settings = with_timeout(20);
  settings.socket_interface = "lo";
  return settings;
}

std::string fresh_file(std::string_view content) {
  std::string path = "/tmp/gyre-join-XXXXXX";
  const FileDescriptor file(mkostemp(path.data(), O_CLOEXEC));
  REQUIRE(file.has_value());
  REQUIRE(write(file.get(), content.data(), content.size()) ==
          static_cast<ssize_t>(content.size()));
  return path;
}

}  // namespace

TEST_CASE("ranks that met at the socket of their job join", "[rendezvous]") {
  check_all_join(on_loopback(), test_name("join"));
}

TEST_CASE("ranks with the memory of gyre run join, in whatever order they come", "[rendezvous]") {
  const FileDescriptor file(memfd_create("gyre-run", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const std::string content = "GYRERUN1" + id_bytes().substr(8, 48);
  REQUIRE(write(file.get(), content.data(), content.size()) == 56);
  REQUIRE(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0);
  Settings settings = on_loopback();
  settings.rendezvous_fd = file.get();
  check_all_join(settings, test_name("join"));
}

TEST_CASE("ranks that met through a file join", "[rendezvous]") {
  const std::string path = fresh_file("");
  REQUIRE(unlink(path.c_str()) == 0);
  Settings settings = on_loopback();
  settings.rendezvous_file = path;
  check_all_join(settings, test_name("join"));
  for (const char* end : {"", ".1", ".2"}) CHECK(access((path + end).c_str(), F_OK) != 0);
}

// Of three ranks two are in this process.
TEST_CASE("after a failed meeting late ranks hear why, and others find the next one",
          "[rendezvous]") {
  enum class Way { socket, address, file };
  const Way way = GENERATE(Way::socket, Way::address, Way::file);
  const bool has_joined = GENERATE(true, false);
  CAPTURE(way, has_joined);
  const std::string path = fresh_file(std::string(32, 's'));
  Settings settings = on_loopback();
  if (way == Way::address) {
    settings.rendezvous_secret_file = path;
    settings.rendezvous_address = fmt::format("127.0.0.1:{}", free_port());
  }
  if (way == Way::file) settings.rendezvous_file = path + ".id";
  const std::string job = test_name("again");
  const auto root = ControlPlane::start(settings), other = ControlPlane::start(settings);
  REQUIRE(root.ok());
  REQUIRE(other.ok());
  const auto failed = meet(**root, settings, place_of(0, 3, job));
  REQUIRE(failed.ok());
  if (has_joined) {
    const auto member = (*root)->join(*failed, 3, 0, MessageBytes{1}, settings);
    REQUIRE(member.ok());
    (*member)->abort(Status(Code::Aborted, "not yet"));
    for (int i = 0; i < 5000 && !(*member)->failed(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    (*member)->leave();
  } else {
    (*root)->renounce(*failed, Status(Code::SystemError, "not yet"));
  }
  LaunchPlace place = place_of(1, 3, job);
  place.tried = *meet(**other, settings, place);
  CHECK(place.tried->secret == failed->secret);
  const auto late = (*other)->join(*place.tried, 3, 1, MessageBytes{1}, settings);
  REQUIRE(late.ok());
  for (int i = 0; i < 5000 && !(*late)->failed(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(contains((*late)->failure().message(), "not yet"));
  (*late)->leave();
  auto met = std::async(std::launch::async, [&] { return meet(**other, settings, place); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // it comes before rank 0
  const auto again = meet(**root, settings, place_of(0, 3, job));
  INFO(report(again));
  CHECK(again.ok());
  CHECK(report(met.get()) == report(again));
  unlink(path.c_str());
}

TEST_CASE("ranks that met at an address join", "[rendezvous]") {
  const std::string path = fresh_file(std::string(32, 's'));
  Settings settings = on_loopback();
  settings.rendezvous_secret_file = path;
  settings.rendezvous_address = fmt::format("127.0.0.1:{}", free_port());
  check_all_join(settings, test_name("join"));
  unlink(path.c_str());
}

}  // namespace rendezvous_join_test
