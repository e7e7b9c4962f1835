#include "transports/p2p/lease.h"

#include "lib/base/memory_file.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gyre::p2p {
namespace {

constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;

// Of an open file, not of a process: a thread of the lender's would otherwise find its own locks
// free.
bool set_lock(int file, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return fcntl(file, F_OFD_SETLK, &lock) == 0;
}

// A file that can never be a program has a seal more.
bool is_sealed(int file) {
  const int has = fcntl(file, F_GET_SEALS);
  return has >= 0 && (has & seals) == seals;
}

}  // namespace

Result<Lease> Lease::make() {
  Lease made;
  made.file_ = open_memory_file("gyre-lease");
  struct stat status {};
  if (!made.file_.has_value() || fcntl(made.file_.get(), F_ADD_SEALS, seals) != 0 ||
      fstat(made.file_.get(), &status) != 0)
    return Status::from_errno("a lease of GPU memory", errno);
  made.name_ = {static_cast<std::uint32_t>(made.file_.get()), status.st_ino};
  return made;
}

bool Lease::end() {
  ended_ = ended_ || set_lock(file_.get(), F_WRLCK);
  return ended_;
}

Result<LeaseBorrower> LeaseBorrower::begin(std::uint32_t pid, const LeaseName& name) {
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, name.descriptor);
  LeaseBorrower made;
  // Only looked at first: opening what an unauthenticated client chose may do something.
  const FileDescriptor seen(::open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat status {};
  if (!seen.has_value() || fstat(seen.get(), &status) != 0)
    return Status(Code::RemoteError,
                  fmt::format("its process's {} cannot be opened ({}): both need one user and one "
                              "namespace of processes",
                              path, strerror(errno)));
  if (S_ISREG(status.st_mode) && status.st_ino == name.inode)
    made.file_ = FileDescriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!made.file_.has_value() || fstat(made.file_.get(), &status) != 0 ||
      status.st_ino != name.inode || !is_sealed(made.file_.get()))
    return Status(Code::RemoteError, fmt::format("{} is no lease of GPU memory", path));
  if (!set_lock(made.file_.get(), F_RDLCK))
    return Status(Code::RemoteError, "it has taken its memory back");
  return made;
}

// Unlocked before it is closed: a forked child may have the same open file.
LeaseBorrower::~LeaseBorrower() {
  if (file_.has_value()) (void)set_lock(file_.get(), F_UNLCK);
}

}  // namespace gyre::p2p
