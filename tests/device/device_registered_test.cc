// Memory of the driver, not of gyreMemAlloc, that processes of a CUDA communicator register. CUDA
// IPC lends it, and the caller may free it once gyreCommDeregister has succeeded. The fake drivers
// report memory that is freed while another process has it open.
#include "lib/base/clock.h"
#include "tests/support/catch.h"
#include "tests/support/device/device_ranks.h"
#include "tests/support/device/lending.h"
#include "transports/p2p/virtual_memory.h"

#include <csignal>
#include <cstdlib>
#include <fstream>

namespace device_registered_test {

using namespace gyre;
using namespace gyre::tests;
namespace cu = loaded::cu;

namespace {

constexpr std::size_t count = Summing::count;

// It is refused with that code, and the text has these words.
std::string refusal(gyreComm_t comm, gyreResult_t result, gyreResult_t expected,
                    const std::string& words) {
  if (result == gyreSuccess && expected != gyreSuccess) return "it is not refused";
  const std::string text = last_error(comm);
  if (result != expected) return "code " + std::to_string(result) + ": " + text;
  return text.find(words) == text.npos ? "no \"" + words + "\" in: " + text : "";
}

std::string meet(DeviceProcess& here) { return here.meet() ? "" : "no meeting"; }

std::string lend(DeviceProcess& here, Summing& all) {
  return first_of({[&] { return here.init(); }, [&] { return all.allocate_registered(); },
                   [&] { return all.await_lent(); }, [&] { return all.expect(true); }});
}

// Rank 0 of the process has its memory back, if not at the first time of asking.
std::string deregister_soon(DeviceProcess& here, Summing& all) {
  for (void* handle : std::exchange(all.handles(0), {})) {
    bool is_free = false;
    if (!soon([&] {
          return is_free || (is_free = gyreCommDeregister(here.comms[0], handle) == gyreSuccess);
        }))
      return last_error(here.comms[0]);
  }
  return "";
}

// The log of each process, by its id, in a folder that goes with it.
class Logs {
 public:
  Logs() { REQUIRE(mkdtemp(folder_) != nullptr); }
  ~Logs() { CHECK(rmdir(folder_) == 0); }
  Logs(const Logs&) = delete;
  Logs& operator=(const Logs&) = delete;
  std::map<std::string, std::string> variables() const {
    return directly({{"GYRE_DEBUG", "INFO"}, {"GYRE_DEBUG_FILE", name("%p")}});
  }
  // Of this process; it is gone then.
  std::string take() const {
    const std::string file = name(std::to_string(getpid()));
    std::ifstream log(file);
    std::string text{std::istreambuf_iterator<char>(log), {}};
    (void)unlink(file.c_str());
    return text;
  }

 private:
  std::string name(const std::string& process) const {
    return std::string(folder_) + "/of." + process;
  }
  char folder_[22] = "/tmp/gyre-logs-XXXXXX";
};

}  // namespace

TEST_CASE("registered memory is lent between processes, by every algorithm", "[device]") {
  const std::string algorithm = GENERATE("ring", "tree", "oneshot", "twoshot");
  const int processes = GENERATE(2, 3, 4);
  INFO(algorithm << " of " << processes);
  check_all(run_processes(
      {.processes = processes, .variables = directly({{"GYRE_ALGO", "allreduce:" + algorithm}})},
      [](DeviceProcess& here) {
        Summing all(here);
        return first_of({[&] { return lend(here, all); }, [&] { return all.expect(true); },
                         [&] { return all.deregister(); }, [&] { return meet(here); },
                         [&] { return here.check_collectives(77); }});
      }));
}

TEST_CASE("threads and processes lend registered memory side by side", "[device]") {
  check_all(run_processes(
      {.processes = 2, .ranks_each = 2, .variables = directly()}, [](DeviceProcess& here) {
        Summing all(here);
        return first_of({[&] { return lend(here, all); }, [&] { return all.expect(true); },
                         [&] { return all.deregister(); }, [&] { return meet(here); },
                         [&] { return all.sum(); }});
      }));
}

TEST_CASE("what is lent comes to the same bits as what is copied", "[device]") {
  check_all(run_processes({.processes = 3, .variables = directly()}, [](DeviceProcess& here) {
    Summing all(here);
    std::vector<std::int32_t> results[2];
    const auto add_floats = [&](std::vector<std::int32_t>& bits) {
      auto* const in = reinterpret_cast<float*>(all.in(0));
      for (std::size_t i = 0; i < count; ++i)
        in[i] = 1.0F / static_cast<float>(3 * i + static_cast<std::size_t>(here.process()) + 1);
      std::string failed = here.call([&](std::size_t, gyreComm_t comm, gyreStream_t stream) {
        return gyreAllReduce(all.in(0), all.out(0), count, gyreFloat, gyreSum, comm, stream);
      });
      failed += here.synchronize();
      bits.assign(all.out(0), all.out(0) + count);
      return failed + (here.meet() ? "" : "no meeting");
    };
    std::string failed =
        first_of({[&] { return lend(here, all); }, [&] { return add_floats(results[0]); },
                  [&] { return all.deregister(); }, [&] { return meet(here); },
                  [&] { return add_floats(results[1]); }});
    if (failed.empty() && results[0] != results[1]) failed = "other bits";
    return failed;
  }));
}

TEST_CASE("an allocation is lent from its first registration to its last", "[device]") {
  check_all(run_processes({.processes = 2, .variables = directly()}, [](DeviceProcess& here) {
    Summing all(here);
    std::string failed = here.init();
    if (!failed.empty()) return failed;
    // Neither buffer begins or ends with the allocation.
    std::int32_t* const whole = here.allocate(0, 4 * count);
    std::vector<void*>& handles = all.handles(0);
    const auto deregister_last = [&]() -> std::string {
      void* const handle = handles.back();
      handles.pop_back();
      if (gyreCommDeregister(here.comms[0], handle) != gyreSuccess)
        return last_error(here.comms[0]);
      return gyreCommDeregister(here.comms[0], handle) == gyreInvalidArgument ? "" : "twice";
    };
    failed = first_of({[&] { return all.use(0, whole + 100, whole + 2 * count, true); },
                       [&] { return all.await_lent(); }, [&] { return all.expect(true); },
                       deregister_last, [&] { return all.expect(true); },
                       // The same buffers, of which a handle is left.
                       [&] { return all.use(0, whole + 100, whole + 2 * count, false); },
                       [&] { return all.expect(true); }});
    if (!failed.empty()) return failed;
    return first_of({deregister_last, [&] { return all.expect(false); },
                     // And anew.
                     [&] { return all.use(0, whole + 100, whole + 2 * count, true); },
                     [&] { return all.await_lent(); }, [&] { return all.expect(true); },
                     [&] { return all.deregister(); }, [&] { return all.expect(false); }});
  }));
}

TEST_CASE("memory may be freed as soon as it is deregistered, again and again", "[device]") {
  check_all(run_processes({.processes = 3, .variables = directly()}, [](DeviceProcess& here) {
    Summing all(here);
    std::string failed = here.init();
    for (int i = 0; i < 4 && failed.empty(); ++i) {
      failed =
          first_of({[&] { return all.allocate_registered(); }, [&] { return all.await_lent(); },
                    [&] { return all.expect(true); }, [&] { return all.deregister(); }});
      here.free_all();  // with no meeting before it
    }
    return failed;
  }));
}

TEST_CASE("one rank may register and deregister alone", "[device]") {
  check_all(run_processes({.processes = 2, .variables = directly()}, [](DeviceProcess& here) {
    Summing all(here);
    std::vector<std::size_t> lent;
    const bool registers = here.process() == 0;
    std::string failed =
        first_of({[&] { return here.init(); },
                  [&] {
                    std::int32_t* const in = here.allocate(0, count);
                    return all.use(0, in, here.allocate(0, count), registers);
                  },
                  [&] { return all.await_lent(); }, [&] { return all.sum(lent); }});
    if (failed.empty() && lent[0] == 0) failed = "nothing was lent";
    return first_of({[&] { return failed; }, [&] { return all.deregister(); },
                     [&] { return all.expect(false); }});
  }));
}

TEST_CASE("who deregisters waits for its own calls", "[device]") {
  check_all(run_processes({.processes = 2, .variables = directly()}, [](DeviceProcess& here) {
    Summing all(here);
    std::string failed = lend(here, all);
    all.fill();
    if (here.process() == 1) usleep(200'000);  // the other one's kernel waits meanwhile
    failed += here.call([&](std::size_t place, gyreComm_t comm, gyreStream_t stream) {
      return all.call(place, comm, stream);
    });
    failed += all.deregister();
    here.free_all();
    return failed + here.synchronize();
  }));
}

TEST_CASE("memory stays open while a peer's calls wait for this rank, and can be asked for again",
          "[device]") {
  check_all(run_processes({.processes = 2, .variables = directly()}, [](DeviceProcess& here) {
    Summing all(here);
    std::string failed = lend(here, all);
    const auto begin = [&] {
      return here.call([&](std::size_t place, gyreComm_t comm, gyreStream_t stream) {
        return all.call(place, comm, stream);
      });
    };
    all.fill();
    const int before = here.fake.synchronising_calls();
    if (here.process() == 1) failed += begin();
    if (!here.meet()) return failed + "no meeting";
    const std::int64_t from_ns = SystemClock::read();
    std::int32_t* const other = here.process() == 0 ? here.allocate(0, 10) : nullptr;
    void* handle = nullptr;
    if (failed.empty() && here.process() == 0) {
      // Nor is anything opened meanwhile.
      if (gyreCommRegister(here.comms[0], other, 40, &handle) != gyreSuccess)
        failed = last_error(here.comms[0]);
      all.handles(0).push_back(handle);
      failed += refusal(here.comms[0], gyreCommDeregister(here.comms[0], all.handles(0)[0]),
                        gyreInProgress, "rank 1 had unfinished calls, which may wait for rank 0");
    }
    if (SystemClock::read() - from_ns > 3 * ns_per_s) failed += "it took too long";
    if (here.process() == 0) failed += begin();
    failed += here.synchronize();
    if (failed.empty()) failed = all.wrong();
    if (here.process() == 1 && here.fake.synchronising_calls() > before)
      failed += "the driver was asked for what may wait for a kernel";
    if (!here.meet()) return failed + "no meeting";
    // The same handle again.
    return failed.empty() ? all.deregister() : failed;
  }));
}

TEST_CASE("graphs of a peer keep memory open, and it is free when they are gone",
          "[device][graph]") {
  check_all(run_processes({.processes = 2, .variables = directly()}, [](DeviceProcess& here) {
    Summing all(here);
    const loaded::CudaDriver& driver = *here.driver;
    loaded::CuGraph graph = nullptr;
    loaded::CuGraphRun run = nullptr;
    std::string failed = lend(here, all);
    if (failed.empty()) {
      (void)driver.stream_begin_capture(here.streams[0], cu::capture_thread_local);
      if (all.call(0, here.comms[0], reinterpret_cast<gyreStream_t>(here.streams[0])) !=
          gyreSuccess)
        failed = last_error(here.comms[0]);
      (void)driver.stream_end_capture(here.streams[0], &graph);
      if (driver.graph_instantiate(&run, graph, 0) != cu::success) failed += "no graph";
    }
    for (int replay = 0; replay < 3 && failed.empty(); ++replay) {
      all.fill();
      failed = here.meet() ? "" : "no meeting";
      (void)take_lent(here, here.comms[0]);
      failed += here.meet() ? "" : "no meeting";
      (void)driver.graph_launch(run, here.streams[0]);
      failed += here.synchronize();
      failed += all.wrong();
      if (!here.meet() || take_lent(here, here.comms[0]) == 0) failed += "nothing was lent";
    }
    if (!here.meet()) failed += "no meeting";
    void* const handle = all.handles(0).empty() ? nullptr : all.handles(0)[0];
    if (failed.empty() && here.process() == 0)
      failed = refusal(here.comms[0], gyreCommDeregister(here.comms[0], handle), gyreInProgress,
                       "CUDA graphs hold calls of rank 1");
    (void)driver.graph_run_destroy(run);
    (void)driver.graph_destroy(graph);
    if (!here.meet()) return failed + "no meeting";
    if (here.process() == 1) here.destroy();
    if (!here.meet()) return failed + "no meeting";
    if (here.process() == 0) {
      if (failed.empty()) failed = deregister_soon(here, all);
      here.free_all();
    }
    // Rank 1's is registered to the end: it goes when all have destroyed their communicators.
    here.destroy();
    all.handles(0).clear();
    if (!here.meet()) return failed + "no meeting";
    return failed;
  }));
}

TEST_CASE("memory that was freed while it was registered is refused", "[device]") {
  check_all(run_processes({.processes = 2, .variables = directly()}, [](DeviceProcess& here) {
    Summing all(here);
    std::string failed = here.init();
    std::int32_t* const in = here.allocate(0, count);
    std::int32_t* const out = here.allocate(0, count);
    failed += all.use(0, in, out, false);
    failed += all.sum();
    // Nobody gets it open, so that the free itself does no harm.
    const int before = here.fake.allocations();
    if (here.process() == 1) here.fake.fail_allocation(1);
    if (!here.meet()) return failed + "no meeting";
    const gyreComm_t comm = here.comms[0];
    const std::size_t bytes = count * sizeof *in;
    void* handle = nullptr;
    if (here.process() == 0 && gyreCommRegister(comm, in, bytes, &handle) != gyreSuccess)
      failed += last_error(comm);
    if (here.process() == 1 && !soon([&] { return here.fake.allocations() > before; }))
      failed += "nothing came";
    if (!here.meet()) return failed + "no meeting";
    if (here.process() == 0 && failed.empty()) {
      const auto sum = [&] {
        return gyreAllReduce(in, out, count, gyreInt32, gyreSum, comm,
                             reinterpret_cast<gyreStream_t>(here.streams[0]));
      };
      (void)here.driver->free(reinterpret_cast<loaded::CuDevicePointer>(in));
      failed += refusal(comm, sum(), gyreInvalidArgument, "it was freed");
      // Others lie there now.
      std::int32_t* other = nullptr;
      for (int i = 0; i < 100 && other != in; ++i) other = here.allocate(0, count);
      if (other != in) return failed + "never at the same place";
      failed += refusal(comm, sum(), gyreInvalidUsage, "freed before gyreCommDeregister");
      void* second = nullptr;
      failed += refusal(comm, gyreCommRegister(comm, in + 5, 100, &second), gyreInvalidUsage,
                        "freed before gyreCommDeregister");
      if (gyreCommDeregister(comm, handle) != gyreSuccess) failed += last_error(comm);
    }
    if (!here.meet()) return failed + "no meeting";
    return failed.empty() ? all.sum() : failed;
  }));
}

TEST_CASE("registered memory that has no handle for processes is copied, and the log says why",
          "[device]") {
  const bool is_virtual = GENERATE(true, false);
  const Logs logs;
  check_all(
      run_processes({.processes = 2, .variables = logs.variables()}, [&](DeviceProcess& here) {
        Summing all(here);
        std::string failed = here.init();
        const std::size_t bytes = count * sizeof(std::int32_t);
        loaded::CuContext owner = nullptr;
        (void)here.driver->current(&owner);
        auto made = p2p::VirtualMemory::make({*here.driver, owner, 0}, 2 * bytes);
        void* pinned = nullptr;
        (void)here.driver->allocate_host(&pinned, 2 * bytes, cu::host_alloc_portable);
        auto* const place = static_cast<std::int32_t*>(
            is_virtual && made.ok() ? static_cast<void*>((*made)->begin()) : pinned);
        failed += first_of({[&] { return all.use(0, place, place + count, true); },
                            [&] { return all.expect(false); }, [&] { return all.expect(false); },
                            [&] { return all.deregister(); }});
        const std::string words = is_virtual ? "cuIpcGetMemHandle of" : "memory of the host";
        const std::string log = logs.take();
        if (log.find("though registered, are copied") == log.npos || log.find(words) == log.npos)
          failed += "no \"" + words + "\" in: " + log;
        here.destroy();
        (void)here.driver->free_host(pinned);
        return failed;
      }));
}

TEST_CASE("want of memory in who lends or opens costs copies and nothing else", "[device]") {
  const int who = GENERATE(0, 1);
  for (int step = 1; step < 4; ++step) {
    INFO("step " << step << " of process " << who);
    check_all(run_processes({.processes = 2, .variables = directly()}, [=](DeviceProcess& here) {
      Summing all(here);
      std::string failed = here.init();
      failed += first_of({[&] {
                            std::int32_t* const in = here.allocate(0, count);
                            return all.use(0, in, here.allocate(0, count), false);
                          },
                          [&] { return all.sum(); }});
      if (!here.meet()) return failed + "no meeting";
      // Two regions, of a step each at either end.
      if (here.process() == who) here.fake.fail_allocation(step);
      if (here.process() == 0 && failed.empty()) failed = all.use(0, all.in(0), all.out(0), true);
      for (int i = 0; i < 3 && failed.empty(); ++i) {
        failed = all.sum();
        usleep(20'000);
      }
      here.fake.fail_allocation(0);
      return failed.empty() ? all.deregister() : failed;
    }));
  }
}

TEST_CASE("memory that a dead process had open is free when the others have ended", "[device]") {
  check_all(run_processes({.processes = 3, .variables = directly()},
                          [](DeviceProcess& here) {
                            Summing all(here);
                            std::string failed = lend(here, all);
                            if (!here.meet()) return failed + "no meeting";
                            if (here.process() == 2) (void)raise(SIGKILL);
                            if (here.await_error() != gyreRemoteError) failed += "no error";
                            if (here.process() == 1) {
                              usleep(200'000);
                              // Its own memory stays, as rank 0 has it open.
                              here.abort();
                              here.moment().store(1);
                              all.handles(0).clear();
                              if (!soon([&] { return here.moment().load() == 2; }))
                                failed += "no end";
                              return failed;
                            }
                            void* const handle = all.handles(0)[0];
                            failed +=
                                refusal(here.comms[0], gyreCommDeregister(here.comms[0], handle),
                                        gyreRemoteError, "until their communicators are destroyed");
                            if (!soon([&] { return here.moment().load() == 1; }))
                              failed += "no abort";
                            failed += deregister_soon(here, all);
                            here.abort();
                            here.free_all();
                            here.moment().store(2);
                            return failed;
                          },
                          {2}));
}

TEST_CASE("registered memory may be freed when all ranks have destroyed their communicators",
          "[device]") {
  check_all(run_processes({.processes = 3, .variables = directly()}, [](DeviceProcess& here) {
    Summing all(here);
    std::string failed = lend(here, all);
    here.destroy();
    all.handles(0).clear();
    if (!here.meet()) return failed + "no meeting";
    here.free_all();
    return failed;
  }));
}

TEST_CASE("exports that name no memory are refused without harm", "[device]") {
  check_all(run_processes({.processes = 2, .variables = directly()}, [](DeviceProcess& here) {
    Summing all(here);
    std::string failed = here.init();
    if (failed.empty() && here.process() == 1) {
      auto pin = pinned(here.comms[0]);
      comm::RegionMessage message{.kind = comm::RegionMessage::Kind::exported};
      message.number = (1 << 20) + 200;
      message.memory.bytes = message.memory.allocation_bytes = 4096;
      // No such file, then a file of another kind, then one that is no whole allocation.
      for (const std::uint32_t descriptor : {9999U, 0U}) {
        message.memory.lease = {descriptor, 77};
        ++message.number;
        (void)pin->membership().send(0, comm::region_key, encode(message));
      }
      message.memory.offset = 1024;
      message.memory.bytes = 1024;
      (void)pin->membership().send(0, comm::region_key, encode(message));
      for (const auto kind : {comm::RegionMessage::Kind::closed, comm::RegionMessage::Kind::kept})
        (void)pin->membership().send(0, comm::region_key,
                                     encode(comm::RegionMessage{.kind = kind, .number = 300}));
    }
    return first_of({[&] { return failed; }, [&] { return all.allocate_registered(); },
                     [&] { return all.await_lent(); }, [&] { return all.expect(true); },
                     [&] { return all.deregister(); }});
  }));
}

}  // namespace device_registered_test
