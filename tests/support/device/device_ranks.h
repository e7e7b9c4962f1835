// Communicators of CUDA devices for tests, through the C API: ranks that one thread drives, in
// groups, with a stream each; and collectives on them with their expected results.
#pragma once

#include "lib/comm/device_backend.h"
#include "lib/comm/process.h"
#include "tests/support/base/mentions.h"
#include "tests/support/catch.h"
#include "tests/support/comm/ranks.h"
#include "tests/support/device/on_cuda.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include <gyre/gyre.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace gyre::tests {

inline std::string last_error(gyreComm_t comm = nullptr) { return gyreGetLastError(comm); }

// What OnFake has before OnCuda asks it.
struct FakeMachine {
  FakeMachine(const FakeCudaOptions& options, Variables wanted)
      : fake(options), variables(with_small_slots(std::move(wanted))) {}
  static Variables with_small_slots(Variables variables) {
    variables.emplace("GYRE_BUFFSIZE", "4096");
    return variables;
  }
  FakeCuda fake;
  WithVariables variables;
};

// The fake in place of the machine's driver. Small slots: its memory is the host's.
class OnFake : public FakeMachine, public OnCuda {
 public:
  explicit OnFake(const FakeCudaOptions& options = {}, Variables wanted = {})
      : FakeMachine(options, std::move(wanted)), OnCuda(fake.table()) {
    comm::process().use_cuda(fake.library_table(), FakeCuda::images());
  }
  ~OnFake() {
    leave();
    comm::process().use_cuda(nullptr, {});
    CHECK(fake.failure() == "");
    CHECK(fake.synchronising_shown() == "");
    CHECK(fake.leaks() == "");
  }
};

// Of a communicator on a device.
inline comm::DeviceBackend& device_backend(comm::Communicator& communicator) {
  return dynamic_cast<comm::DeviceBackend&>(communicator.backend());
}
// Once all have joined.
inline comm::DeviceResources& device_resources(comm::Communicator& communicator) {
  return *device_backend(communicator).resources();
}

// Elements in memory of the current device.
class DeviceInts {
 public:
  DeviceInts(const OnCuda& on, std::size_t count)
      : on_(&on), count_(count), bytes_(on, count * sizeof(std::int32_t)) {}
  std::int32_t* data() const { return reinterpret_cast<std::int32_t*>(bytes_.address()); }
  void fill(const std::function<int(std::size_t i)>& element) const {
    std::vector<std::int32_t> all(count_);
    for (std::size_t i = 0; i < count_; ++i) all[i] = element(i);
    on_->write(bytes_.address(), all.data(), count_ * sizeof(std::int32_t));
  }
  std::vector<std::int32_t> values() const {
    std::vector<std::int32_t> all(count_);
    on_->read(all.data(), bytes_.address(), count_ * sizeof(std::int32_t));
    return all;
  }

 private:
  const OnCuda* on_;
  std::size_t count_;
  DeviceBytes bytes_;
};

inline gyreConfig_t device_config(int device) {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.device = device;
  config.maxCTAs = 2;
  return config;
}

// All ranks of a communicator, on devices in turn, with a stream each.
class Ranks {
 public:
  Ranks(const OnCuda& on, int count, int devices = 1, int timeout_ms = 0) : on_(on) {
    begun = begin(count, devices, timeout_ms);
    if (begun != gyreSuccess) return;
    for (int rank = 0; rank < count; ++rank) {
      loaded::CuStream stream = nullptr;
      if (on_.driver->stream_create(&stream, loaded::cu::stream_non_blocking) !=
          loaded::cu::success)
        throw std::runtime_error("no stream");  // an assertion is the main thread's alone
      streams.push_back(stream);
    }
  }
  ~Ranks() {
    for (gyreComm_t comm : comms)
      if (comm != nullptr) CHECK(gyreCommDestroy(comm) == gyreSuccess);
    for (loaded::CuStream stream : streams) (void)on_.driver->stream_destroy(stream);
  }

  using Call = std::function<gyreResult_t(int rank, gyreComm_t comm, gyreStream_t stream)>;
  gyreResult_t call(const Call& one) {
    (void)gyreGroupStart();
    for (std::size_t rank = 0; rank < comms.size(); ++rank)
      (void)one(static_cast<int>(rank), comms[rank], stream(rank));
    return gyreGroupEnd();
  }
  // The same with a thread for each rank, which waits for its stream; what went wrong.
  std::string call_in_threads(const Call& one) {
    Complaints complaints;
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < comms.size(); ++rank)
      threads.emplace_back([&, rank] {
        const loaded::CurrentContext scope(*on_.driver, on_.owner);
        gyreComm_t comm = comms[rank];
        if (one(static_cast<int>(rank), comm, stream(rank)) != gyreSuccess)
          return complaints.add(last_error(comm));
        complaints.expect(on_.driver->stream_synchronize(streams[rank]) == loaded::cu::success,
                          "cuStreamSynchronize failed");
        gyreResult_t result = gyreSuccess;
        (void)gyreCommGetAsyncError(comm, &result);
        complaints.expect(result == gyreSuccess, last_error(comm));
      });
    for (std::thread& thread : threads) thread.join();
    return complaints.all();
  }
  gyreStream_t stream(std::size_t rank) const {
    return reinterpret_cast<gyreStream_t>(streams[rank]);
  }
  void synchronize() {
    for (loaded::CuStream one : streams)
      REQUIRE(on_.driver->stream_synchronize(one) == loaded::cu::success);
  }
  // Until the communicator has an error, or 10 s have passed.
  gyreResult_t await_error(std::size_t rank) {
    gyreResult_t found = gyreSuccess;
    for (int i = 0; i < 10000 && (found == gyreSuccess || found == gyreInProgress); ++i) {
      (void)gyreCommGetAsyncError(comms[rank], &found);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return found;
  }

  std::vector<gyreComm_t> comms;
  std::vector<loaded::CuStream> streams;
  gyreResult_t begun = gyreSuccess;

 private:
  gyreResult_t begin(int count, int devices, int timeout_ms) {
    gyreUniqueId id;
    if (const gyreResult_t made = gyreGetUniqueId(&id); made != gyreSuccess) return made;
    comms.assign(static_cast<std::size_t>(count), nullptr);
    (void)gyreGroupStart();
    gyreResult_t refused = gyreSuccess;
    for (int rank = 0; rank < count && refused == gyreSuccess; ++rank) {
      gyreConfig_t config = device_config(rank % devices);
      if (timeout_ms > 0) config.timeoutMs = timeout_ms;
      refused =
          gyreCommInitRankConfig(&comms[static_cast<std::size_t>(rank)], count, id, rank, &config);
    }
    if (refused == gyreSuccess) return gyreGroupEnd();
    (void)gyreGroupEnd();
    return refused;
  }
  const OnCuda& on_;
};

// One collective of all ranks on fresh buffers; what was wrong.
struct Collective {
  const char* name;
  // Elements a rank brings and gets, in blocks, of n ranks.
  int brings, gets;  // -1: n blocks
  std::function<gyreResult_t(const void*, void*, std::size_t, gyreComm_t, gyreStream_t)> call;
  // Element i of what `rank` of n ranks gets; block is i / count.
  std::function<int(int n, int rank, std::size_t i, std::size_t count)> wanted;
  bool root_only = false;
};

inline int brought(int rank, std::size_t i) {
  return 1000 * (rank + 1) + static_cast<int>(i % 997);
}

inline int sum_of_all(int n, std::size_t i) {
  int sum = 0;
  for (int rank = 0; rank < n; ++rank) sum += brought(rank, i);
  return sum;
}

std::vector<Collective> collectives();
// Fresh buffers of so many elements a block.
void check_collective(const OnCuda& on, Ranks& ranks, const Collective& one, std::size_t count);

}  // namespace gyre::tests
