// Ranks of a CUDA communicator as processes, each over a fake driver of its own; what one does is a
// function that runs in all of them. They are forked while the test has one thread and has not used
// Gyre, say on a shared board what was wrong, and end together, unless one is to die.
#pragma once

#include "tests/support/fake_cuda.h"
#include <gyre/gyre.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gyre::tests {

struct DeviceProcesses {
  int processes = 2;
  int ranks_each = 1;  // rank r lives in process r / ranks_each
  std::function<FakeCudaOptions(int process)> fake = [](int) { return FakeCudaOptions{}; };
  std::function<int(int rank)> device = [](int) { return 0; };
  std::map<std::string, std::string> variables = {};
  int timeout_ms = 20'000;
};

// One process, from within.
class DeviceProcess {
 public:
  DeviceProcess(const DeviceProcesses& all, int process, void* board);
  ~DeviceProcess();
  DeviceProcess(const DeviceProcess&) = delete;
  DeviceProcess& operator=(const DeviceProcess&) = delete;

  int process() const { return process_; }
  int ranks() const { return all_.processes * all_.ranks_each; }
  int rank(std::size_t place) const { return process_ * all_.ranks_each + static_cast<int>(place); }
  // Empty, or why not.
  std::string init();
  std::string call(
      const std::function<gyreResult_t(std::size_t place, gyreComm_t, gyreStream_t)>& one);
  std::string synchronize();
  // Of int32: all collectives are right for this count.
  std::string check_collectives(std::size_t count);
  void destroy();
  void abort();
  // Until the first communicator has an error, or 20 s have passed.
  gyreResult_t await_error();
  // Until all processes are here; false after 20 s.
  bool meet();
  // When somebody said so last, in ns of the steady clock.
  std::atomic<std::int64_t>& moment();

  FakeCuda fake;
  std::unique_ptr<const loaded::CudaDriver> driver;
  std::vector<gyreComm_t> comms;
  std::vector<loaded::CuStream> streams;

  std::int32_t* allocate(std::size_t place, std::size_t count);
  void free_all();
  // Streams and contexts that are the test's own.
  void release_contexts();

 private:
  const DeviceProcesses& all_;
  const int process_;
  void* const board_;
  int meetings_ = 0;
  std::vector<loaded::CuContext> owners_;
  std::vector<loaded::CuDevicePointer> memory_;
};

// Runs `body` in all of them; what it returned, by process, and empty for those in `dying`, which
// must have died of SIGKILL.
std::vector<std::string> run_processes(const DeviceProcesses& all,
                                       const std::function<std::string(DeviceProcess&)>& body,
                                       const std::vector<int>& dying = {});

}  // namespace gyre::tests
