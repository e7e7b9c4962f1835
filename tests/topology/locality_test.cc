// Where ranks run: read from trees of files that stand for hosts, and put in order.
#include "lib/topology/locality.h"

#include "tests/support/catch.h"
#include "tests/topologies/described_machines.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <unistd.h>

namespace locality_test {

using namespace gyre;
using namespace gyre::topology;
namespace fs = std::filesystem;

namespace {

// Two packages of two NUMA nodes; a node has two caches of two cores, a core two threads. Thread t
// of core c is processor c + 16 t, as on many servers.
class FakeServer {
 public:
  FakeServer() {
    std::string pattern = fs::temp_directory_path() / "gyre-server-XXXXXX";
    root_ = mkdtemp(pattern.data());
    for (int processor = 0; processor < 32; ++processor) write_processor(processor);
  }
  ~FakeServer() { fs::remove_all(root_); }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  Locality place(std::initializer_list<int> processors) const {
    ProcessorSet set;
    for (const int processor : processors) set.insert(processor);
    return read_locality(set, root_);
  }
  const fs::path& root() const { return root_; }

 private:
  void write_processor(int processor) const {
    const int core = processor % 16, cache = core / 2 * 2, node = core / 4, package = core / 8;
    const fs::path folder = root_ / fmt::format("devices/system/cpu/cpu{}", processor);
    write(folder / "topology/physical_package_id", std::to_string(package));
    write(folder / "topology/thread_siblings_list", fmt::format("{},{}", core, core + 16));
    write(folder / "cache/index0/level", "1");
    write(folder / "cache/index0/shared_cpu_list", fmt::format("{},{}", core, core + 16));
    write(folder / "cache/index3/level", "3");
    write(folder / "cache/index3/shared_cpu_list",
          fmt::format("{}-{},{}-{}", cache, cache + 1, cache + 16, cache + 17));
    fs::create_directories(folder / fmt::format("node{}", node));
  }
  static void write(const fs::path& file, const std::string& text) {
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }

  fs::path root_;
};

}  // namespace

TEST_CASE("a rank's place is the smallest part that has all its processors") {
  const FakeServer server;
  CHECK(server.place({5}) == Locality{0, 1, 4, 5});
  CHECK(server.place({5, 21}) == Locality{0, 1, 4, 5});
  CHECK(server.place({4, 5}) == Locality{0, 1, 4, -1});
  CHECK(server.place({4, 6}) == Locality{0, 1, -1, -1});
  CHECK(server.place({0, 5}) == Locality{0, -1, -1, -1});
  CHECK(server.place({0, 15}) == Locality{});
  CHECK(server.place({}) == Locality{});
  CHECK(server.place({99}) == Locality{});
}

TEST_CASE("a host that tells little is known as far as it tells") {
  const FakeServer server;
  fs::remove_all(server.root() / "devices/system/cpu/cpu5/cache");
  fs::remove_all(server.root() / "devices/system/cpu/cpu5/node1");
  std::ofstream(server.root() / "devices/system/cpu/cpu5/topology/physical_package_id") << "-1\n";
  CHECK(server.place({5}) == Locality{-1, -1, -1, 5});
  CHECK(read_locality({}, "/nonexistent") == Locality{});
}

TEST_CASE("a machine that is described knows the places that the kernel's files would tell") {
  for (const char* name : {"xeon_8480_snc4", "epyc_9654", "virtual_machine"}) {
    CAPTURE(name);
    const Topology machine = tests::described_machine(name);
    for (const int core : machine.all(NodeKind::core)) {
      const Locality place = find_locality(machine, machine.node(core).processors);
      CHECK(place.core == machine.node(core).processors.numbers().front());
      CHECK(find_place(machine, place) == core);
    }
    const Locality whole = find_locality(machine, machine.node(0).processors);
    CHECK(whole.core == -1);
    CHECK(machine.node(find_place(machine, whole))
              .processors.contains_all(machine.node(0).processors));
    CHECK(find_place(machine, Locality{}) == 0);
    CHECK(find_locality(machine, {}) == Locality{});
  }
}

TEST_CASE("a place survives its text, and other text is no place") {
  for (const Locality& place :
       {Locality{}, Locality{0, 1, 4, 5}, Locality{1, -1, -1, -1}, Locality{0, 0, 0, 0}})
    CHECK(decode_locality(encode(place)) == place);
  CHECK(encode({0, 1, 8, -1}) == "0,1,8,-");
  for (const char* bad : {"", "0", "0,1,2", "0,1,2,3,4", "0,1,2,3,", "a,1,2,3", "0,-1,2,3",
                          "0, 1,2,3", "0,1,2,99999999999"})
    CHECK(decode_locality(bad) == Locality{});
}

TEST_CASE("two ranks are as near as the smallest part that they share") {
  const FakeServer server;
  const Locality first = server.place({0});
  CHECK(path_class(first, server.place({16})) == PathClass::same);
  CHECK(path_class(first, server.place({1})) == PathClass::cache);
  CHECK(path_class(first, server.place({2})) == PathClass::processor);
  CHECK(path_class(first, server.place({4})) == PathClass::node);
  CHECK(path_class(first, server.place({8})) == PathClass::interconnect);
  CHECK(path_class(first, {}) == PathClass::none);
}

TEST_CASE("ranks that are near follow each other") {
  const FakeServer server;
  std::vector<HostedLocality> ranks;
  for (const int core : {0, 8, 2, 10, 1, 9}) ranks.push_back({7, server.place({core})});
  CHECK(near_order(ranks) == std::vector<int>{0, 4, 2, 1, 5, 3});
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    ranks[rank].host = rank % 2 == 0 ? 9 : 4;  // rank 0's host comes first
  CHECK(near_order(ranks) == std::vector<int>{0, 4, 2, 1, 5, 3});
  const std::vector<HostedLocality> unknown(5);
  CHECK(near_order(unknown) == std::vector<int>{0, 1, 2, 3, 4});
  CHECK(near_order({}).empty());
}

}  // namespace locality_test
