#include "lib/base/prompt_write.h"

#include "lib/base/owned.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <ctime>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

namespace gyre {
namespace {

// Opened anew, it can be non-blocking for us alone: the flag belongs to whoever shares the file.
ssize_t write_reopened(int descriptor, std::string_view bytes) {
  char path[40];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
  const FileDescriptor own(::open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  return own.has_value() ? ::write(own.get(), bytes.data(), bytes.size()) : -1;
}

// A pipe that polls writable takes PIPE_BUF bytes, if nobody else is quicker; a terminal, one.
ssize_t write_when_ready(int descriptor, bool is_terminal, std::string_view bytes) {
  pollfd ready{descriptor, POLLOUT, 0};
  if (::poll(&ready, 1, 0) <= 0 || ready.revents != POLLOUT) return -1;
  const std::size_t room = is_terminal ? 1 : PIPE_BUF;
  return ::write(descriptor, bytes.data(), std::min(bytes.size(), room));
}

// Pipes, terminals and other devices.
ssize_t write_now(int descriptor, bool is_pipe, std::string_view bytes) {
  const iovec all{const_cast<char*>(bytes.data()), bytes.size()};
  const ssize_t written = ::pwritev2(descriptor, &all, 1, -1, RWF_NOWAIT);
  if (written >= 0 || (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)) return written;
  const bool is_terminal = !is_pipe && isatty(descriptor) == 1;
  if (is_pipe || is_terminal) {
    const ssize_t reopened = write_reopened(descriptor, bytes);
    if (reopened >= 0 || errno == EAGAIN || errno == ENXIO) return reopened;
  }  // another user's cannot be opened again
  return write_when_ready(descriptor, is_terminal, bytes);
}

ssize_t write_once(int descriptor, const struct stat& about, std::string_view bytes) {
  if (S_ISREG(about.st_mode)) return ::write(descriptor, bytes.data(), bytes.size());
  if (S_ISSOCK(about.st_mode))
    return ::send(descriptor, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return write_now(descriptor, S_ISFIFO(about.st_mode), bytes);
}

}  // namespace

WriteSignalsHeld::WriteSignalsHeld() {
  sigemptyset(&ours_);
  sigaddset(&ours_, SIGPIPE);
  sigaddset(&ours_, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &ours_, &mask_before_);
  sigset_t pending;
  sigpending(&pending);
  for (const int one : {SIGPIPE, SIGXFSZ})
    if (sigismember(&pending, one) == 1) sigdelset(&ours_, one);
}

WriteSignalsHeld::~WriteSignalsHeld() {
  const int error = errno;
  const timespec at_once{};
  while (sigtimedwait(&ours_, nullptr, &at_once) > 0) continue;
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  errno = error;
}

std::size_t write_promptly(int descriptor, std::string_view bytes) {
  const WriteSignalsHeld held;
  struct stat about {};
  if (fstat(descriptor, &about) != 0) return 0;
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written = write_once(descriptor, about, bytes.substr(done));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    done += static_cast<std::size_t>(written);
  }
  return done;
}

}  // namespace gyre
