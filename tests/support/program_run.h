// What the threads of a program share while it is carried out.
#pragma once

#include "tests/support/program.h"
#include "tests/support/ranks.h"

#include <condition_variable>
#include <memory>
#include <mutex>
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

// Threads wait here for each other without the library, unless one of them has failed.
class Crossing {
 public:
  // False: somebody failed, or did not come.
  bool cross(int threads);
  void fail();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int here_ = 0;
  std::size_t passed_ = 0;
  bool failed_ = false;
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
