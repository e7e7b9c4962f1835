#include "tools/gyre/job_guard.h"

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace gyre::tools {
namespace {

constexpr pid_t all_is_well = 0;

// Sleeps on the line until it ends. No word but group ids before that: kill these groups.
void keep_guard(int line) {
  std::vector<pid_t> groups;
  pid_t group = 0;
  for (;;) {
    const ssize_t count = ::read(line, &group, sizeof group);
    if (count < 0 && errno == EINTR) continue;
    if (count != static_cast<ssize_t>(sizeof group)) break;
    if (group == all_is_well) return;
    groups.push_back(group);
  }
  for (pid_t each : groups) ::kill(-each, SIGKILL);
}

// Of this process's descriptors. close_range() needs glibc 2.34 and Linux 5.9.
void close_all_but(int kept) {
  std::vector<int> found;
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc/self/fd", error);
  for (; entry != std::filesystem::directory_iterator(); entry.increment(error))
    found.push_back(std::atoi(entry->path().filename().c_str()));
  for (int each : found)
    if (each != kept) ::close(each);
}

[[noreturn]] void be_guard(int line) {
  // Its own session: what ends the launcher's group, or its terminal, must not end the guard.
  ::setsid();
  ::prctl(PR_SET_NAME, "gyre-guard");
  for (int signal_number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(signal_number, SIG_IGN);
  // Nothing of the launcher's stays open here, or a reader of its output would wait for the guard.
  if (::dup2(line, 0) < 0) ::_exit(1);
  close_all_but(0);
  keep_guard(0);
  ::_exit(0);
}

}  // namespace

Result<JobGuard> JobGuard::start() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Status::from_errno("pipe2", errno);
  FileDescriptor read_end(ends[0]);
  FileDescriptor write_end(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return Status::from_errno("fork", errno);
  if (pid == 0) be_guard(read_end.get());
  return JobGuard(std::move(write_end), pid);
}

void JobGuard::watch(pid_t group) const {
  [[maybe_unused]] const ssize_t told = ::write(line_.get(), &group, sizeof group);
}

JobGuard::~JobGuard() {
  if (!line_.has_value()) return;
  watch(all_is_well);
  line_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace gyre::tools
