// The control thread alone: a function that is handed to it runs once or is known not to run,
// whatever it throws; the thread ends where its descriptors have gone.
#include "lib/control/control_thread.h"

#include "lib/base/clock.h"
#include "tests/support/catch.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <new>
#include <stdexcept>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace control_thread_test {

using namespace gyre;
using namespace gyre::control;

namespace {

std::shared_ptr<ControlThread> start() {
  auto thread = ControlThread::start();
  REQUIRE(thread.ok());
  return std::move(thread).value();
}

struct Heard {
  explicit Heard(ControlThread& thread) {
    const auto hear = [this](const Status& why) {
      const std::lock_guard lock(mutex);
      all.push_back(why);
    };
    REQUIRE(thread.call([&] { thread.on_trouble(hear); }));
  }
  std::vector<Status> so_far() {
    const std::lock_guard lock(mutex);
    return all;
  }
  std::mutex mutex;
  std::vector<Status> all;
};

}  // namespace

TEST_CASE("what a call throws comes to its caller, and the thread goes on", "[control thread]") {
  const auto thread = start();
  Heard heard(*thread);
  CHECK_THROWS_AS(thread->call([] { throw std::bad_alloc(); }), std::bad_alloc);
  CHECK_THROWS_AS(thread->call([] { throw std::runtime_error("x"); }), std::runtime_error);
  CHECK(heard.so_far().empty());
  int ran = 0;
  CHECK(thread->call([&] { ran = 1; }));
  CHECK(ran == 1);
}

TEST_CASE("what else throws is heard of, and what was posted after it runs", "[control thread]") {
  const auto thread = start();
  Heard heard(*thread);
  std::atomic<int> ran{0}, ticks{0};
  CHECK(thread->call([&] {  // so that all is posted before any of it runs
    CHECK(thread->post([] { throw std::bad_alloc(); }));
    CHECK(thread->post([&] { ++ran; }));
    CHECK(thread->post([] { throw std::runtime_error("no reason"); }));
    CHECK(thread->post([&] { ++ran; }));
  }));
  const FileDescriptor event(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  ControlThread::Watch watch;
  CHECK(thread->call([&] {
    auto watched = thread->watch(event.get(), EPOLLIN, [&](std::uint32_t) {
      eventfd_t value = 0;
      eventfd_read(event.get(), &value);
      throw std::bad_alloc();
    });
    watch = std::move(watched).value();
    thread->on_tick([&](std::int64_t, std::int64_t) -> std::int64_t {
      if (++ticks < 3) throw std::bad_alloc();
      return never_ns;
    });
  }));
  const auto until = SystemClock::read() + 20 * ns_per_s;
  while (SystemClock::read() < until && (ticks < 3 || heard.so_far().size() < 5))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(thread->call([&] { watch.reset(); }));
  CHECK(ran == 2);
  CHECK(ticks == 3);
  int out_of_memory = 0, others = 0;
  for (const Status& one : heard.so_far())
    ++(one.code() == Code::SystemError ? out_of_memory : others);
  CHECK(out_of_memory == 4);
  CHECK(others == 1);
}

TEST_CASE("who waits for a thread that has ended waits no longer", "[control thread]") {
  const auto thread = start();
  std::vector<std::thread> callers;
  std::atomic<int> ran{0}, refused{0};
  std::atomic<bool> go_on{true};
  for (int i = 0; i < 4; ++i)
    callers.emplace_back([&] {
      while (go_on) ++(thread->call([] {}) ? ran : refused);
    });
  while (ran < 1000) std::this_thread::yield();
  thread->stop();
  while (refused < 1000) std::this_thread::yield();
  go_on = false;
  for (std::thread& one : callers) one.join();
  CHECK_FALSE(thread->call([] {}));
  CHECK_FALSE(thread->post([] {}));
  CHECK(thread->verdict().code() == Code::InvalidUsage);
}

enum Ending { called_and_ran = 0, was_wrong = 1, ended_before_the_call = 2 };

// Of a process that closes its control thread's descriptors and calls the thread then. A thread
// that did not sleep yet finds them closed before the call.
Ending call_without_descriptors() {
  alarm(30);
  auto thread = start();
  Heard heard(*thread);
  closefrom(3);
  int ran = 0;
  const bool called = thread->call([&] { ran = 1; });
  while (heard.so_far().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const bool again = thread->call([&] { ran = 2; });
  const bool good = ran == (called ? 1 : 0) && !again && heard.so_far().size() == 1 &&
                    thread->verdict().code() == Code::SystemError && !ControlThread::start().ok();
  thread.reset();  // joined: the sanitizer looks for threads that are left
  if (!good) return was_wrong;
  return called ? called_and_ran : ended_before_the_call;
}

TEST_CASE("a thread without descriptors says so, runs what it has, and ends", "[control thread]") {
  int ended = ended_before_the_call;
  for (int attempt = 0; attempt < 50 && ended == ended_before_the_call; ++attempt) {
    std::fflush(nullptr);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) _exit(call_without_descriptors());
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    ended = WEXITSTATUS(status);
  }
  CHECK(ended == called_and_ran);
}

}  // namespace control_thread_test
