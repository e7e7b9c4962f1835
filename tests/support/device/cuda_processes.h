// Ranks of a CUDA communicator as processes on one machine, over any driver: the fake
// (device_processes.h) or the GPU's (spawned_processes.h). One function runs in all processes. They
// report errors on a shared board and end together, unless one is to die. No Catch2 here: a process
// need not be a test.
#pragma once

#include "lib/base/owned.h"
#include "lib/loaded/cuda.h"
#include "tests/support/base/slowness.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include <gyre/gyre.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gyre::tests {

struct CollectiveCase;

struct DeviceProcesses {
  int processes = 2;
  int ranks_each = 1;  // rank r lives in process r / ranks_each
  // Of the fake drivers; nothing elsewhere.
  std::function<FakeCudaOptions(int process)> fake = [](int) { return FakeCudaOptions{}; };
  std::function<int(int rank)> device = [](int) { return 0; };
  std::map<std::string, std::string> variables = {};
  int timeout_ms = slowness * 20'000;
  int patience_s = 20;  // of meetings, and until all have ended
};

// What all processes see; children of whoever made it have it by its file.
class ProcessBoard {
 public:
  static constexpr int max_processes = 8;
  struct Shown {
    std::atomic<int> ids{0};  // published so far
    gyreUniqueId id{};
    std::atomic<int> met{0};  // arrivals at meetings, of all
    std::atomic<std::int64_t> moment{0};
    char complaints[max_processes][2000] = {};
  };

  ProcessBoard();
  explicit ProcessBoard(int inherited);
  ~ProcessBoard();
  ProcessBoard(const ProcessBoard&) = delete;
  ProcessBoard& operator=(const ProcessBoard&) = delete;

  int file() const { return file_.get(); }
  Shown& operator*() const { return *shown_; }
  Shown* operator->() const { return shown_; }
  void complain(int process, const std::string& complaint) const;

 private:
  FileDescriptor file_;
  Shown* shown_ = nullptr;
};

// One process, from within.
class CudaProcess {
 public:
  CudaProcess(const DeviceProcesses& all, int process, const ProcessBoard& board,
              std::unique_ptr<const loaded::CudaDriver> table);
  ~CudaProcess();
  CudaProcess(const CudaProcess&) = delete;
  CudaProcess& operator=(const CudaProcess&) = delete;

  int process() const { return process_; }
  int ranks() const { return all_.processes * all_.ranks_each; }
  int rank(std::size_t place) const { return process_ * all_.ranks_each + static_cast<int>(place); }
  // Empty, or why not. Again after `destroy`: other communicators.
  std::string init();
  std::string call(
      const std::function<gyreResult_t(std::size_t place, gyreComm_t, gyreStream_t)>& one);
  // Until the streams are done.
  std::string synchronize();
  // The same, and the errors of the communicators: the data is wrong where a call has failed.
  std::string finish();
  // Of int32: all collectives are right for this count.
  std::string check_collectives(std::size_t count);
  std::string check(const CollectiveCase& one);
  void destroy();
  void abort();
  // Until the first communicator has an error, or `patience_s` have passed.
  gyreResult_t await_error();
  // Until all processes are here; false after `patience_s`.
  bool meet();
  // When somebody said so last, in ns of the steady clock.
  std::atomic<std::int64_t>& moment();

  std::unique_ptr<const loaded::CudaDriver> driver;
  std::vector<gyreComm_t> comms;
  std::vector<loaded::CuStream> streams;

  // From now on `allocate` gives what gyreMemAllocOn does, which other processes can be lent.
  bool takes_gyre_memory = false;
  // Memory of the place's device; only where the fake is it is the host's as well.
  std::int32_t* allocate(std::size_t place, std::size_t count);
  void write(void* to, const void* from, std::size_t bytes);
  void read(void* to, const void* from, std::size_t bytes);
  void fill(std::int32_t* to, std::size_t count,
            const std::function<std::int32_t(std::size_t i)>& element);
  std::vector<std::int32_t> values(const std::int32_t* from, std::size_t count);
  void free_all();
  // Streams and contexts that are the test's own.
  void release_contexts();

 private:
  const DeviceProcesses& all_;
  const int process_;
  const ProcessBoard& board_;
  int meetings_ = 0, inits_ = 0;
  loaded::CuStream copies_ = nullptr;
  std::vector<loaded::CuContext> owners_;
  std::vector<loaded::CuDevicePointer> memory_;
  std::vector<void*> gyre_memory_;
};

// Runs the body, destroys what it has left, and meets the others if all of them live.
std::string carry_out(CudaProcess& here, const std::function<std::string(CudaProcess&)>& body,
                      bool others_die);
// When all children have ended, or are ended: what each complained of, by process, and empty for
// those in `dying`, which must have died of SIGKILL.
std::vector<std::string> collect_processes(const DeviceProcesses& all, const ProcessBoard& board,
                                           const std::vector<int>& children,
                                           const std::vector<int>& dying);

}  // namespace gyre::tests
