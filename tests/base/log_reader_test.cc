// The log and its reader: slow, stopped, gone, or never there. No log line waits for the reader,
// and none ends the process.
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/owned.h"
#include "tests/support/catch.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

namespace log_reader_test {

using namespace gyre;

namespace {

constexpr int lines = 1000;
constexpr int wrong = 1, too_slow = 2;
const std::string losses = "lines lost here: ";

// Carries `body` out in a process of its own, whose stderr it may spoil: 0, what `body` ended with,
// or minus the signal that ended it.
int in_a_process(const std::function<void()>& body) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(20);
    if (!configure_log(LogLevel::warn, "").ok()) _exit(wrong);
    body();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

void demand(bool holds) {
  if (!holds) _exit(wrong);
}

// No more than a thousand lines take, and far less than a control thread may be silent for.
void log_many() {
  const std::int64_t begun = SystemClock::read();
  for (int i = 0; i < lines; ++i) log_warn("line {} {}", i, std::string(200, 'x'));
  if (SystemClock::read() - begun > 5 * ns_per_s) _exit(too_slow);
}

struct Ends {
  FileDescriptor read, write;
};
Ends make_pipe() {
  int ends[2];
  demand(pipe2(ends, O_CLOEXEC) == 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}
Ends make_socket() {
  int ends[2];
  demand(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}
Ends make_terminal() {
  Ends ends{FileDescriptor(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)), {}};
  demand(grantpt(ends.read.get()) == 0 && unlockpt(ends.read.get()) == 0);
  ends.write = FileDescriptor(open(ptsname(ends.read.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  demand(ends.write.has_value());
  return ends;
}
void make_stderr(const FileDescriptor& file) { demand(dup2(file.get(), STDERR_FILENO) == 2); }

// All that is there now.
std::string read_all(const FileDescriptor& from) {
  demand(fcntl(from.get(), F_SETFL, O_NONBLOCK) == 0);
  std::string text, piece(1 << 16, '\0');
  for (ssize_t count = 0; (count = read(from.get(), piece.data(), piece.size())) > 0;)
    text.append(piece, 0, static_cast<std::size_t>(count));
  return text;
}

// Every line came, or is among those that are said to be lost: whole ones and lost ones.
int account(const std::string& text) {
  int known = 0;
  for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != text.npos; at = end + 1) {
    const std::string line = text.substr(at, end - at);
    const std::size_t told = line.find(losses);
    if (told != line.npos) known += std::stoi(line.substr(told + losses.size()));
    known += line.find(std::string(200, 'x')) != line.npos ? 1 : 0;
  }
  return known;
}

// From here on, as on a kernel that cannot write to pipes without waiting.
void deny_prompt_writes() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pwritev2, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{.len = std::size(rules), .filter = rules};
  demand(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  demand(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

// From here on, as where /proc is not there either.
void deny_reopening() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{.len = std::size(rules), .filter = rules};
  demand(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  demand(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

}  // namespace

TEST_CASE("a reader who does not read keeps nobody waiting, and learns what it missed", "[log]") {
  const auto [make, kind] = GENERATE(table<Ends (*)(), std::string>(
      {{make_pipe, "pipe"}, {make_socket, "socket"}, {make_terminal, "terminal"}}));
  const int denied = GENERATE(0, 1, 2);
  CAPTURE(kind, denied);
  CHECK(in_a_process([make = make, denied] {
          const Ends ends = make();
          make_stderr(ends.write);
          if (denied >= 1) deny_prompt_writes();
          if (denied >= 2) deny_reopening();
          log_many();
          const std::string before = read_all(ends.read);
          log_warn("the last line");
          const std::string after = read_all(ends.read);
          // Of a line that was cut, only the end may be missing.
          const int known = account(before + after);
          demand(account(before) < lines && known >= lines && known <= lines + 5);
          demand(after.find("the last line") != after.npos);
        }) == 0);
}

TEST_CASE("a terminal that was stopped keeps nobody waiting", "[log]") {
  CHECK(in_a_process([] {
          const Ends ends = make_terminal();
          make_stderr(ends.write);
          demand(tcflow(STDERR_FILENO, TCOOFF) == 0);
          log_many();
          demand(read_all(ends.read).empty());
          demand(tcflow(STDERR_FILENO, TCOON) == 0);
          log_warn("the last line");
          const std::string after = read_all(ends.read);
          demand(after.find(losses + std::to_string(lines)) != after.npos);
          demand(after.find("the last line") != after.npos);
        }) == 0);
}

TEST_CASE("a reader who has gone ends nobody", "[log]") {
  const auto make = GENERATE(make_pipe, make_socket, make_terminal);
  const bool denied = GENERATE(false, true);
  CHECK(in_a_process([&] {
          Ends ends = make();
          make_stderr(ends.write);
          if (denied) deny_prompt_writes();
          ends.read.reset();
          log_many();
        }) == 0);
}

TEST_CASE("the program's own SIGPIPE is left to it", "[log]") {
  CHECK(in_a_process([] {
          static volatile int caught = 0;
          struct sigaction action {};
          action.sa_handler = [](int) { caught = caught + 1; };
          sigaction(SIGPIPE, &action, nullptr);
          Ends ends = make_pipe();
          make_stderr(ends.write);
          ends.read.reset();
          log_many();
          demand(caught == 0);
          sigset_t pipe_alone, pending;
          sigemptyset(&pipe_alone);
          sigaddset(&pipe_alone, SIGPIPE);
          sigprocmask(SIG_BLOCK, &pipe_alone, nullptr);
          log_many();
          demand(sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 0);
          raise(SIGPIPE);
          log_many();
          demand(sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1);
          sigprocmask(SIG_UNBLOCK, &pipe_alone, nullptr);
          demand(caught == 1);
        }) == 0);
}

TEST_CASE("a log at the limit of a file's size ends nobody", "[log]") {
  CHECK(in_a_process([] {
          char name[] = "/tmp/gyre-test-limit-XXXXXX";
          const FileDescriptor file(mkostemp(name, O_CLOEXEC));
          unlink(name);
          make_stderr(file);
          const rlimit limit{.rlim_cur = 4096, .rlim_max = 4096};
          demand(setrlimit(RLIMIT_FSIZE, &limit) == 0);
          log_many();
          demand(lseek(file.get(), 0, SEEK_END) == 4096);
        }) == 0);
}

TEST_CASE("no line goes into a file that is not the log", "[log]") {
  CHECK(in_a_process([] {
          close(STDERR_FILENO);
          log_warn("nowhere");
          // As the library opens its own, for a moment.
          char name[] = "/tmp/gyre-test-other-XXXXXX";
          const int low = mkostemp(name, O_CLOEXEC);
          unlink(name);
          demand(low == STDERR_FILENO);
          log_warn("nowhere");
          demand(lseek(low, 0, SEEK_END) == 0);
          // And as the program does.
          demand(fcntl(low, F_SETFD, 0) == 0);
          log_warn("here");
          demand(lseek(low, 0, SEEK_END) > 0);
        }) == 0);
  CHECK(in_a_process([] {
          char log[] = "/tmp/gyre-test-log-XXXXXX", name[] = "/tmp/gyre-test-other-XXXXXX";
          const FileDescriptor made(mkostemp(log, O_CLOEXEC));
          demand(configure_log(LogLevel::warn, log).ok());
          unlink(log);
          log_warn("there");
          demand(lseek(made.get(), 0, SEEK_END) > 0);
          for (int descriptor = 3; descriptor < 256; ++descriptor) close(descriptor);
          for (int i = 0; i < 8; ++i) {
            const int other = mkostemp(name, O_CLOEXEC);
            unlink(name);
            std::copy_n("XXXXXX", 6, name + sizeof name - 7);
            log_warn("nowhere");
            demand(lseek(other, 0, SEEK_END) == 0);
          }
        }) == 0);
}

TEST_CASE("a descriptor of the library is never one of the standard streams", "[log]") {
  CHECK(in_a_process([] {
          for (const int standard : {0, 1, 2}) close(standard);
          FileDescriptor kept[3];
          for (FileDescriptor& one : kept) {
            one = FileDescriptor(open("/dev/null", O_WRONLY | O_CLOEXEC));
            demand(one.get() > STDERR_FILENO);
            demand(fcntl(one.get(), F_GETFD) == FD_CLOEXEC);
          }
          for (const int standard : {0, 1, 2})
            demand(fcntl(standard, F_GETFD) == -1 && errno == EBADF);
        }) == 0);
}

}  // namespace log_reader_test
