// lib/transport: memory that other processes map: what a peer may say of it, what a shortage here
// is, and what is given back when.
#include "lib/transport/region.h"

#include <catch2/catch.hpp>

#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
