// lib/transport: memory that other processes map: peers' messages about it, shortages in this
// process, and when it is given back.
#include "lib/transport/region.h"

#include "tests/support/base/denied_call.h"
#include "tests/support/catch.h"

#include <atomic>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace region_test {

using namespace gyre;
using namespace gyre::transport;

namespace {

constexpr std::uint64_t page = 4096;

std::uint64_t inode_of(const FileDescriptor& file) {
  struct stat about {};
  REQUIRE(fstat(file.get(), &about) == 0);
  return about.st_ino;
}

Probe probe_by(const FileDescriptor& file) {
  return {static_cast<std::uint32_t>(getpid()), static_cast<std::uint32_t>(file.get()),
          inode_of(file)};
}

FileDescriptor sealed(int seals) {
  FileDescriptor file(memfd_create("of-a-peer", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(file.has_value());
  REQUIRE(ftruncate(file.get(), page) == 0);
  REQUIRE(fcntl(file.get(), F_ADD_SEALS, seals) == 0);
  return file;
}

}  // namespace

TEST_CASE("what can be cut off or grow is not mapped as a peer's memory", "[region]") {
  CHECK(PeerMemory::open(probe_by(sealed(F_SEAL_SHRINK | F_SEAL_GROW))) != nullptr);
  CHECK(PeerMemory::open(probe_by(sealed(F_SEAL_SHRINK))) == nullptr);
  CHECK(PeerMemory::open(probe_by(sealed(F_SEAL_GROW))) == nullptr);
  // A file of a disk knows no seals at all, which the kernel says by -1.
  const FileDescriptor ordinary(open("/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  REQUIRE(ordinary.has_value());
  REQUIRE(ftruncate(ordinary.get(), page) == 0);
  CHECK(PeerMemory::open(probe_by(ordinary)) == nullptr);
}

TEST_CASE("the kernel copies from a peer whose word is found where it says", "[region]") {
  if (!tests::may_copy_memory()) return;  // a sandbox that denies it shows nothing
  RegionTable regions;
  Probe probe = regions.probe();
  probe.inode = 0;  // nothing to map
  const auto peer = PeerMemory::open(probe);
  REQUIRE(peer != nullptr);
  CHECK(peer->copies());
  CHECK_FALSE(peer->maps());
  Probe wrong = probe;
  ++wrong.word;
  CHECK(PeerMemory::open(wrong) == nullptr);
  wrong = probe;
  wrong.word_address = 8;
  CHECK(PeerMemory::open(wrong) == nullptr);
  wrong = probe;
  wrong.pid = 1 << 22;  // more than the kernel's largest
  CHECK(PeerMemory::open(wrong) == nullptr);

  std::vector<std::byte> source(3 * page, std::byte{4}), target(source.size());
  REQUIRE(peer->copy(reinterpret_cast<std::uintptr_t>(source.data()), source.size(), target.data())
              .ok());
  CHECK(target == source);
}

TEST_CASE("memory that nobody may read is neither offered nor copied in part", "[region]") {
  if (!tests::may_copy_memory()) return;  // a sandbox that denies it shows nothing
  RegionTable regions;
  const auto peer = PeerMemory::open(regions.probe());
  REQUIRE(peer != nullptr);
  auto* const memory = static_cast<std::byte*>(
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(memory != MAP_FAILED);
  const Mapping mapping({memory, 2 * page});
  CHECK(can_be_copied(memory, 2 * page));
  REQUIRE(mprotect(memory + page, page, PROT_NONE) == 0);
  CHECK(can_be_copied(memory, page));
  CHECK_FALSE(can_be_copied(memory, 2 * page));
  CHECK_FALSE(can_be_copied(memory, 0));
  std::vector<std::byte> target(2 * page);
  const Status copied =
      peer->copy(reinterpret_cast<std::uintptr_t>(memory), 2 * page, target.data());
  CHECK(copied.code() == Code::RemoteError);
}

TEST_CASE("what was released takes no memory, whoever has it mapped", "[region]") {
  RegionTable regions;
  constexpr std::uint64_t bytes = 1 << 20;
  const auto memory = regions.allocate(bytes);
  REQUIRE(memory.ok());
  std::memset(*memory, 7, bytes);
  const RegionPlace place = regions.find(*memory, bytes);
  const FileDescriptor file(fcntl(static_cast<int>(place.descriptor), F_DUPFD_CLOEXEC, 0));
  const auto peer = PeerMemory::open(regions.probe());
  REQUIRE(peer != nullptr);
  const auto mapped =
      peer->at({.region = place.region, .bytes = bytes, .descriptor = place.descriptor}, 1);
  REQUIRE(mapped.ok());
  CHECK((*mapped)[bytes - 1] == std::byte{7});
  REQUIRE(regions.release(*memory).ok());
  struct stat about {};
  REQUIRE(fstat(file.get(), &about) == 0);
  CHECK(about.st_blocks == 0);
  // A peer that is late reads zeros, and gets no signal.
  CHECK((*mapped)[bytes - 1] == std::byte{0});
}

namespace {

// A region as its owner and as a peer sees it.
class Shared {
 public:
  explicit Shared(std::uint64_t bytes) {
    const auto memory = regions.allocate(bytes);
    REQUIRE(memory.ok());
    own = static_cast<std::byte*>(*memory);
    const RegionPlace place = regions.find(own, bytes);
    peer_ = PeerMemory::open(regions.probe());
    REQUIRE(peer_ != nullptr);
    const auto mapped =
        peer_->at({.region = place.region, .bytes = bytes, .descriptor = place.descriptor}, 1);
    REQUIRE(mapped.ok());
    theirs = *mapped;
  }
  bool reaches(const std::byte* memory, std::uint64_t bytes) const {
    return regions.find(memory, bytes).region != region_staged;
  }
  bool lends(const std::byte* memory, std::uint64_t bytes) {
    return regions.lend(memory, bytes).region != region_staged;
  }
  RegionTable regions;
  std::byte* own = nullptr;
  std::byte* theirs = nullptr;

 private:
  std::unique_ptr<PeerMemory> peer_;
};

}  // namespace

TEST_CASE("what a peer writes into a withdrawn buffer goes nowhere", "[region]") {
  constexpr std::uint64_t bytes = 1100 * page, begin = 3 * page + 40, length = 1000 * page;
  Shared shared(bytes);
  for (std::uint64_t i = 0; i < bytes; i += 8) std::memcpy(shared.own + i, &i, 8);
  REQUIRE(shared.lends(shared.own + begin, length));
  REQUIRE(shared.regions.withdraw(shared.own + begin).ok());
  std::memset(shared.theirs + begin, 0x77, length);
  std::uint64_t changed = 0;
  for (std::uint64_t i = 0; i < bytes; i += 8) {
    std::uint64_t value = 0;
    std::memcpy(&value, shared.own + i, 8);
    changed += value != i;
  }
  CHECK(changed == 0);
  // Nor does it read what is written there now. What lies in other pages is lent as before.
  CHECK_FALSE(shared.reaches(shared.own + begin, length));
  CHECK_FALSE(shared.reaches(shared.own + 3 * page, 8));
  CHECK(shared.reaches(shared.own, 3 * page));
  CHECK(shared.reaches(shared.own + begin + length + page, 8));
  shared.regions.end_loan(shared.own + begin);
  CHECK_FALSE(shared.lends(shared.own + begin, length));
  CHECK(shared.lends(shared.own, 3 * page));
  REQUIRE(shared.regions.release(shared.own).ok());
}

TEST_CASE("another file that has a region's number keeps what is in it", "[region]") {
  RegionTable regions;
  constexpr std::uint64_t bytes = 4 * page;
  const auto memory = regions.allocate(bytes);
  REQUIRE(memory.ok());
  auto* const own = static_cast<std::byte*>(*memory);
  std::memset(own, 7, bytes);
  const RegionPlace place = regions.lend(own + page, page);
  REQUIRE(place.region != region_staged);
  const auto number = static_cast<int>(place.descriptor);
  // A program closed all that it did not know, and another file came to have the number.
  const FileDescriptor other(memfd_create("of-the-program", MFD_CLOEXEC));
  REQUIRE(other.has_value());
  const std::vector<char> text(bytes, 'x');
  REQUIRE(pwrite(other.get(), text.data(), bytes, 0) == static_cast<ssize_t>(bytes));
  REQUIRE(dup2(other.get(), number) == number);
  CHECK_FALSE(regions.withdraw(own + page).ok());
  CHECK(own[page] == std::byte{7});
  CHECK(regions.release(own).ok());
  std::vector<char> kept(bytes);
  REQUIRE(pread(other.get(), kept.data(), bytes, 0) == static_cast<ssize_t>(bytes));
  CHECK(kept == text);
  CHECK(close(number) == 0);
}

TEST_CASE("a buffer is withdrawn while others store beside it in its pages", "[region]") {
  // As short as it can be: a store is to come into the middle of the change of pages.
  constexpr std::uint64_t bytes = 3 * page;
  for (int round = 0; round < 300; ++round) {
    Shared shared(bytes);
    std::byte* const buffer = shared.own + 64;
    REQUIRE(shared.lends(buffer, 2 * page));
    std::atomic<bool> begun{false}, over{false};
    std::uint64_t lost = 0;
    std::thread beside([&] {
      // As plain stores do, but told to the thread sanitizer.
      constexpr auto order = std::memory_order_relaxed;
      const std::atomic_ref before(*reinterpret_cast<std::uint64_t*>(shared.own));
      const std::atomic_ref behind(*reinterpret_cast<std::uint64_t*>(buffer + 2 * page));
      for (std::uint64_t turn = 0; !over; begun = true) {
        lost += before.load(order) != turn || behind.load(order) != turn;
        before.store(++turn, order);
        behind.store(turn, order);
      }
    });
    while (!begun) std::this_thread::yield();
    const bool withdrawn = shared.regions.withdraw(buffer).ok();
    over = true;
    beside.join();
    REQUIRE(withdrawn);
    REQUIRE(lost == 0);
    REQUIRE(shared.regions.release(shared.own).ok());
  }
}

TEST_CASE("no two buffers that peers write share a page", "[region]") {
  Shared shared(4 * page);
  REQUIRE(shared.lends(shared.own, page + 8));
  CHECK_FALSE(shared.lends(shared.own + page + 8, 8));
  CHECK(shared.reaches(shared.own + page + 8, 8));  // to be read
  CHECK(shared.lends(shared.own + 2 * page, page));
  shared.regions.end_loan(shared.own);
  CHECK(shared.lends(shared.own + page + 8, 8));
  REQUIRE(shared.regions.release(shared.own).ok());
}

TEST_CASE("a process that lends and ends is known to have ended", "[region]") {
  int ways[2];
  REQUIRE(pipe(ways) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    RegionTable regions;
    const Probe probe = regions.probe();
    (void)!write(ways[1], &probe, sizeof probe);
    pause();
    _exit(0);
  }
  Probe probe;
  REQUIRE(read(ways[0], &probe, sizeof probe) == sizeof probe);
  const auto peer = PeerMemory::open(probe);
  REQUIRE(peer != nullptr);
  CHECK_FALSE(peer->has_ended());
  REQUIRE(kill(child, SIGKILL) == 0);
  siginfo_t how{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(child), &how, WEXITED | WNOWAIT) == 0);
  CHECK(peer->has_ended());  // nobody has asked how it ended yet
  REQUIRE(waitpid(child, nullptr, 0) == child);
  CHECK(peer->has_ended());
  close(ways[0]);
  close(ways[1]);
}

}  // namespace region_test
