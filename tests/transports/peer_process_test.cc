// How a rank watches for the end of a peer's process: by the kernel's word of who listens for it,
// whatever process has the peer's number here.
#include "lib/base/owned.h"
#include "lib/base/status.h"
#include "lib/control/membership.h"
#include "lib/links/links.h"
#include "lib/trust/identity.h"
#include "tests/support/catch.h"
#include "tests/support/control/silent_member.h"
#include "tests/support/transports/test_listener.h"

#include <atomic>
#include <cstdint>
#include <fcntl.h>
#include <optional>
#include <poll.h>
#include <sched.h>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace peer_process_test {

using namespace gyre;
using namespace gyre::comm;
using namespace gyre::tests;

namespace {

// A process that listens and lives until it is told to end.
class ListeningChild {
 public:
  explicit ListeningChild(std::string listener_name) : name(std::move(listener_name)) {
    int ready[2], ends[2];
    REQUIRE((pipe2(ready, O_CLOEXEC) == 0 && pipe2(ends, O_CLOEXEC) == 0));
    FileDescriptor told(ready[0]), tells(ready[1]), waits(ends[0]);
    release_ = FileDescriptor(ends[1]);
    pid = fork();
    REQUIRE(pid >= 0);
    char byte = 0;
    if (pid == 0) {
      release_.reset();
      const FileDescriptor listener = listen_local(name);
      if (write(tells.get(), &byte, 1) == 1) (void)!read(waits.get(), &byte, 1);
      _exit(0);
    }
    REQUIRE(read(told.get(), &byte, 1) == 1);
  }
  ~ListeningChild() { end(); }
  void end() {
    release_.reset();
    if (const pid_t child = std::exchange(pid, 0); child > 0) waitpid(child, nullptr, 0);
  }

  const std::string name;
  pid_t pid = 0;

 private:
  FileDescriptor release_;
};

std::string name_of(const char* who) {
  return "gyre-test-" + std::string(who) + std::to_string(getpid());
}

// What rank 0 watches for the end of rank 1, of whom it was told this.
FileDescriptor watch(const std::string& listener_name, pid_t pid) {
  control::Roster roster{{}, {0, 1}, {}};
  for (int rank = 0; rank < 2; ++rank) {
    auto identity = trust::describe_this_process();
    if (!identity.ok()) return {};
    roster.processes.push_back(std::move(*identity));
  }
  roster.processes[1].pid = static_cast<std::uint32_t>(pid);
  roster.processes[1].listener_name = listener_name;
  SilentMember member(std::move(roster));
  const TransportList none;
  return Links(0, member, none, {}).process_of(1);
}

// Since Linux 6.5: SO_PEERPIDFD.
bool kernel_names_peers() {
  constexpr int peer_descriptor = 77;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  const FileDescriptor one(ends[0]), other(ends[1]);
  int process = -1;
  socklen_t length = sizeof process;
  const bool known = getsockopt(one.get(), SOL_SOCKET, peer_descriptor, &process, &length) == 0;
  return FileDescriptor(process).has_value() && known;
}

bool has_ended(const FileDescriptor& process) {
  pollfd state{process.get(), POLLIN, 0};
  return poll(&state, 1, 0) > 0;
}

}  // namespace

TEST_CASE("who has a peer's number in another PID namespace is not taken for it", "[links]") {
  ListeningChild peer(name_of("peer")), stranger(name_of("stranger"));
  const FileDescriptor watched = watch(peer.name, stranger.pid);
  REQUIRE(watched.has_value());
  stranger.end();
  CHECK_FALSE(has_ended(watched));
  peer.end();
  CHECK(has_ended(watched));
}

TEST_CASE("a peer that cannot be asked is not watched", "[links]") {
  const ListeningChild stranger(name_of("stranger"));
  CHECK_FALSE(watch(name_of("nobody"), stranger.pid).has_value());
  CHECK_FALSE(watch("", stranger.pid).has_value());
}

TEST_CASE("a peer of a PID namespace that this process cannot see is watched", "[links]") {
  ListeningChild peer(name_of("outside"));
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (unshare(CLONE_NEWPID) != 0) _exit(77);  // not root
    const pid_t inside = fork();
    if (inside == 0) {
      const FileDescriptor watched = watch(peer.name, getpid());
      if (!watched.has_value()) _exit(kernel_names_peers() ? 2 : 77);
      _exit(has_ended(watched) ? 3 : 0);
    }
    int status = 1;
    _exit(waitpid(inside, &status, 0) == inside && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  int status = 1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77)));
}

}  // namespace peer_process_test
