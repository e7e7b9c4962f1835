// Region: user memory that other processes of this host can map: a sealed memfd. A peer opens it
// through /proc/PID/fd; the kernel allows that only to a process that could read the memory anyway.
// The peer checks that it is the right file, and keeps it mapped.
//
//   RegionTable   what this process has allocated
//   Probe         a page by which a peer finds out whether it can open this process's regions, and
//   a
//                 word by which it finds out whether the kernel copies from this process's memory
//   PeerMemory    another process's regions, as mapped here, and copies from the rest of its memory
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"
#include "lib/transport/memory_watchers.h"
#include "lib/transport/slots.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace gyre::transport {

// Where a buffer lies in this process's regions. region 0: in none.
struct RegionPlace {
  std::uint64_t region = region_staged;
  std::uint32_t descriptor = 0;
  std::uint64_t offset = 0;
};

struct Probe {
  std::uint32_t pid = 0;
  std::uint32_t descriptor = 0;
  std::uint64_t inode = 0;
  std::uint64_t word_address = 0;
  std::uint64_t word = 0;
};

// Whether the kernel would copy these bytes of this process for another one: not those that it maps
// of a device. Looks at the first and the last.
bool can_be_copied(const void* memory, std::uint64_t bytes);

// Any thread.
class RegionTable {
 public:
  // Zeroed, page-aligned, shared memory; falls back to memory that only this process reaches where
  // the kernel gives no memfd, and says so in the log.
  Result<void*> allocate(std::size_t bytes);
  // What allocate gave and nothing else.
  Status release(void* memory);
  // Where peers can read a buffer; nowhere if it is in no region, or was withdrawn.
  RegionPlace find(const void* memory, std::uint64_t bytes) const;
  // Whether a part of it was withdrawn, or is being.
  bool is_withdrawn(const void* memory, std::uint64_t bytes) const;
  // The same as `find` of a buffer that peers write, until end_loan. No two of these share a page,
  // so that each can be withdrawn alone: the second one is nowhere.
  RegionPlace lend(const void* memory, std::uint64_t bytes);
  void end_loan(const void* memory);
  // Of a lent buffer that a peer may still write, who does not say when it will be done: what it
  // writes from here on goes nowhere. The buffer stays where it is and keeps what is in it; no
  // store of another thread of this process in the same pages is lost. Peers do not reach it any
  // more until it is released. On an error they still do; it may be asked for again.
  Status withdraw(const void* memory);
  Probe probe();
  // They are told before a region is unmapped, and before pages of it are withdrawn.
  MemoryWatchers& watchers() { return watchers_; }

 private:
  // Whole pages, by their offsets in a region.
  struct Pages {
    std::uint64_t begin, end;
    friend bool operator==(const Pages&, const Pages&) = default;
    static Pages around(std::uint64_t offset, std::uint64_t bytes);
    bool meets(const Pages& other) const { return begin < other.end && other.begin < end; }
  };
  struct OutputLoan {
    const void* memory;
    Pages pages;
  };
  struct Region {
    FileDescriptor file;  // none: the fallback
    Mapping mapping;
    std::uint64_t inode = 0;
    std::vector<OutputLoan> lent;  // that peers may write
    std::vector<Pages> withdrawn;  // that are not the file's any more

    // Of memory in it.
    std::uint64_t offset_of(const void* memory) const;
    bool has_withdrawn(const void* memory, std::uint64_t bytes) const;
  };
  const Region* holder(const void* memory) const;
  Region* holder(const void* memory) {
    return const_cast<Region*>(std::as_const(*this).holder(memory));
  }
  static bool holds_its_file(const Region& region);
  static RegionPlace place_in(const Region& region, const void* memory, std::uint64_t bytes);

  mutable std::mutex mutex_;
  std::map<std::uintptr_t, Region> regions_;  // by their end, so that upper_bound finds the owner
  FileDescriptor probe_;
  std::unique_ptr<std::uint64_t> probed_word_;
  MemoryWatchers watchers_;
};

// What a peer lends stays mapped for the calls that come, up to a bound, as the peer does not tell
// when it frees a region. What the call at hand uses is never unmapped: so many ranks as the peer
// process has may lend two buffers each, and all of those are used at one time. One thread at a
// time.
class PeerMemory {
 public:
  // Null if the peer's memory is out of reach: it neither maps nor copies.
  static std::unique_ptr<PeerMemory> open(const Probe& probe);
  // Whether the peer's files can be opened here.
  bool maps() const { return maps_; }
  // Whether the kernel copies from its memory (process_vm_readv): as it lets a debugger do.
  bool copies() const { return copies_; }
  // From an address in the peer's process. An error if it is not the peer's, or the peer is no
  // more.
  Status copy(std::uint64_t address, std::uint64_t bytes, std::byte* target) const;
  // The memory that a peer lends; null if it is not what the peer says, and an error if this
  // process lacks what it takes to map it. It stays there until the number of the call that uses it
  // is another one.
  Result<std::byte*> at(const Loan& loan, std::uint64_t call);
  // Whether the process is known to be no more, so that it neither reads nor writes anything.
  // Another one may have its number since: then it is not known. Costs two system calls.
  bool has_ended() const;

 private:
  struct MappedRegion {
    std::uint64_t region;
    Mapping mapping;
    std::uint64_t call;  // that used it last
    std::uint64_t used;
  };
  // More only where one call uses more.
  static constexpr std::size_t max_mapped = 16;

  PeerMemory(std::uint32_t pid, bool maps) : pid_(pid), maps_(maps) {}
  static Result<FileDescriptor> open_file(std::uint32_t pid, std::uint32_t descriptor,
                                          std::uint64_t inode, std::uint64_t* bytes);
  Result<MappedRegion*> map(const Loan& loan, std::uint64_t call);
  void make_room(std::uint64_t call);

  const std::uint32_t pid_;
  const bool maps_;
  bool copies_ = false;
  std::vector<MappedRegion> mapped_;
  std::uint64_t uses_ = 0;
};

}  // namespace gyre::transport
