// Memory of one process of the fake in another. A handle names the process and the file that holds
// the memory. A process that has it open holds a lock on the file, so that freeing it too early is
// found.
#include "tests/support/fake_cuda/fake_cuda_state.h"

#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gyre::tests {

using namespace loaded;

namespace {

struct Handle {
  char magic[8];
  std::int32_t pid, file, device;  // of the machine
  std::uint64_t inode, bytes;
};
static_assert(sizeof(Handle) <= sizeof(CuIpcHandle));
constexpr std::size_t block_bytes = 2 << 20;  // of which the driver makes small allocations
constexpr char magic[8] = {'f', 'a', 'k', 'e', '-', 'i', 'p', 'c'};

// Of the whole file, by an open file of its own: a lock that ends with the process.
struct flock lock_of(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

bool is_held_elsewhere(const FakeCuda::State::Allocation& allocation) {
  struct flock lock = lock_of(F_WRLCK);
  return fcntl(allocation.file.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

CuResult fake_ipc_export(CuIpcHandle* handle, CuDevicePointer memory) {
  std::unique_lock lock(fake->mutex);
  fake->enter(lock);
  const auto found = fake->memory.find(reinterpret_cast<void*>(memory));
  if (found == fake->memory.end() || found->second.on_host || found->second.imported > 0 ||
      found->second.mapped != 0 || found->second.of_pool)
    return cu::invalid_value;
  if (const CuResult refused = fake->begin_taking(); refused != cu::success) return refused;
  found->second.exported = true;
  fake->exports_of_parts += found->second.bytes % block_bytes != 0;
  Handle made{};
  std::memcpy(made.magic, magic, sizeof magic);
  made.pid = getpid();
  made.file = found->second.file.get();
  made.device = fake->on_machine(found->second.device);
  made.inode = found->second.inode;
  made.bytes = found->second.bytes;
  *handle = {};
  std::memcpy(handle, &made, sizeof made);
  return cu::success;
}

CuResult fake_ipc_import(CuDevicePointer* memory, CuIpcHandle handle, unsigned flags) {
  if (FakeCuda::State::current() == nullptr || flags != cu::ipc_lazy_peer_access)
    return cu::invalid_context;
  Handle named;
  std::memcpy(&named, &handle, sizeof named);
  if (std::memcmp(named.magic, magic, sizeof magic) != 0) return cu::invalid_value;
  if (named.pid == getpid()) return cu::invalid_context;
  std::unique_lock lock(fake->mutex);
  const int device = FakeCuda::State::current()->device;
  if (!fake->options.peer_access && fake->on_machine(device) != named.device)
    return cu::peer_access_unsupported;
  if (const CuResult refused = fake->begin_taking(); refused != cu::success) return refused;
  fake->wait_for_kernels(lock, device, "cuIpcOpenMemHandle");
  for (auto& [place, known] : fake->memory) {
    if (known.imported == 0 || known.inode != named.inode || known.device != device) continue;
    ++known.imported;
    return *memory = reinterpret_cast<CuDevicePointer>(place), cu::success;
  }
  const std::string path =
      "/proc/" + std::to_string(named.pid) + "/fd/" + std::to_string(named.file);
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat status {};
  struct flock held = lock_of(F_RDLCK);
  if (!file.has_value() || fstat(file.get(), &status) != 0 || status.st_ino != named.inode ||
      fcntl(file.get(), F_OFD_SETLK, &held) != 0)
    return cu::map_failed;
  void* const made = mmap(nullptr, named.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (made == MAP_FAILED) return cu::map_failed;
  fake->memory[made] = {named.bytes, device, false, std::move(file), named.inode, false, 1};
  return *memory = reinterpret_cast<CuDevicePointer>(made), cu::success;
}

CuResult fake_ipc_close(CuDevicePointer memory) {
  std::unique_lock lock(fake->mutex);
  auto found = fake->memory.find(reinterpret_cast<void*>(memory));
  if (found == fake->memory.end() || found->second.imported == 0) return cu::invalid_value;
  fake->wait_for_kernels(lock, found->second.device, "cuIpcCloseMemHandle");
  found = fake->memory.find(reinterpret_cast<void*>(memory));
  if (--found->second.imported > 0) return cu::success;
  munmap(found->first, found->second.bytes);
  fake->memory.erase(found);
  return cu::success;
}

}  // namespace gyre::tests
