// Which failures of system calls are this process's own: what it wants to reach is not to blame.
#pragma once

#include <cerrno>

namespace gyre {

// The process, or its host, has no descriptors or memory left.
inline bool is_shortage(int error_number) {
  return error_number == EMFILE || error_number == ENFILE || error_number == ENOBUFS ||
         error_number == ENOMEM;
}

}  // namespace gyre
