// ManyCommunicators: a rank's handles of many communicators that live at the same time.
#pragma once

#include <gyre/gyre.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace gyre::tests {

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The sum of 1 over the ranks of a communicator, as a rank sees it; -1 on an error.
inline int headcount(gyreComm_t comm) {
  int one = 1;
  return gyreAllReduce(&one, &one, 1, gyreInt, gyreSum, comm, nullptr) == gyreSuccess ? one : -1;
}

// What may stay of `live` communicators that were: tables that have grown, lists of free places.
inline double kept_kib(int live) { return 128 + 0.25 * live; }

// A rank's places in `live` communicators that were split off one parent, all of which have
// reduced.
class ManyCommunicators {
 public:
  // False with the error in gyreGetLastError.
  bool gather(int rank, gyreComm_t parent, int size, int live) {
    for (int i = 0; i < live; ++i) {
      gyreComm_t comm = nullptr;
      if (gyreCommSplit(parent, 0, rank, &comm, nullptr) != gyreSuccess) return false;
      comms_.push_back(comm);
      if (headcount(comm) != size) return false;
    }
    return true;
  }
  // All of them still work.
  bool use(int size) const {
    return std::ranges::all_of(comms_, [&](gyreComm_t comm) { return headcount(comm) == size; });
  }
  bool end() const {
    return std::ranges::all_of(
        comms_, [](gyreComm_t comm) { return gyreCommDestroy(comm) == gyreSuccess; });
  }

 private:
  std::vector<gyreComm_t> comms_;
};

}  // namespace gyre::tests
