// Recognises failed system calls for which this process or its host is to blame, not the peer.
#pragma once

#include <cerrno>

namespace gyre {

// The process, or its host, has no descriptors or memory left.
inline bool is_shortage(int error_number) {
  return error_number == EMFILE || error_number == ENFILE || error_number == ENOBUFS ||
         error_number == ENOMEM;
}

}  // namespace gyre
