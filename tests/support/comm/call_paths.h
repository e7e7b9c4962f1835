// The ways that the tests of collectives send every call: by each algorithm of lib/plan that does
// it, and with each protocol over each transport that has it.
#pragma once

#include "lib/plan/algorithms.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

namespace gyre::tests {

struct CallPath {
  const char* transport;
  const char* protocol;
};
// Whether this machine has a port for RDMA, by the kernel's files.
inline bool has_active_rdma_port() {
  namespace fs = std::filesystem;
  std::error_code error;
  for (const fs::directory_entry& device : fs::directory_iterator("/sys/class/infiniband", error))
    for (const fs::directory_entry& port : fs::directory_iterator(device.path() / "ports", error)) {
      std::string state;
      std::getline(std::ifstream(port.path() / "state"), state);
      if (state.starts_with("4:")) return true;  // "4: ACTIVE"
    }
  return false;
}

// Whether this machine has UCX, where a loader looks first. To load it would change the process.
inline bool has_ucx() {
#ifdef __SANITIZE_THREAD__
  return false;  // its locks are not the sanitizer's
#endif
  namespace fs = std::filesystem;
  std::vector<fs::path> folders = {"/usr/lib", "/usr/lib64", "/usr/local/lib"};
  for (const char* machine : {"x86_64", "aarch64"})
    folders.push_back(fs::path("/usr/lib") / (std::string(machine) + "-linux-gnu"));
  if (const char* const named = std::getenv("LD_LIBRARY_PATH")) folders.emplace_back(named);
  std::error_code error;
  for (const fs::path& folder : folders)
    if (fs::exists(folder / "libucp.so.0", error)) return true;
  return false;
}

// A transport whose slots the peer does not map has no lines.
inline const std::vector<CallPath>& call_paths() {
  static const std::vector<CallPath> paths = [] {
    std::vector<CallPath> all = {
        {"shm", "LL"}, {"shm", "Simple"}, {"shm", "Direct"}, {"tcp", "Simple"}, {"tcp", "Direct"}};
    if (has_active_rdma_port()) all.push_back({"rdma", "Simple"});
    if (has_ucx()) all.push_back({"ucx", "Simple"});
    return all;
  }();
  return paths;
}

enum class Counts { equal, uneven };

// As GYRE_ALGO takes them.
inline std::vector<std::string> algorithms_for(plan::Collective collective,
                                               Counts counts = Counts::equal) {
  std::vector<std::string> names;
  for (const plan::Algorithm& algorithm : plan::algorithms())
    if (algorithm.does(collective) && (counts == Counts::equal || !algorithm.equal_counts))
      names.emplace_back(algorithm.name);
  return names;
}

}  // namespace gyre::tests
