// UCP without a device: it fills the table of lib/loaded/ucp.h. Workers of one process reach each
// other, in any thread. The newest fake counts.
#pragma once

#include "lib/loaded/ucp.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::tests {

struct FakeUcpOptions {
  unsigned major = 1, minor = 13, release = 1;
  // The library's name of a function, which fails at the call of that number alone.
  std::string failing = {};
  int failing_at = 1;
  // The library's name of a function that is not there.
  std::string absent = {};
  // Whether what could be done at once takes until the worker moves on.
  bool is_slow = false;
  bool is_threaded = true;
  std::size_t address_bytes = 64;
  // What a connection uses.
  std::vector<std::string> ways = {"fake/device", "other/device"};
};

class FakeUcp {
 public:
  explicit FakeUcp(FakeUcpOptions options = {});
  ~FakeUcp();
  FakeUcp(const FakeUcp&) = delete;
  FakeUcp& operator=(const FakeUcp&) = delete;

  // As loaded::load_ucp.
  Result<std::unique_ptr<const loaded::Ucp>> load() const;
  const loaded::Ucp& table() const;
  int open_objects() const;  // contexts, workers, connections and requests
  int calls_of(const std::string& symbol) const;
  // Every connection fails, and says so when its worker moves on.
  void cut_all();
  // What is sent from now on stays under way.
  void hold_back(bool held);
  // The configuration that was changed: "KEEPALIVE_INTERVAL=5000ms".
  std::vector<std::string> changes() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

// The library's names of the functions that can fail.
const std::vector<std::string_view>& fallible_ucp();

}  // namespace gyre::tests
