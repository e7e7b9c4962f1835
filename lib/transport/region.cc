#include "lib/transport/region.h"

#include "lib/base/clock.h"
#include "lib/base/descriptor_mark.h"
#include "lib/base/file_size.h"
#include "lib/base/log.h"
#include "lib/base/memory_file.h"
#include "lib/base/shortage.h"
#include "lib/base/units.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace gyre::transport {
namespace {

constexpr std::uint64_t page_bytes = 4096;
constexpr std::uint64_t huge_page_bytes = 2 << 20;
constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW;

// A sealed file of zeros. No file and errno set where the kernel gives none.
FileDescriptor make_file(std::uint64_t bytes) {
  FileDescriptor file = open_memory_file("gyre-memory");
  if (!file.has_value() || !set_file_size(file.get(), bytes).ok() ||
      fcntl(file.get(), F_ADD_SEALS, size_seals | F_SEAL_SEAL) != 0)
    return {};
  return file;
}

// A file that is no memfd has no seals to get, which the kernel says by -1.
bool keeps_its_size(int file) {
  const int seals = fcntl(file, F_GET_SEALS);
  return seals >= 0 && (seals & size_seals) == size_seals;
}

// The file keeps its size, and reads zeros there from then on.
void give_back_pages(int file, std::uint64_t offset, std::uint64_t bytes) {
  constexpr int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  if (fallocate(file, mode, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0)
    log_info(Subsystem::alloc, "{} bytes that peers have mapped are not given back: fallocate: {}",
             bytes, strerror(errno));
}

std::uint64_t kernel_page_bytes() {
  static const auto bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// A page that is mapped privately becomes this process's own at the first store. This one changes
// nothing, and loses no store of another thread.
void take_page(std::byte* page) {
  const std::atomic_ref first(reinterpret_cast<unsigned char&>(*page));
  unsigned char value = first.load(std::memory_order_relaxed);
  while (!first.compare_exchange_weak(value, value, std::memory_order_relaxed)) {
  }
}

// Puts private pages in the place of the file's, with what is in them. What other threads of this
// process store there meanwhile is either in the file's page, which is then copied, or in the copy.
Status take_pages(int file, std::byte* memory, std::uint64_t offset, std::uint64_t bytes) {
  void* const apart = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
                           file, static_cast<off_t>(offset));
  if (apart == MAP_FAILED)
    return Status::from_errno(fmt::format("mapping {} bytes privately", bytes), errno);
  // In one step: whoever touches them meanwhile waits.
  if (mremap(apart, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, memory) == MAP_FAILED) {
    Status failed = Status::from_errno(fmt::format("moving a mapping of {} bytes", bytes), errno);
    munmap(apart, bytes);
    return failed;
  }
  // A part at a time, so that hardly any memory is needed twice. The first and the last page may be
  // those of a buffer beside, which peers still reach.
  const std::uint64_t page = kernel_page_bytes(), inner_end = bytes - page;
  for (std::uint64_t begin = 0; begin < bytes;) {
    const std::uint64_t end = std::min(begin + huge_page_bytes, bytes);
    for (std::uint64_t at = begin; at < end; at += page) take_page(memory + at);
    const std::uint64_t first = std::max(begin, page), last = std::min(end, inner_end);
    if (first < last) give_back_pages(file, offset + first, last - first);
    begin = end;
  }
  return {};
}

std::uint64_t inode_of(int file) {
  struct stat status {};
  return fstat(file, &status) == 0 ? status.st_ino : 0;
}

}  // namespace

Result<void*> RegionTable::allocate(std::size_t bytes) {
  const std::uint64_t mapped_bytes = round_up(bytes, page_bytes);
  Region region;
  region.file = make_file(mapped_bytes);
  const bool shared = region.file.has_value();
  if (!shared)
    log_info(Subsystem::alloc, "memory for peers: no file of memory ({}): peers will copy",
             strerror(errno));
  void* memory =
      mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE,
           shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, shared ? region.file.get() : -1, 0);
  if (memory == MAP_FAILED)
    return Status::from_errno(fmt::format("mapping {} bytes", mapped_bytes), errno);
  // Fewer translations for large buffers; a hint, so its failure does not matter.
  if (mapped_bytes >= 2 * huge_page_bytes) (void)madvise(memory, mapped_bytes, MADV_HUGEPAGE);
  region.mapping = Mapping({static_cast<std::byte*>(memory), mapped_bytes});
  region.inode = shared ? inode_of(region.file.get()) : 0;
  const std::lock_guard lock(mutex_);
  regions_[reinterpret_cast<std::uintptr_t>(memory) + mapped_bytes] = std::move(region);
  return memory;
}

Status RegionTable::release(void* memory) {
  Region region;
  {
    const std::lock_guard lock(mutex_);
    const auto found = regions_.upper_bound(reinterpret_cast<std::uintptr_t>(memory));
    if (found == regions_.end() || found->second.mapping.get().data != memory)
      return invalid_argument(
          fmt::format("{} does not come from gyreMemAlloc, or was freed", memory));
    region = std::move(found->second);
    regions_.erase(found);
  }
  (void)watchers_.tell(region.mapping.get());
  // Peers keep it mapped for a time, as nobody tells them: what they map then is a hole.
  if (holds_its_file(region))
    give_back_pages(region.file.get(), 0, region.mapping.get().bytes);
  else
    (void)region.file.release();
  return {};
}

// A program that closes descriptors which it did not open may have another file by that number.
bool RegionTable::holds_its_file(const Region& region) {
  return region.inode != 0 && inode_of(region.file.get()) == region.inode;
}

RegionTable::Pages RegionTable::Pages::around(std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t page = kernel_page_bytes();
  return {offset / page * page, round_up(offset + bytes, page)};
}

// Null if peers do not reach it.
const RegionTable::Region* RegionTable::holder(const void* memory) const {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const auto found = regions_.upper_bound(address);
  if (found == regions_.end() || found->second.inode == 0) return nullptr;
  const auto base = reinterpret_cast<std::uintptr_t>(found->second.mapping.get().data);
  return address >= base ? &found->second : nullptr;
}

std::uint64_t RegionTable::Region::offset_of(const void* memory) const {
  return reinterpret_cast<std::uintptr_t>(memory) - mapping.get().begin();
}

bool RegionTable::Region::has_withdrawn(const void* memory, std::uint64_t bytes) const {
  const Pages pages = Pages::around(offset_of(memory), bytes);
  return std::ranges::any_of(withdrawn, [&](const Pages& gone) { return gone.meets(pages); });
}

RegionPlace RegionTable::place_in(const Region& region, const void* memory, std::uint64_t bytes) {
  const std::uint64_t offset = region.offset_of(memory);
  if (bytes > region.mapping.get().bytes - offset || region.has_withdrawn(memory, bytes)) return {};
  return {region.inode, static_cast<std::uint32_t>(region.file.get()), offset};
}

RegionPlace RegionTable::find(const void* memory, std::uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  const Region* region = holder(memory);
  return region != nullptr ? place_in(*region, memory, bytes) : RegionPlace{};
}

bool RegionTable::is_withdrawn(const void* memory, std::uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  const Region* region = holder(memory);
  return region != nullptr && region->has_withdrawn(memory, bytes);
}

RegionPlace RegionTable::lend(const void* memory, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  Region* region = holder(memory);
  if (region == nullptr) return {};
  const RegionPlace place = place_in(*region, memory, bytes);
  if (place.region == region_staged) return {};
  const Pages pages = Pages::around(place.offset, bytes);
  const auto meets = [&](const OutputLoan& other) { return other.pages.meets(pages); };
  if (std::ranges::any_of(region->lent, meets)) {
    log_info(Subsystem::alloc,
             "{} bytes at {} share a page with what another call of this process lends: they are "
             "copied",
             bytes, memory);
    return {};
  }
  region->lent.push_back({memory, pages});
  return place;
}

void RegionTable::end_loan(const void* memory) {
  const std::lock_guard lock(mutex_);
  if (Region* region = holder(memory); region != nullptr)
    std::erase_if(region->lent, [&](const OutputLoan& loan) { return loan.memory == memory; });
}

Status RegionTable::withdraw(const void* memory) {
  std::unique_lock lock(mutex_);
  Region* region = holder(memory);
  if (region == nullptr) return {};
  const auto loan = std::ranges::find(region->lent, memory, &OutputLoan::memory);
  if (loan == region->lent.end()) return {};
  const Pages pages = loan->pages;
  // Nobody lends them from here on.
  if (std::ranges::find(region->withdrawn, pages) == region->withdrawn.end())
    region->withdrawn.push_back(pages);
  if (!holds_its_file(*region)) return descriptors_are_gone();
  const int file = region->file.get();
  std::byte* const begin = region->mapping.get().data + pages.begin;
  lock.unlock();  // it may take a while; its owner, who is in a call with it, does not free it
  if (watchers_.tell({begin, pages.end - pages.begin}))
    return Status(Code::SystemError, "a NIC reaches them for another call");
  return take_pages(file, begin, pages.begin, pages.end - pages.begin);
}

Probe RegionTable::probe() {
  const std::lock_guard lock(mutex_);
  if (!probe_.has_value()) probe_ = make_file(page_bytes);
  if (probed_word_ == nullptr) {
    // Anything that is not likely to lie at that address of another process.
    const auto now = static_cast<std::uint64_t>(SystemClock::read());
    probed_word_ = std::make_unique<std::uint64_t>(now * 0x9e3779b97f4a7c15);
  }
  Probe probe{.pid = static_cast<std::uint32_t>(getpid()),
              .word_address = reinterpret_cast<std::uintptr_t>(probed_word_.get()),
              .word = *probed_word_};
  if (!probe_.has_value()) return probe;
  probe.descriptor = static_cast<std::uint32_t>(probe_.get());
  probe.inode = inode_of(probe_.get());
  return probe;
}

bool can_be_copied(const void* memory, std::uint64_t bytes) {
  if (bytes == 0) return false;
  char copies[2];
  auto* const first = static_cast<char*>(const_cast<void*>(memory));
  const iovec to[] = {{&copies[0], 1}, {&copies[1], 1}};
  const iovec from[] = {{first, 1}, {first + bytes - 1, 1}};
  return process_vm_readv(getpid(), to, 2, from, 2, 0) == 2;
}

// No file if it is not the one that is meant; an error if this process may open no more.
Result<FileDescriptor> PeerMemory::open_file(std::uint32_t pid, std::uint32_t descriptor,
                                             std::uint64_t inode, std::uint64_t* bytes) {
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, descriptor);
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!file.has_value() && is_shortage(errno))
    return Status::from_errno(
        fmt::format("opening {}, memory of a peer (raise ulimit -n or fs.file-max)", path), errno);
  struct stat status {};
  // The peer's word is input: it must be this very file, and one that nobody can cut off under us.
  if (!file.has_value() || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_ino != inode || !keeps_its_size(file.get()))
    return FileDescriptor();
  *bytes = static_cast<std::uint64_t>(status.st_size);
  return file;
}

std::unique_ptr<PeerMemory> PeerMemory::open(const Probe& probe) {
  std::uint64_t bytes = 0;
  bool maps = false;
  if (probe.inode != 0) {
    const auto file = open_file(probe.pid, probe.descriptor, probe.inode, &bytes);
    maps = file.ok() && file->has_value();
  }
  std::unique_ptr<PeerMemory> memory(new PeerMemory(probe.pid, maps));
  std::uint64_t word = 0;
  memory->copies_ =
      probe.word != 0 &&
      memory->copy(probe.word_address, sizeof word, reinterpret_cast<std::byte*>(&word)).ok() &&
      word == probe.word;
  return memory->maps_ || memory->copies_ ? std::move(memory) : nullptr;
}

Status PeerMemory::copy(std::uint64_t address, std::uint64_t bytes, std::byte* target) const {
  while (bytes > 0) {
    const iovec to{target, bytes};
    const iovec from{reinterpret_cast<void*>(address), bytes};
    const ssize_t done = process_vm_readv(static_cast<pid_t>(pid_), &to, 1, &from, 1, 0);
    if (done <= 0)
      return Status(Code::RemoteError, fmt::format("copying {} bytes from process {}: {}", bytes,
                                                   pid_, done < 0 ? strerror(errno) : "none came"));
    const auto copied = static_cast<std::uint64_t>(done);
    bytes -= copied;
    target += copied;
    address += copied;
  }
  return {};
}

bool PeerMemory::has_ended() const {
  const FileDescriptor process(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  if (!process.has_value()) return errno == ESRCH;
  pollfd state{process.get(), POLLIN, 0};
  return poll(&state, 1, 0) > 0;
}

// The longest unused ones go, as far as the call at hand does not use them.
void PeerMemory::make_room(std::uint64_t call) {
  while (mapped_.size() >= max_mapped) {
    const auto oldest = std::ranges::min_element(mapped_, {}, &MappedRegion::used);
    if (oldest->call == call) return;
    mapped_.erase(oldest);
  }
}

// Null if it is not what the peer says.
Result<PeerMemory::MappedRegion*> PeerMemory::map(const Loan& loan, std::uint64_t call) {
  std::uint64_t length = 0;
  GYRE_ASSIGN(const FileDescriptor file, open_file(pid_, loan.descriptor, loan.region, &length));
  if (!file.has_value() || length == 0) return nullptr;
  void* memory = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED)
    return Status::from_errno(fmt::format("mapping {} bytes of a peer's memory (raise ulimit -v, "
                                          "ulimit -l or vm.max_map_count)",
                                          length),
                              errno);
  make_room(call);
  mapped_.push_back({loan.region, Mapping({static_cast<std::byte*>(memory), length}), call, 0});
  return &mapped_.back();
}

Result<std::byte*> PeerMemory::at(const Loan& loan, std::uint64_t call) {
  const auto found = std::ranges::find(mapped_, loan.region, &MappedRegion::region);
  MappedRegion* known = found != mapped_.end() ? &*found : nullptr;
  if (known == nullptr) {
    GYRE_ASSIGN(known, map(loan, call));
    if (known == nullptr) return nullptr;
  }
  known->call = call;
  known->used = ++uses_;
  const MemoryRange& range = known->mapping.get();
  if (loan.offset > range.bytes || loan.bytes > range.bytes - loan.offset) return nullptr;
  return range.data + loan.offset;
}

}  // namespace gyre::transport
