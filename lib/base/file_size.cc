#include "lib/base/file_size.h"

#include <fmt/core.h>

#include <cerrno>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace gyre {
namespace {

Status check_limit(std::uint64_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur) return {};
  Status refused(Code::SystemError,
                 fmt::format("{} bytes of shared memory are more than this process may give a file "
                             "(RLIMIT_FSIZE, {} bytes): raise ulimit -f",
                             bytes, limit.rlim_cur));
  errno = EFBIG;
  return refused;
}

Status size_failure(const char* call, std::uint64_t bytes, int error) {
  Status failed =
      Status::from_errno(fmt::format("{} of {} bytes of shared memory", call, bytes), error);
  errno = error;
  return failed;
}

}  // namespace

Status set_file_size(int file, std::uint64_t bytes) {
  GYRE_TRY(check_limit(bytes));
  if (ftruncate(file, static_cast<off_t>(bytes)) == 0) return {};
  return size_failure("ftruncate", bytes, errno);
}

Status reserve_file_size(int file, std::uint64_t bytes) {
  GYRE_TRY(check_limit(bytes));
  const int error = posix_fallocate(file, 0, static_cast<off_t>(bytes));
  return error == 0 ? Status() : size_failure("posix_fallocate", bytes, error);
}

}  // namespace gyre
