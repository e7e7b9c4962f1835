#include "lib/base/owned.h"

#include "lib/base/descriptor_mark.h"

#include <cerrno>
#include <fcntl.h>

namespace gyre {

void FileDescriptorTraits::close(int descriptor) {
  if (descriptor_mark_stands()) ::close(descriptor);
}

int FileDescriptorTraits::move_up(int descriptor) {
  const int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  ::close(descriptor);
  if (moved < 0) errno = error;
  return moved;
}

}  // namespace gyre
