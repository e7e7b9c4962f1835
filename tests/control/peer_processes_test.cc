// How the process notices that the process at the other end of a local socket has ended.
#include "lib/control/peer_processes.h"

#include "tests/support/catch.h"

#include <chrono>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace peer_processes_test {

using namespace gyre;
using namespace gyre::control;

namespace {

// A child that has connected to this process and lives until `release` is closed.
struct Child {
  std::vector<FileDescriptor> sockets;
  FileDescriptor release;
  pid_t pid = 0;

  explicit Child(int connections) {
    const FileDescriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(sa_family_t)) ==
            0);  // a name of the kernel's choice
    socklen_t length = sizeof address;
    REQUIRE(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
    REQUIRE(::listen(listener.get(), 8) == 0);
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    release = FileDescriptor(ends[1]);
    pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      ::close(ends[1]);
      for (int i = 0; i < connections; ++i) {
        const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
        if (::connect(socket, reinterpret_cast<sockaddr*>(&address), length) != 0) _exit(1);
      }
      char byte = 0;
      [[maybe_unused]] const ssize_t got = ::read(ends[0], &byte, 1);
      _exit(0);
    }
    ::close(ends[0]);
    for (int i = 0; i < connections; ++i)
      sockets.emplace_back(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  ~Child() { end(); }
  void end() {
    release.reset();
    if (pid > 0) waitpid(std::exchange(pid, 0), nullptr, 0);
  }
};

template <typename Condition>
bool soon(ControlThread& thread, Condition&& holds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (std::chrono::steady_clock::now() < until) {
    bool held = false;
    thread.call([&] { held = holds(); });
    if (held) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace

TEST_CASE("all who watch a process share one descriptor and hear of its end", "[control]") {
  Child child(4);
  auto thread = ControlThread::start();
  REQUIRE(thread.ok());
  ControlThread& control = **thread;
  PeerProcesses processes(control);
  std::vector<PeerProcesses::Watch> watches(4);
  std::vector<int> told(4);
  std::size_t shared = 0, left = 0;
  control.call([&] {
    for (std::size_t i = 0; i < watches.size(); ++i)
      watches[i] = processes.watch(child.sockets[i].get(), [&, i] {
        ++told[i];
        watches[i].reset();  // as a link does
        watches[3].reset();  // and it may end another's
      });
    shared = processes.size();
    watches[1].reset();
    left = processes.size();
  });
  const auto told_so_far = [&] {
    std::vector<int> copy;
    control.call([&] { copy = told; });
    return copy;
  };
  CHECK(shared == 1);
  CHECK(left == 1);
  CHECK(told_so_far() == std::vector<int>(4, 0));
  child.end();
  CHECK(soon(control, [&] { return told[0] == 1 && told[2] == 1 && processes.size() == 0; }));
  CHECK(told_so_far() == std::vector<int>{1, 0, 1, 0});
}

TEST_CASE("a process is watched no longer than anybody asks", "[control]") {
  Child first(1), second(1);
  auto thread = ControlThread::start();
  REQUIRE(thread.ok());
  PeerProcesses processes(**thread);
  std::size_t both = 0, one = 0, none = 1;
  (*thread)->call([&] {
    auto watch = processes.watch(first.sockets[0].get(), [] {});
    auto other = processes.watch(second.sockets[0].get(), [] {});
    both = processes.size();
    watch.reset();
    one = processes.size();
    other = {};
    none = processes.size();
  });
  CHECK(both == 2);
  CHECK(one == 1);
  CHECK(none == 0);
}

}  // namespace peer_processes_test
