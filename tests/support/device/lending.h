// Shared by the tests of memory that is lent between processes: sums over all ranks on several
// kinds of buffers, and the number of messages that did not go through slots.
#pragma once

#include "lib/comm/communicator.h"
#include "lib/comm/process.h"
#include "tests/support/device/device_processes.h"

#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

namespace gyre::tests {

// Variables by which calls lend where they can.
std::map<std::string, std::string> directly(std::map<std::string, std::string> more = {});

template <typename Condition>
bool soon(const Condition& holds) {
  for (int i = 0; i < 5000 && !holds(); ++i) usleep(1000);
  return holds();
}

// The first complaint, or none.
std::string first_of(std::initializer_list<std::function<std::string()>> steps);

using CommunicatorPin = decltype(comm::process().communicators)::Pin;
CommunicatorPin pinned(gyreComm_t comm);

// Messages that came to this rank from other ranks and were not copied through slots, since it was
// asked last. Kernels rest everywhere.
std::size_t take_lent(DeviceProcess& here, gyreComm_t comm);

// One process with buffers for sums, an input and an output of each of its ranks.
class Summing {
 public:
  static constexpr std::size_t count = 3000;  // elements

  explicit Summing(DeviceProcess& here) : here_(here) {}
  ~Summing() { release(); }
  Summing(const Summing&) = delete;
  Summing& operator=(const Summing&) = delete;

  // Of gyreMemAlloc, or not.
  std::string allocate(const std::function<bool(int rank)>& shares);
  std::string allocate() {
    return allocate([](int) { return true; });
  }
  // Of the driver, and registered.
  std::string allocate_registered();
  // Where the test has placed them, registered or not.
  std::string use(std::size_t place, std::int32_t* in, std::int32_t* out, bool registers);
  // All that was registered, with success.
  std::string deregister();
  void release();

  // Whether all that is shared can be lent; asking has it offered.
  bool is_lent() const;
  std::string await_lent();

  void fill();
  gyreResult_t call(std::size_t place, gyreComm_t comm, gyreStream_t stream) {
    return gyreAllReduce(in_[place], out_[place], count, gyreInt32, gyreSum, comm, stream);
  }
  std::string wrong() const;
  // A call of all ranks, in round after round other numbers.
  std::string sum();
  // The same, and what every rank of this process got lent of it.
  std::string sum(std::vector<std::size_t>& lent);
  std::string expect(bool is_lent);

  std::int32_t* in(std::size_t place) const { return in_[place]; }
  std::int32_t* out(std::size_t place) const { return out_[place]; }
  std::vector<void*>& handles(std::size_t place) { return handles_[place]; }

 private:
  DeviceProcess& here_;
  std::vector<std::int32_t*> in_, out_;
  std::vector<void*> shared_;                          // of gyreMemAlloc
  std::map<std::size_t, std::vector<void*>> handles_;  // of registered memory, by place
  static inline int round_ = 0;
};

}  // namespace gyre::tests
