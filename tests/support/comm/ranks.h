// n ranks as threads of this process, each with its communicator, under settings of the test's
// choice.
#pragma once

#include "tests/support/catch.h"
#include <gyre/gyre.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace gyre::tests {

using Variables = std::map<std::string, std::string>;

// Sets variables for its lifetime. Communicators read them when they are made.
class WithVariables {
 public:
  explicit WithVariables(const Variables& variables) : variables_(variables) {
    for (const auto& [name, value] : variables_) setenv(name.c_str(), value.c_str(), 1);
  }
  ~WithVariables() {
    for (const auto& [name, value] : variables_) unsetenv(name.c_str());
  }
  WithVariables(const WithVariables&) = delete;
  WithVariables& operator=(const WithVariables&) = delete;

 private:
  const Variables variables_;
};

// Catch2's macros are for one thread; ranks collect what went wrong and the test reports it.
class Complaints {
 public:
  void add(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (texts_.size() < 10) texts_.push_back(text);
  }
  void expect(bool good, const std::string& text) {
    if (!good) add(text);
  }
  bool none() const { return texts_.empty(); }
  // While others still add.
  bool none_yet() {
    const std::lock_guard lock(mutex_);
    return texts_.empty();
  }
  std::string all() const {
    std::string joined;
    for (const std::string& text : texts_) joined += text + "\n";
    return joined;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> texts_;
};

// Runs body(rank, comm, complaints) on n threads and fails the test with what they complained of.
template <typename Body>
void on_ranks(int n, Body&& body, gyreConfig_t* config = nullptr) {
  Complaints complaints;
  gyreUniqueId id;
  REQUIRE(gyreGetUniqueId(&id) == gyreSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank)
    threads.emplace_back([&, rank] {
      gyreComm_t comm = nullptr;
      const gyreResult_t made = gyreCommInitRankConfig(&comm, n, id, rank, config);
      if (made != gyreSuccess && made != gyreInProgress)  // that of one that does not block
        return complaints.add(std::string("init: ") + gyreGetLastError(nullptr));
      body(rank, comm, complaints);
      int size = 0;
      if (gyreCommCount(comm, &size) != gyreSuccess) return;  // the body has ended it
      complaints.expect(gyreCommDestroy(comm) == gyreSuccess, gyreGetLastError(nullptr));
    });
  for (std::thread& thread : threads) thread.join();
  INFO(complaints.all());
  REQUIRE(complaints.none());
}

}  // namespace gyre::tests
