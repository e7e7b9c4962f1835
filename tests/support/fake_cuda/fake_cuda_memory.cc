// The fake's virtual memory. Physical memory is a memory file, whose name says to which device it
// belongs; the handle for other processes is a descriptor of it. Addresses that are reserved but
// not mapped, or mapped without access, fault.
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

// A harsh driver's are those of GPUs.
std::size_t granule() { return fake->options.harsh ? 2 << 20 : 64 << 10; }
const std::string name_begin = "fake-cuda-memory-of-";

void* at(CuDevicePointer place) { return reinterpret_cast<void*>(place); }

bool is_whole(std::size_t bytes) { return bytes > 0 && bytes % granule() == 0; }

int current_device() {
  const CuContext now = FakeCuda::State::current();
  return now == nullptr ? 0 : now->device;
}

bool is_device(int device) { return device >= 0 && device < fake->options.devices; }

// Whether [begin, begin + bytes) lies in one reserved range.
bool is_reserved(void* begin, std::size_t bytes) {
  auto found = fake->reserved.upper_bound(begin);
  if (found == fake->reserved.begin()) return false;
  --found;
  const auto offset =
      static_cast<std::size_t>(static_cast<char*>(begin) - static_cast<char*>(found->first));
  return offset <= found->second && bytes <= found->second - offset;
}

// Given back with its last handle and its last mapping.
void drop_unused(CuMemory memory) {
  const auto found = fake->physical.find(memory);
  if (found->second.handles > 0 || found->second.mappings > 0) return;
  if (found->second.made_here) fake->memory_used -= found->second.bytes;
  fake->physical.erase(found);
}

}  // namespace

CuResult fake_memory_granularity(std::size_t* bytes, const CuMemoryKind* kind, int) {
  if (!fake->options.virtual_memory || !is_device(kind->place.device)) return cu::invalid_device;
  return *bytes = granule(), cu::success;
}

CuResult fake_memory_create(CuMemory* memory, std::size_t bytes, const CuMemoryKind* kind,
                            unsigned long long flags) {
  std::unique_lock lock(fake->mutex);
  if (!fake->options.virtual_memory || flags != 0 || !is_whole(bytes)) return cu::invalid_value;
  if (!is_device(kind->place.device)) return cu::invalid_device;
  if (const CuResult refused = fake->begin_taking(); refused != cu::success) return refused;
  fake->wait_for_kernels(lock, current_device(), "cuMemCreate");
  if (fake->memory_used + bytes > fake->options.memory_bytes) return cu::out_of_memory;
  const int device = fake->on_machine(kind->place.device);
  FileDescriptor file(memfd_create((name_begin + std::to_string(device)).c_str(), MFD_CLOEXEC));
  if (!file.has_value() || ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    return cu::out_of_memory;
  // What is not zeroed by anybody is no zero.
  const std::vector<char> dirt(bytes, '\xa5');
  if (pwrite(file.get(), dirt.data(), bytes, 0) != static_cast<ssize_t>(bytes))
    return cu::out_of_memory;
  *memory = ++fake->physical_made;
  fake->physical[*memory] = {std::move(file), bytes, device, true, 1, 0};
  fake->memory_used += bytes;
  return cu::success;
}

CuResult fake_memory_release(CuMemory memory) {
  std::unique_lock lock(fake->mutex);
  fake->wait_for_kernels(lock, current_device(), "cuMemRelease");
  const auto found = fake->physical.find(memory);
  if (found == fake->physical.end() || found->second.handles == 0) return cu::invalid_value;
  --found->second.handles;
  drop_unused(memory);
  return cu::success;
}

CuResult fake_memory_export(void* handle, CuMemory memory, int handle_type,
                            unsigned long long flags) {
  const std::lock_guard lock(fake->mutex);
  const auto found = fake->physical.find(memory);
  if (found == fake->physical.end() || handle_type != cu::handle_file_descriptor || flags != 0)
    return cu::invalid_value;
  if (const CuResult refused = fake->begin_taking(); refused != cu::success) return refused;
  const int file = fcntl(found->second.file.get(), F_DUPFD_CLOEXEC, 0);
  if (file < 0) return cu::out_of_memory;
  std::memcpy(handle, &file, sizeof file);
  return cu::success;
}

// The descriptor stays the caller's.
CuResult fake_memory_import(CuMemory* memory, void* handle, int handle_type) {
  const std::lock_guard lock(fake->mutex);
  if (handle_type != cu::handle_file_descriptor) return cu::invalid_value;
  if (const CuResult refused = fake->begin_taking(); refused != cu::success) return refused;
  const int given = static_cast<int>(reinterpret_cast<std::intptr_t>(handle));
  char name[200] = "";
  const std::string link = "/proc/self/fd/" + std::to_string(given);
  if (readlink(link.c_str(), name, sizeof name - 1) <= 0) return cu::invalid_value;
  const std::string begin = "/memfd:" + name_begin;
  if (std::string(name).compare(0, begin.size(), begin) != 0) return cu::invalid_value;
  struct stat status {};
  FileDescriptor file(fcntl(given, F_DUPFD_CLOEXEC, 0));
  if (!file.has_value() || fstat(file.get(), &status) != 0) return cu::invalid_value;
  *memory = ++fake->physical_made;
  fake->physical[*memory] = {std::move(file),
                             static_cast<std::size_t>(status.st_size),
                             std::atoi(name + begin.size()),
                             false,
                             1,
                             0};
  return cu::success;
}

CuResult fake_addresses_reserve(CuDevicePointer* begin, std::size_t bytes, std::size_t alignment,
                                CuDevicePointer wanted, unsigned long long flags) {
  const std::lock_guard lock(fake->mutex);
  if (!is_whole(bytes) || alignment != 0 || wanted != 0 || flags != 0) return cu::invalid_value;
  if (const CuResult refused = fake->begin_taking(); refused != cu::success) return refused;
  void* const made =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return cu::out_of_memory;
  fake->reserved[made] = bytes;
  return *begin = reinterpret_cast<CuDevicePointer>(made), cu::success;
}

CuResult fake_addresses_free(CuDevicePointer begin, std::size_t bytes) {
  const std::lock_guard lock(fake->mutex);
  const auto found = fake->reserved.find(at(begin));
  if (found == fake->reserved.end() || found->second != bytes) return cu::invalid_value;
  const auto inside = fake->memory.lower_bound(at(begin));
  if (inside != fake->memory.end() && is_reserved(inside->first, 1) &&
      static_cast<char*>(inside->first) < static_cast<char*>(at(begin)) + bytes)
    return cu::invalid_value;  // still mapped
  munmap(at(begin), bytes);
  fake->reserved.erase(found);
  return cu::success;
}

CuResult fake_memory_map(CuDevicePointer place, std::size_t bytes, std::size_t offset,
                         CuMemory memory, unsigned long long flags) {
  std::unique_lock lock(fake->mutex);
  const auto found = fake->physical.find(memory);
  if (found == fake->physical.end() || found->second.handles == 0 || offset != 0 || flags != 0 ||
      !is_whole(bytes) || bytes > found->second.bytes || !is_reserved(at(place), bytes))
    return cu::invalid_value;
  if (const CuResult refused = fake->begin_taking(); refused != cu::success) return refused;
  fake->wait_for_kernels(lock, current_device(), "cuMemMap");
  if (mmap(at(place), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, found->second.file.get(), 0) ==
      MAP_FAILED)
    return cu::out_of_memory;
  ++found->second.mappings;
  // The device by this process's number of it; one that it does not see has none.
  int device = -1;
  for (int one = 0; one < fake->options.devices; ++one)
    if (fake->on_machine(one) == found->second.device) device = one;
  auto& known = fake->memory[at(place)] = {};
  known.bytes = bytes;
  known.device = device;
  known.mapped = memory;
  return cu::success;
}

CuResult fake_memory_unmap(CuDevicePointer place, std::size_t bytes) {
  std::unique_lock lock(fake->mutex);
  fake->wait_for_kernels(lock, current_device(), "cuMemUnmap");
  const auto found = fake->memory.find(at(place));
  if (found == fake->memory.end() || found->second.mapped == 0 || found->second.bytes != bytes)
    return cu::invalid_value;
  if (mmap(at(place), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
           0) == MAP_FAILED)
    return cu::out_of_memory;
  const CuMemory memory = found->second.mapped;
  fake->memory.erase(found);
  --fake->physical.at(memory).mappings;
  drop_unused(memory);
  return cu::success;
}

CuResult fake_memory_set_access(CuDevicePointer place, std::size_t bytes,
                                const CuMemoryAccess* access, std::size_t count) {
  std::unique_lock lock(fake->mutex);
  const auto found = fake->memory.find(at(place));
  if (found == fake->memory.end() || found->second.mapped == 0 || found->second.bytes != bytes)
    return cu::invalid_value;
  if (const CuResult refused = fake->begin_taking(); refused != cu::success) return refused;
  fake->wait_for_kernels(lock, current_device(), "cuMemSetAccess");
  const int lies_on = fake->physical.at(found->second.mapped).device;
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_device(access[i].place.device)) return cu::invalid_device;
    if (!fake->options.peer_access && fake->on_machine(access[i].place.device) != lies_on)
      return cu::peer_access_unsupported;
  }
  for (std::size_t i = 0; i < count; ++i)
    fake->memory.at(at(place)).reached_by.insert(access[i].place.device);
  return mprotect(at(place), bytes, PROT_READ | PROT_WRITE) == 0 ? cu::success : cu::out_of_memory;
}

CuResult fake_range_handle(void* handle, CuDevicePointer begin, std::size_t bytes, int handle_type,
                           unsigned long long flags) {
  const std::lock_guard lock(fake->mutex);
  constexpr std::size_t host_page = 4096;
  const auto* const found = fake->find(begin);
  if (!fake->options.dmabuf || handle_type != cu::range_dmabuf || flags != 0 || bytes == 0 ||
      begin % host_page != 0 || bytes % host_page != 0 || found == nullptr ||
      found->second.on_host || found->second.mapped != 0)
    return cu::invalid_value;
  const auto offset = begin - reinterpret_cast<std::uintptr_t>(found->first);
  if (bytes > found->second.bytes - offset) return cu::invalid_value;
  if (fake->failing_dmabuf > 0 && --fake->failing_dmabuf == 0) return cu::out_of_memory;
  const std::string file = "/proc/self/fd/" + std::to_string(found->second.file.get());
  const int opened = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0) return cu::out_of_memory;
  (void)lseek(opened, static_cast<off_t>(offset), SEEK_SET);
  std::memcpy(handle, &opened, sizeof opened);
  return cu::success;
}

}  // namespace gyre::tests
