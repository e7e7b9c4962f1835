// Locks are those of open file descriptions (fcntl(2), F_OFD_*), which end with their holder, also
// by kill -9. Byte 0 is locked while rank 0 lives. The holder of byte 1 may remove a dead one's
// file.
#include "lib/rendezvous/id_file.h"

#include "lib/base/log.h"
#include "lib/rendezvous/rendezvous_address.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gyre::rendezvous {
namespace {

constexpr off_t alive_byte = 0, removal_byte = 1;
constexpr std::size_t max_secret = 4096;
constexpr mode_t private_mode = 0600;

struct flock write_lock(off_t byte) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

// Nobody holds `byte`. A file system that cannot tell counts as held.
bool is_free(int file, off_t byte) {
  struct flock lock = write_lock(byte);
  return fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

bool take(int file, off_t byte) {
  struct flock lock = write_lock(byte);
  return fcntl(file, F_OFD_SETLK, &lock) == 0;
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

Status refuse(const std::string& path, std::string_view what) {
  return invalid_usage(fmt::format("{} {}", path, what));
}

// A regular file of ours with nothing for others; no descriptor: there is none.
Result<FileDescriptor> open_private(const std::string& path, int flags, bool exact_mode) {
  // O_NONBLOCK: a FIFO must not hold us.
  FileDescriptor file(::open(path.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file.has_value() && errno == ENOENT) return FileDescriptor();
  if (!file.has_value() && errno == ELOOP)
    return refuse(path, "is a symbolic link; give the file itself");
  if (!file.has_value() && errno == EISDIR) return refuse(path, "is not a regular file");
  if (!file.has_value()) return Status::from_errno(fmt::format("opening {}", path), errno);
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0)
    return Status::from_errno(fmt::format("fstat of {}", path), errno);
  if (!S_ISREG(facts.st_mode)) return refuse(path, "is not a regular file");
  if (facts.st_uid != geteuid())
    return refuse(
        path, fmt::format("belongs to another user (uid {}, we are {})", facts.st_uid, geteuid()));
  const mode_t mode = facts.st_mode & 07777;
  if (exact_mode ? mode != private_mode : (mode & 0077) != 0)
    return refuse(path, fmt::format("has mode {:04o} and must have 0600: it holds a secret that "
                                    "lets others into the job",
                                    mode));
  return file;
}

struct IdFileContents {
  FileDescriptor file;
  trust::UniqueId id;
  bool root_gone = false;
};

// What is at `path`, if anything.
Result<std::optional<IdFileContents>> inspect(const std::string& path, int flags,
                                              const trust::Token& this_host) {
  IdFileContents found;
  GYRE_ASSIGN(found.file, open_private(path, flags, true));
  if (!found.file.has_value()) return std::optional<IdFileContents>();
  trust::EncodedId bytes;
  trust::Wiped<trust::unique_id_bytes + 1> content;
  const ssize_t got = ::pread(found.file.get(), content.data(), content.size(), 0);
  if (got < 0) return Status::from_errno(fmt::format("reading {}", path), errno);
  if (got != static_cast<ssize_t>(bytes.size()))
    return refuse(path,
                  fmt::format("has {} {} bytes, an id has {}: it is another file",
                              got > static_cast<ssize_t>(bytes.size()) ? "more than" : "only",
                              std::min<std::size_t>(static_cast<std::size_t>(got), bytes.size()),
                              bytes.size()));
  std::memcpy(bytes.data(), content.data(), bytes.size());
  auto id = trust::decode_unique_id(bytes);
  if (!id.ok()) return std::move(id).status().while_doing(path);
  found.id = *id;
  // Locks of another host may not be visible here.
  found.root_gone = found.id.root_host == this_host && is_free(found.file.get(), alive_byte);
  return std::optional(std::move(found));
}

bool is_same_file(int file, const std::string& path) {
  struct stat open_one {
  }, named_one{};
  return ::fstat(file, &open_one) == 0 && ::lstat(path.c_str(), &named_one) == 0 &&
         open_one.st_ino == named_one.st_ino && open_one.st_dev == named_one.st_dev;
}

// Success: there is nothing at `path` any more, or something else than there was.
Status clear_away(const std::string& path, const trust::Token& this_host) {
  GYRE_ASSIGN(const std::optional<IdFileContents> found, inspect(path, O_RDWR, this_host));
  if (!found) return Status();
  if (!found->root_gone)
    return refuse(path,
                  "is the meeting file of a job that runs, or of one on another host, which "
                  "cannot be told from here. Give each job its own GYRE_RENDEZVOUS_FILE, or "
                  "remove the file if its job is over");
  // Of two that replace the same file one may remove it, and the other must look again.
  if (!take(found->file.get(), removal_byte) || !is_same_file(found->file.get(), path))
    return Status();
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    return Status::from_errno(fmt::format("removing {}, the file of a dead job", path), errno);
  log_info(Subsystem::bootstrap, "{}: replaced the file of a dead job", path);
  return Status();
}

struct TemporaryFile {
  std::string name;  // empty: it has none
  FileDescriptor file;
};

std::string open_file_path(int file) { return fmt::format("/proc/self/fd/{}", file); }

// Without a name, so that nothing is left of it if we are killed; file systems that know of no such
// files (NFS) give it one of its own in the same folder.
Result<TemporaryFile> open_draft(const std::string& path) {
  const std::string folder = folder_of(path);
  TemporaryFile draft{
      {}, FileDescriptor(::open(folder.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, private_mode))};
  if (draft.file.has_value() && ::access(open_file_path(draft.file.get()).c_str(), F_OK) == 0)
    return draft;
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number)
    return Status::from_errno("getrandom", errno);
  draft.name = fmt::format("{}.{:016x}", path, number);
  draft.file = FileDescriptor(
      ::open(draft.name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, private_mode));
  if (!draft.file.has_value())
    return Status::from_errno(fmt::format("making a file in {}", folder), errno);
  return draft;
}

// A locked file with the id, in the folder of `path`.
Result<TemporaryFile> make_draft(const std::string& path, const trust::UniqueId& id) {
  GYRE_ASSIGN(const auto bytes, trust::encode(id));
  GYRE_ASSIGN(TemporaryFile draft, open_draft(path));
  const int file = draft.file.get();
  // fsync: readers on other hosts see what the server of the file system has.
  const bool written =
      ::fchmod(file, private_mode) == 0 &&
      ::write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) &&
      ::fsync(file) == 0;
  if (!written) {
    const int error = errno;
    if (!draft.name.empty()) ::unlink(draft.name.c_str());
    return Status::from_errno(fmt::format("writing a file in {}", folder_of(path)), error);
  }
  // Where locks do not work, the others cannot tell either, and trust what is there.
  if (!take(file, alive_byte))
    log_info(Subsystem::bootstrap, "{}: no locks on this file system", path);
  return draft;
}

// linkat(2), not rename(2): it never takes the place of another job's file.
Status link_in(const TemporaryFile& draft, const std::string& path, const trust::Token& this_host,
               Wait& wait) {
  const std::string from = draft.name.empty() ? open_file_path(draft.file.get()) : draft.name;
  const int flags = draft.name.empty() ? AT_SYMLINK_FOLLOW : 0;
  while (::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, path.c_str(), flags) != 0) {
    if (errno != EEXIST)
      return Status::from_errno(fmt::format("giving a file the name {}", path), errno);
    GYRE_TRY(clear_away(path, this_host));
    // Another may be about to remove it.
    if (!rest(wait))
      return Status(Code::Timeout, fmt::format("other processes replace {} again and again", path));
  }
  return Status();
}

}  // namespace

Result<std::shared_ptr<IdFile>> IdFile::publish(const std::string& path, const trust::UniqueId& id,
                                                const trust::Token& this_host, Wait& wait) {
  GYRE_ASSIGN(TemporaryFile draft, make_draft(path, id));
  const Status linked = link_in(draft, path, this_host, wait);
  if (!draft.name.empty()) ::unlink(draft.name.c_str());
  if (!linked.ok()) return linked;
  return std::shared_ptr<IdFile>(new IdFile(path, std::move(draft.file)));
}

IdFile::~IdFile() {
  if (getpid() == owner_ && is_same_file(file_.get(), path_)) ::unlink(path_.c_str());
}

Result<trust::UniqueId> read_id_file(const std::string& path, const trust::Token& this_host,
                                     const std::optional<trust::UniqueId>& tried,
                                     std::int64_t timeout_s, Wait& wait) {
  bool seen_dead = false;
  do {
    GYRE_ASSIGN(const std::optional<IdFileContents> found, inspect(path, O_RDONLY, this_host));
    const bool was_tried = found && tried && found->id.secret == tried->secret;
    if (found && !found->root_gone && !was_tried) return found->id;
    seen_dead = found && found->root_gone;
  } while (rest(wait));
  if (seen_dead)
    return Status(Code::Timeout, fmt::format("{} is the file of a dead job, and rank 0 of this job "
                                             "has not replaced it within {} s",
                                             path, timeout_s))
        .blame({0});
  return Status(Code::Timeout, fmt::format("rank 0 has not written {} within {} s. Is it running, "
                                           "and does it see the same folder?",
                                           path, timeout_s))
      .blame({0});
}

Result<std::vector<std::uint8_t>> read_secret_file(const std::string& path, std::size_t least) {
  GYRE_ASSIGN(const FileDescriptor file, open_private(path, O_RDONLY, false));
  if (!file.has_value()) return refuse(path, "does not exist");
  trust::Wiped<max_secret + 1> content;
  const ssize_t got = ::pread(file.get(), content.data(), content.size(), 0);
  if (got < 0) return Status::from_errno(fmt::format("reading {}", path), errno);
  const auto bytes = static_cast<std::size_t>(got);
  if (bytes < least || bytes > max_secret)
    return refuse(path, fmt::format("must have {} to {} bytes (as from: head -c 32 /dev/urandom)",
                                    least, max_secret));
  return std::vector<std::uint8_t>(content.begin(), content.begin() + bytes);
}

}  // namespace gyre::rendezvous
