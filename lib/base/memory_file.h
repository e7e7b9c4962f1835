// Memory files: files without a name that live in memory and end with their last user. Another
// process of the host opens one through /proc/PID/fd, or receives its descriptor.
#pragma once

#include "lib/base/owned.h"

namespace gyre {

// Empty, close-on-exec, for its maker to seal; never a program, where the kernel can promise that
// (it is then sealed against becoming one as well). `name` is for people. No file, and errno, where
// the kernel or a sandbox gives none.
FileDescriptor open_memory_file(const char* name);

}  // namespace gyre
