#include "lib/base/descriptor_mark.h"

#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gyre {
namespace {

// A socket: unlike an eventfd it has an inode of its own, by which it is known again.
std::atomic<int> mark{-1};
std::atomic<ino_t> mark_inode{0};
std::atomic<pid_t> marked_process{0};

bool stands(int descriptor) {
  struct stat about {};
  return fstat(descriptor, &about) == 0 && S_ISSOCK(about.st_mode) &&
         about.st_ino == mark_inode.load(std::memory_order_relaxed);
}

}  // namespace

int above_standard_streams(int descriptor) {
  if (descriptor < 0 || descriptor > STDERR_FILENO) return descriptor;
  const int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  ::close(descriptor);
  if (moved < 0) errno = error;
  return moved;
}

Status set_descriptor_mark() {
  if (mark.load(std::memory_order_acquire) >= 0) {
    const bool is_own = marked_process.exchange(getpid(), std::memory_order_relaxed) == getpid();
    if (descriptor_mark_stands()) return {};
    if (is_own) return descriptors_are_gone();
  }
  const int made = above_standard_streams(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  struct stat about {};
  if (made < 0 || fstat(made, &about) != 0) return Status::from_errno("a socket", errno);
  mark_inode.store(about.st_ino, std::memory_order_relaxed);
  marked_process.store(getpid(), std::memory_order_relaxed);
  // Pairs with the acquire in descriptor_mark_stands.
  mark.store(made, std::memory_order_release);
  return {};
}

bool descriptor_mark_stands() {
  const int descriptor = mark.load(std::memory_order_acquire);
  return descriptor < 0 || stands(descriptor);
}

Status descriptors_are_gone() {
  return Status(Code::SystemError,
                "the program closed descriptors of Gyre's (closefrom, or a loop over all numbers): "
                "close none that you did not open, or do it before the first communicator");
}

}  // namespace gyre
