// Where this process listens by TCP, for each way to make communicators. listening_run_test.py
// tests whole jobs of processes.
#include "tests/support/catch.h"
#include "tests/support/comm/ranks.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace listening_test {

using namespace gyre::tests;

namespace {

std::set<std::string> own_sockets() {
  std::set<std::string> inodes;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string link = std::filesystem::read_symlink(entry.path(), gone).string();
    if (link.starts_with("socket:[")) inodes.insert(link.substr(8, link.size() - 9));
  }
  return inodes;
}

int tcp_listeners() {
  const std::set<std::string> ours = own_sockets();
  int count = 0;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::vector<std::string> fields;
      for (std::string word; words >> word;) fields.push_back(word);
      count += fields.size() > 9 && fields[3] == "0A" && ours.contains(fields[9]);
    }
  }
  return count;
}

bool soon_none() {
  for (int i = 0; i < 5000 && tcp_listeners() != 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return tcp_listeners() == 0;
}

// Variables as a launcher sets them, until the end of the test.
class Said {
 public:
  explicit Said(std::map<std::string, const char*> variables) {
    for (const auto& [name, value] : variables) {
      const char* before = std::getenv(name.c_str());
      before_[name] = before != nullptr ? before : "";
      value != nullptr ? setenv(name.c_str(), value, 1) : unsetenv(name.c_str());
    }
  }
  ~Said() {
    for (const auto& [name, value] : before_)
      value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  std::map<std::string, std::string> before_;
};

std::map<std::string, const char*> launched(const char* size, const char* local_size) {
  return {{"GYRE_SOCKET_IFNAME", nullptr},
          {"RANK", "0"},
          {"WORLD_SIZE", size},
          {"LOCAL_RANK", "0"},
          {"LOCAL_WORLD_SIZE", local_size}};
}

std::vector<gyreComm_t> join_all(const gyreUniqueId& id, int size) {
  std::vector<gyreComm_t> comms(static_cast<std::size_t>(size));
  REQUIRE(gyreGroupStart() == gyreSuccess);
  for (int rank = 0; rank < size; ++rank)
    REQUIRE(gyreCommInitRank(&comms[static_cast<std::size_t>(rank)], size, id, rank) ==
            gyreSuccess);
  REQUIRE(gyreGroupEnd() == gyreSuccess);
  return comms;
}

void destroy(const std::vector<gyreComm_t>& comms) {
  for (gyreComm_t comm : comms) CHECK(gyreCommDestroy(comm) == gyreSuccess);
}

void reduce(const std::vector<gyreComm_t>& comms) {
  std::vector<float> values(comms.size(), 1);
  REQUIRE(gyreGroupStart() == gyreSuccess);
  for (std::size_t i = 0; i < comms.size(); ++i)
    REQUIRE(gyreAllReduce(&values[i], &values[i], 1, gyreFloat, gyreSum, comms[i], nullptr) ==
            gyreSuccess);
  REQUIRE(gyreGroupEnd() == gyreSuccess);
  CHECK(values[0] == static_cast<float>(comms.size()));
}

// A store of one process.
struct MapStore {
  std::mutex mutex;
  std::map<std::string, std::string> values;

  bool has_values() {
    const std::lock_guard lock(mutex);
    return !values.empty();
  }
  gyreStore_t store() {
    return {this,
            [](void* user, const char* key, const void* value, std::size_t bytes) {
              auto& self = *static_cast<MapStore*>(user);
              const std::lock_guard lock(self.mutex);
              self.values[key] = std::string(static_cast<const char*>(value), bytes);
              return 0;
            },
            [](void* user, const char* key, void* value, std::size_t* bytes, int timeout_ms) {
              auto& self = *static_cast<MapStore*>(user);
              for (int i = 0; i < timeout_ms; ++i) {
                {
                  const std::lock_guard lock(self.mutex);
                  if (const auto found = self.values.find(key); found != self.values.end()) {
                    *bytes = found->second.size();
                    std::memcpy(value, found->second.data(), found->second.size());
                    return 0;
                  }
                }
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
              }
              return 1;
            }};
  }
};

}  // namespace

TEST_CASE("an id that anybody may get listens until all have come, and are of this host",
          "[listening]") {
  const Said said({{"GYRE_SOCKET_IFNAME", nullptr}});
  gyreUniqueId id;
  REQUIRE(gyreGetUniqueId(&id) == gyreSuccess);
  CHECK(tcp_listeners() == 1);
  const auto comms = join_all(id, 3);
  CHECK(soon_none());
  std::vector<gyreComm_t> parts(comms.size());
  REQUIRE(gyreGroupStart() == gyreSuccess);
  for (std::size_t i = 0; i < comms.size(); ++i)
    REQUIRE(gyreCommSplit(comms[i], 0, 0, &parts[i], nullptr) == gyreSuccess);
  REQUIRE(gyreGroupEnd() == gyreSuccess);
  reduce(parts);
  CHECK(tcp_listeners() == 0);
  // The next id opens the listener again.
  REQUIRE(gyreGetUniqueId(&id) == gyreSuccess);
  CHECK(tcp_listeners() == 1);
  const auto next = join_all(id, 2);
  CHECK(soon_none());
  destroy(parts);
  destroy(comms);
  destroy(next);
}

TEST_CASE("a launcher with all ranks here is believed, but for what cannot be its", "[listening]") {
  const auto waits_for_others = [](std::map<std::string, const char*> variables) {
    const Said said(std::move(variables));
    gyreUniqueId id;
    REQUIRE(gyreGetUniqueId(&id) == gyreSuccess);
    const bool listens = tcp_listeners() > 0;
    destroy(join_all(id, 2));
    CHECK(soon_none());
    return listens;
  };
  CHECK_FALSE(waits_for_others(launched("4", "4")));
  CHECK(waits_for_others(launched("4", "2")));
  CHECK(waits_for_others(launched("1", "1")));
  auto with_interface = launched("4", "4");
  with_interface["GYRE_SOCKET_IFNAME"] = "lo";
  CHECK(waits_for_others(with_interface));
}

TEST_CASE("a store carries an id for as many hosts as its ranks may have", "[listening]") {
  const Said said(launched("2", "2"));
  const int size = GENERATE(2, 3);
  MapStore shared;
  const gyreStore_t store = shared.store();
  std::vector<gyreComm_t> comms(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  int listeners = 0;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      (void)gyreCommInitStore(&comms[static_cast<std::size_t>(rank)], size, rank, &store, "key",
                              nullptr);
    });
    // The first rank makes the id and waits for the others.
    while (rank == 0 && !shared.has_values())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (rank == 0) listeners = tcp_listeners();
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(listeners == (size == 2 ? 0 : 1));
  reduce(comms);
  CHECK(soon_none());
  destroy(comms);
}

TEST_CASE("ranks of one process listen for nobody, and by tcp for this host", "[listening]") {
  const bool tcp = GENERATE(false, true);
  const Said said({{"GYRE_SOCKET_IFNAME", nullptr}, {"GYRE_TRANSPORT", tcp ? "tcp" : nullptr}});
  std::vector<gyreComm_t> comms(3);
  const std::vector<int> devices(3, GYRE_DEVICE_HOST);
  REQUIRE(gyreCommInitAll(comms.data(), 3, devices.data()) == gyreSuccess);
  CHECK(tcp_listeners() == 0);
  reduce(comms);
  CHECK(tcp_listeners() == (tcp ? 1 : 0));
  destroy(comms);
}

}  // namespace listening_test
