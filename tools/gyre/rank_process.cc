#include "tools/gyre/rank_process.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

extern "C" char** environ;

namespace gyre::tools {
namespace {

struct Pipe {
  FileDescriptor read_end;
  FileDescriptor write_end;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Status::from_errno("pipe2", errno);
  return Pipe{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

// The calls between fork and exec, in order; the pipe to the launcher carries place and errno.
constexpr const char* start_calls[] = {
    "setpgid", "prctl", "dup2", "sched_setaffinity", "fcntl", "launcher is gone", "execvp"};
struct StartFailure {
  int call;
  int error_number;
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (const std::string& text : texts) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

// Keys and the end of a terminal are the launcher's affair. A session of its own would keep a rank
// from them, too. But Linux's autogroup shares processors between sessions: sched_yield() of a rank
// that waits would then not hand its processor to the ranks that it waits for (docs/decisions/52).
void leave_terminal() {
  const int terminal = ::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (terminal < 0) return;  // there is none
  ::ioctl(terminal, TIOCNOTTY);
  ::close(terminal);
}

// In the new process. Returns the place in start_calls of what failed, with errno set.
int become_rank(const RankStart& start, pid_t launcher, int out, int err, char** arguments,
                char** variables) {
  leave_terminal();
  if (::setpgid(0, 0) < 0) return 0;
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return 1;
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0 || ::dup2(nothing, STDIN_FILENO) < 0 || ::dup2(out, STDOUT_FILENO) < 0 ||
      ::dup2(err, STDERR_FILENO) < 0)
    return 2;
  if (start.processors != nullptr &&
      ::sched_setaffinity(0, sizeof *start.processors, start.processors) != 0)
    return 3;
  if (::fcntl(start.inherited_descriptor, F_SETFD, 0) != 0) return 4;
  // The launcher may have died before the prctl, which then never fires.
  if (::getppid() != launcher) return 5;
  ::setrlimit(RLIMIT_NOFILE, &start.descriptor_limit);
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGXFSZ, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &start.signal_mask, nullptr);
  environ = variables;
  ::execvp(arguments[0], arguments);
  return 6;
}

}  // namespace

Result<RankProcess> start_rank(const RankStart& start) {
  GYRE_ASSIGN(Pipe out, make_pipe());
  GYRE_ASSIGN(Pipe err, make_pipe());
  GYRE_ASSIGN(Pipe failure, make_pipe());
  std::vector<char*> arguments = pointers(start.command);
  std::vector<char*> variables = pointers(start.environment);
  const pid_t launcher = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return Status::from_errno("fork", errno);
  if (pid == 0) {
    StartFailure report{};
    report.call = become_rank(start, launcher, out.write_end.get(), err.write_end.get(),
                              arguments.data(), variables.data());
    report.error_number = errno;
    [[maybe_unused]] const ssize_t told = ::write(failure.write_end.get(), &report, sizeof report);
    ::_exit(127);
  }
  RankProcess process{pid, std::move(out.read_end), std::move(err.read_end), 0, {}};
  failure.write_end.reset();
  StartFailure report{};
  ssize_t count = 0;
  do {
    count = ::read(failure.read_end.get(), &report, sizeof report);
  } while (count < 0 && errno == EINTR);
  if (count == static_cast<ssize_t>(sizeof report)) {
    process.start_error = report.error_number;
    process.start_call = start_calls[report.call];
  }
  return process;
}

}  // namespace gyre::tools
