// The C functions for memory that peers can reach. Threads of one process reach any memory of each
// other; what gyreMemAlloc adds is pages that are aligned, zeroed and in place before the first
// use.
#include "lib/base/owned.h"
#include "lib/comm/calls.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <sys/mman.h>

namespace gyre::comm {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t huge_page = 2 << 20;

// A range ahead of the pointer keeps its length, so that freeing needs no table and a wrong pointer
// is noticed.
struct Header {
  std::uint64_t mark;
  std::uint64_t mapped_bytes;
};
constexpr std::uint64_t header_mark = 0x67797265'6d656d31;

Status allocate(void** pointer, std::size_t size) {
  if (pointer == nullptr) return invalid_argument("ptr is NULL");
  *pointer = nullptr;
  if (size == 0) return {};
  const auto bytes = checked_add(size, page + page - 1);
  if (!bytes || *bytes > 1ULL << 47)
    return invalid_argument(fmt::format("size {} is more than any memory", size));
  const std::size_t mapped = *bytes / page * page;
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return Status::from_errno(fmt::format("mapping {} bytes", mapped), errno);
  // Fewer translations for large buffers; a hint, so its failure does not matter.
  if (mapped >= 2 * huge_page) (void)madvise(memory, mapped, MADV_HUGEPAGE);
  *static_cast<Header*>(memory) = {header_mark, mapped};
  *pointer = static_cast<std::byte*>(memory) + page;
  return {};
}

Status release(void* pointer) {
  if (pointer == nullptr) return {};
  if (reinterpret_cast<std::uintptr_t>(pointer) % page != 0)
    return invalid_argument(fmt::format("{} does not come from gyreMemAlloc", pointer));
  auto* header = reinterpret_cast<Header*>(static_cast<std::byte*>(pointer) - page);
  if (header->mark != header_mark)
    return invalid_argument(fmt::format("{} does not come from gyreMemAlloc", pointer));
  const std::size_t mapped = header->mapped_bytes;
  header->mark = 0;
  if (munmap(header, mapped) != 0) return Status::from_errno("munmap", errno);
  return {};
}

}  // namespace
}  // namespace gyre::comm

using namespace gyre;
using namespace gyre::comm;

gyreResult_t gyreMemAlloc(void** ptr, size_t size) {
  return guarded([&] { return allocate(ptr, size); });
}

gyreResult_t gyreMemFree(void* ptr) {
  return guarded([&] { return release(ptr); });
}
