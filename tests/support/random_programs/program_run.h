// The state that the threads of a running program share, in one process or in several.
#pragma once

#include "tests/support/comm/ranks.h"
#include "tests/support/random_programs/program.h"

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace gyre::tests {

// A buffer of a program with guards around it.
class LiveBuffer {
 public:
  explicit LiveBuffer(const ProgramBuffer& made);
  ~LiveBuffer();
  LiveBuffer(const LiveBuffer&) = delete;
  LiveBuffer& operator=(const LiveBuffer&) = delete;
  std::byte* begin() { return whole_ + guard_bytes + shift_; }
  std::size_t bytes() const { return bytes_; }
  // Of its bytes, or of the guards; empty if all are as they should be.
  std::string wrong(const std::vector<std::byte>& expected) const;

 private:
  static constexpr std::size_t guard_bytes = 64;
  const std::size_t bytes_, shift_;
  const bool allocated_;
  const std::size_t whole_bytes_;
  std::vector<std::byte> heap_;
  std::byte* whole_ = nullptr;
};

// Threads wait here for each other without the library, unless one of them has failed. It may lie
// in memory that processes share.
class Crossing {
 public:
  // False: somebody failed, or did not come.
  bool cross(int threads);
  void fail() { failed_ = true; }

 private:
  std::atomic<int> arrived_{0};
  std::atomic<bool> failed_{false};
};

// What all threads of a program share; likewise.
class ProgramBoard {
 public:
  std::atomic<int> has_id{0};
  gyreUniqueId id = {};
  Crossing crossing;

  void complain(const std::string& text);
  bool none_yet() const { return complaints_ == 0; }
  std::string all() const;

 private:
  static constexpr int most_ = 10;
  std::atomic<int> complaints_{0};
  std::array<std::array<char, 1000>, most_> texts_ = {};
};

// The member of a communicator that a thread acts for.
struct Acting {
  int member;
  gyreComm_t* handle;
};

gyreResult_t settled(gyreComm_t comm);

// Makes the fault with the members that this thread acts for; what is wrong with what they are
// told. All threads of the program cross twice, so that no other communicator waits for one. The
// memory outlives the communicator.
std::string broken(const Break& fault, int size, std::vector<Acting> acting, int threads,
                   Crossing& crossing, std::vector<std::vector<float>>& memory);

}  // namespace gyre::tests
