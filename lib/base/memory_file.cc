#include "lib/base/memory_file.h"

#include <cerrno>
#include <sys/mman.h>

namespace gyre {
namespace {

#ifndef MFD_NOEXEC_SEAL  // Linux 6.3
constexpr unsigned int MFD_NOEXEC_SEAL = 8;
#endif

}  // namespace

FileDescriptor open_memory_file(const char* name) {
  // Hosts with vm.memfd_noexec=2 refuse a file that may become a program; older kernels do not know
  // the flag, which allows sealing too.
  const int file = ::memfd_create(name, MFD_CLOEXEC | MFD_NOEXEC_SEAL);
  if (file >= 0 || errno != EINVAL) return FileDescriptor(file);
  return FileDescriptor(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
}

}  // namespace gyre
