// rdma in a process that forks: a fork must not part the pages that a NIC knows from those that
// this process has.
#include "lib/transport/lasting_memory.h"
#include "lib/transport/pinned_pages.h"
#include "tests/support/catch.h"
#include "tests/support/transports/rdma_pair.h"

#include <cerrno>
#include <functional>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace rdma_fork_test {

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;

namespace {

constexpr std::size_t page = 4096;

// How a child ends that does this and goes.
int status_of_child(const std::function<int()>& body) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(30);
    _exit(body());
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

bool is_mapped(std::uintptr_t address) {
  unsigned char residence = 0;
  return mincore(reinterpret_cast<void*>(address / page * page), page, &residence) == 0 ||
         errno != ENOMEM;
}

}  // namespace

TEST_CASE("a forked child has none of the pages that a NIC knows of a connection", "[rdma]") {
  const Network network(two_nics());
  constexpr std::uint32_t bytes = 64 << 10;
  JoinedPair pair({4, 2, bytes});
  REQUIRE(text_of(pair.link.status) == "");
  pair.send(bytes, 0);
  CHECK(pair.arrives(bytes, 0));
  const std::vector<MemoryRange> known = network.fake.registered();
  // Of each NIC: slots and notes of both ends, and what empty writes ask.
  CHECK(known.size() >= 10);
  CHECK(status_of_child([&] {
          for (const MemoryRange& range : known)
            for (std::uintptr_t at = range.begin(); at < range.begin() + range.bytes; at += page)
              if (is_mapped(at)) return 1;
          return 0;
        }) == 0);
  for (const MemoryRange& range : known) CHECK(is_mapped(range.begin()));
  pair.send(bytes, 1);
  CHECK(pair.arrives(bytes, 1));
}

TEST_CASE("the kernels whose forks copy pinned pages are known by their release", "[rdma]") {
  for (const char* const release :
       {"5.12.0", "5.12", "5.15.0-91-generic", "6.1.0-18-amd64", "6.0", "10.0.1", "5.100-rc1"})
    CHECK(forks_copy_pinned_pages(release));
  for (const char* const release : {"5.11.22", "5.4.0-150-generic", "4.18.0-513.el8.x86_64",
                                    "3.10.0", "2.6.78", "5", "5.", "", "x", "-5.12", "5.x"})
    CHECK_FALSE(forks_copy_pinned_pages(release));
}

TEST_CASE("where a fork parts pinned pages, NICs reach regions alone", "[rdma]") {
  RegionTable regions;
  LastingMemory lasting(regions);
  std::vector<std::byte> plain(page);
  (void)lasting.add({plain.data(), page});
  const auto region = regions.allocate(page);
  REQUIRE(region.ok());
  CHECK(lasting.covers(plain.data(), page) == forks_copy_pinned_pages());
  CHECK(lasting.covers(*region, page));
  // Of this thread: the kernel says that it is 2.6.
  const int before = personality(0xffffffff);
  REQUIRE(personality(static_cast<unsigned long>(before) | UNAME26) >= 0);
  utsname shown{};
  (void)uname(&shown);
  const bool is_old = !forks_copy_pinned_pages(shown.release);
  const bool covers_plain = lasting.covers(plain.data(), page);
  const bool covers_region = lasting.covers(*region, page);
  REQUIRE(personality(static_cast<unsigned long>(before)) >= 0);
  if (!is_old) WARN("this kernel does not say that it is 2.6, but " << shown.release);
  CHECK(covers_plain != is_old);
  CHECK(covers_region);
  CHECK(regions.release(*region).ok());
}

}  // namespace rdma_fork_test
