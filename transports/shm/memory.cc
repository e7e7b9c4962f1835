#include "transports/shm/memory.h"

#include "lib/base/file_size.h"
#include "lib/base/log.h"
#include "lib/base/memory_file.h"
#include "lib/base/units.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gyre::transport {
namespace {

constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW;

std::size_t mapped_bytes(const FifoShape& shape) { return round_up(fifo_bytes(shape), 4096); }

bool is_denial(int error) { return error == ENOSYS || error == EPERM || error == EACCES; }

Result<SharedFifo> make_memfd(FileDescriptor descriptor, std::size_t bytes) {
  GYRE_TRY(set_file_size(descriptor.get(), bytes));
  if (fcntl(descriptor.get(), F_ADD_SEALS, size_seals | F_SEAL_SEAL) != 0)
    return Status::from_errno("fcntl(F_ADD_SEALS) on a memfd", errno);
  return SharedFifo{nullptr, std::move(descriptor), true};
}

// It never has a name, so that nobody can open it and a process that is killed leaves nothing.
Result<SharedFifo> make_nameless_file(std::size_t bytes) {
  FileDescriptor descriptor(open("/dev/shm", O_RDWR | O_TMPFILE | O_EXCL | O_CLOEXEC, 0600));
  if (!descriptor.has_value())
    return Status::from_errno(
        "making a file without a name in /dev/shm (memfd_create is denied here; allow it)", errno);
  // Here, and not for a memfd: /dev/shm has a limit of its own (64 MiB in a plain container), and
  // a page that it cannot give at first touch would be a SIGBUS.
  GYRE_TRY(reserve_file_size(descriptor.get(), bytes)
               .while_doing("/dev/shm (memfd_create is denied here; allow it, or raise the size of "
                            "/dev/shm, as with docker's --shm-size)"));
  return SharedFifo{nullptr, std::move(descriptor), false};
}

// Best effort: containers may forbid it, and then the first to touch a page decides.
void prefer_this_node(const MemoryRange& range) {
  unsigned node = 0;
  if (syscall(SYS_getcpu, nullptr, &node, nullptr) != 0 || node >= 64) return;
  const unsigned long mask = 1UL << node;
  syscall(SYS_mbind, range.data, range.bytes, MPOL_PREFERRED, &mask, 65UL, 0U);
}

}  // namespace

Result<SharedFifo> make_shared_fifo(const FifoShape& shape) {
  GYRE_TRY(check_shape(shape));
  const std::size_t bytes = mapped_bytes(shape);
  FileDescriptor memfd = open_memory_file("gyre-fifo");
  const bool denied = !memfd.has_value() && is_denial(errno);
  if (denied) log_info(Subsystem::shm, "memfd_create is denied; a link's memory is in /dev/shm");
  if (!memfd.has_value() && !denied) return Status::from_errno("memfd_create", errno);
  GYRE_ASSIGN(SharedFifo fifo,
              denied ? make_nameless_file(bytes) : make_memfd(std::move(memfd), bytes));
  void* start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fifo.descriptor.get(), 0);
  if (start == MAP_FAILED)
    return Status::from_errno(fmt::format("mmap of {} bytes of shared memory", bytes), errno);
  fifo.memory = std::make_shared<FifoMemory>();
  fifo.memory->mapping = Mapping({static_cast<std::byte*>(start), bytes});
  fifo.memory->view = FifoView::at(fifo.memory->mapping.get().data, shape);
  prefer_this_node(fifo.memory->mapping.get());
  // Only what every protocol uses is touched now; slots cost memory when they carry something.
  for (std::uint64_t at = 0; at < fifo_slots_offset(shape); at += 4096)
    static_cast<volatile std::byte*>(start)[at] = std::byte{0};
  start_counters(fifo.memory->view);
  return fifo;
}

bool memfd_is_denied() { return !open_memory_file("gyre-fifo").has_value() && is_denial(errno); }

Result<std::shared_ptr<FifoMemory>> reserve_fifo(const FifoShape& shape) {
  GYRE_TRY(check_shape(shape));
  const std::size_t bytes = mapped_bytes(shape);
  void* start = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED)
    return Status::from_errno(fmt::format("mmap to reserve {} bytes", bytes), errno);
  auto memory = std::make_shared<FifoMemory>();
  memory->mapping = Mapping({static_cast<std::byte*>(start), bytes});
  memory->view = FifoView::at(memory->mapping.get().data, shape);
  return memory;
}

Status map_received_fifo(const FileDescriptor& descriptor, bool sealed, FifoMemory& reserved) {
  const MemoryRange range = reserved.mapping.get();
  struct stat about {};
  if (fstat(descriptor.get(), &about) != 0)
    return Status::from_errno("fstat of received memory", errno);
  if (!S_ISREG(about.st_mode) || about.st_size != static_cast<off_t>(range.bytes))
    return Status(Code::RemoteError, fmt::format("the memory received is {} bytes, not {}",
                                                 about.st_size, range.bytes));
  // Without the seals its maker could cut the memory off, and our next access would be a SIGBUS.
  const int seals = fcntl(descriptor.get(), F_GET_SEALS);
  if (sealed && (seals < 0 || (seals & size_seals) != size_seals))
    return Status(Code::RemoteError, "the memory received is not sealed against resizing");
  void* start = mmap(range.data, range.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                     descriptor.get(), 0);
  if (start == MAP_FAILED)
    return Status::from_errno(fmt::format("mmap of {} bytes received", range.bytes), errno);
  return {};
}

}  // namespace gyre::transport
