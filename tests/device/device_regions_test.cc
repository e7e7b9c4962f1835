// User buffers between processes of a CUDA communicator: memory of gyreMemAlloc is lent, all other
// memory is copied through slots. Other processes map the fake drivers' memory by descriptors. The
// notes that kernels leave in the links show how much was lent.
#include "tests/support/catch.h"
#include "tests/support/device/device_ranks.h"
#include "tests/support/device/lending.h"

#include <csignal>
#include <fstream>
#include <unistd.h>

namespace device_regions_test {

using namespace gyre;
using namespace gyre::tests;

namespace {

constexpr std::size_t count = Summing::count;

bool holds_memory(DeviceProcess& here) {
  const std::string leaks = here.fake.leaks();
  return leaks.find("physical") != leaks.npos || leaks.find("mappings") != leaks.npos;
}

}  // namespace

TEST_CASE("memory of gyreMemAlloc is lent between processes, by every algorithm", "[device]") {
  const std::string algorithm = GENERATE("ring", "tree", "oneshot", "twoshot");
  const int processes = GENERATE(2, 3, 4);
  INFO(algorithm << " of " << processes);
  check_all(run_processes(
      {.processes = processes, .variables = directly({{"GYRE_ALGO", "allreduce:" + algorithm}})},
      [](DeviceProcess& here) {
        Summing all(here);
        return first_of({[&] { return here.init(); }, [&] { return all.allocate(); },
                         [&] { return all.await_lent(); }, [&] { return all.expect(true); },
                         [&] { return all.expect(true); },
                         [&] { return here.check_collectives(77); }});
      }));
}

TEST_CASE("threads and processes lend side by side", "[device]") {
  check_all(run_processes(
      {.processes = 2, .ranks_each = 2, .variables = directly()}, [](DeviceProcess& here) {
        Summing all(here);
        return first_of({[&] { return here.init(); }, [&] { return all.allocate(); },
                         [&] { return all.await_lent(); }, [&] { return all.expect(true); }});
      }));
}

TEST_CASE("a call begins to lend by itself, and never waits for it", "[device]") {
  check_all(run_processes({.processes = 2, .variables = directly()}, [](DeviceProcess& here) {
    Summing all(here);
    return first_of({[&] { return here.init(); }, [&] { return all.allocate(); },
                     [&] { return all.sum(); }, [&] { return all.await_lent(); },
                     [&] { return all.expect(true); }});
  }));
}

TEST_CASE("a rank lends what the others do not", "[device]") {
  check_all(run_processes({.processes = 2, .variables = directly()}, [](DeviceProcess& here) {
    Summing all(here);
    std::vector<std::size_t> lent;
    std::string failed =
        first_of({[&] { return here.init(); },
                  [&] { return all.allocate([](int rank) { return rank == 0; }); },
                  [&] { return all.await_lent(); }, [&] { return all.sum(lent); }});
    if (failed.empty() && lent[0] == 0) failed = "nothing was lent";
    return failed;
  }));
}

TEST_CASE("memory of others is copied, and the log says so once", "[device]") {
  const bool is_virtual = GENERATE(true, false);
  char folder[] = "/tmp/gyre-log-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string file = std::string(folder) + "/of.";
  DeviceProcesses two{
      .processes = 2,
      .variables = directly({{"GYRE_DEBUG", "INFO"}, {"GYRE_DEBUG_FILE", file + "%p"}})};
  // Without virtual memory there is nothing to lend either.
  two.fake = [=](int) { return FakeCudaOptions{.virtual_memory = is_virtual}; };
  check_all(run_processes(two, [=](DeviceProcess& here) {
    Summing all(here);
    std::string failed =
        first_of({[&] { return here.init(); },
                  [&] { return all.allocate([=](int) { return !is_virtual; }); },
                  [&] { return all.expect(false); }, [&] { return all.expect(false); }});
    const std::string name = file + std::to_string(getpid());
    std::ifstream log(name);
    const std::string text{std::istreambuf_iterator<char>(log), {}};
    (void)unlink(name.c_str());
    const std::string words = "copy such buffers through slots";
    const auto at = text.find(words);
    if (at == text.npos || text.find(words, at + 1) != text.npos) failed += "told not once";
    return failed;
  }));
  CHECK(rmdir(folder) == 0);
}

TEST_CASE("what is registered before the first call is lent by it", "[device]") {
  check_all(run_processes({.processes = 2, .variables = directly()}, [](DeviceProcess& here) {
    Summing all(here);
    void* handles[2] = {};
    std::string failed =
        first_of({[&] { return here.init(); }, [&] { return all.allocate(); },
                  [&]() -> std::string {
                    const std::size_t bytes = count * sizeof(std::int32_t);
                    if (gyreCommRegister(here.comms[0], all.in(0), bytes, &handles[0]) ||
                        gyreCommRegister(here.comms[0], all.out(0) + 1, bytes - 4, &handles[1]))
                      return last_error(here.comms[0]);
                    return "";
                  },
                  [&] { return all.await_lent(); }, [&] { return all.expect(true); }});
    // What gyreMemAlloc gave is lent with it or without.
    for (void* handle : handles)
      if (gyreCommDeregister(here.comms[0], handle) != gyreSuccess) failed += "deregister";
    if (gyreCommDeregister(here.comms[0], handles[0]) != gyreInvalidArgument) failed += "twice";
    if (failed.empty()) failed = all.expect(true);
    std::int32_t* const gone = all.in(0);
    all.release();
    if (gyreCommRegister(here.comms[0], gone, 4, handles) != gyreInvalidArgument) failed += "freed";
    return failed;
  }));
}

TEST_CASE("memory that is freed is free soon, wherever it was lent, and its place serves anew",
          "[device]") {
  check_all(run_processes({.processes = 3, .variables = directly()}, [](DeviceProcess& here) {
    Summing all(here);
    std::string failed = here.init();
    for (int i = 0; i < 3 && failed.empty(); ++i) {
      failed = first_of({[&] { return all.allocate(); }, [&] { return all.await_lent(); },
                         [&] { return all.expect(true); }});
      all.release();
      if (!here.meet()) failed += "no meeting";
      // Nobody calls meanwhile.
      if (!soon([&] { return !holds_memory(here); })) failed += here.fake.leaks();
      if (!here.meet()) failed += "no meeting";
    }
    return failed;
  }));
}

TEST_CASE("one may free what others go on lending", "[device]") {
  check_all(run_processes({.processes = 2, .variables = directly()}, [](DeviceProcess& here) {
    Summing first(here), second(here);
    std::string failed =
        first_of({[&] { return here.init(); }, [&] { return first.allocate(); },
                  [&] { return first.await_lent(); }, [&] { return first.expect(true); }});
    if (here.process() == 0) first.release();
    const auto shares = [](int) { return true; };
    Summing& used = here.process() == 0 ? second : first;
    if (failed.empty() && here.process() == 0) failed = second.allocate(shares);
    if (failed.empty()) failed = used.sum();  // at once, maybe where the other lay
    return failed;
  }));
}

TEST_CASE("a communicator that ends lets go of what others lent to it", "[device]") {
  check_all(run_processes({.processes = 2, .variables = directly()}, [](DeviceProcess& here) {
    Summing all(here);
    std::string failed =
        first_of({[&] { return here.init(); }, [&] { return all.allocate(); },
                  [&] { return all.await_lent(); }, [&] { return all.expect(true); }});
    if (here.process() == 0) here.destroy();
    if (!here.meet()) return failed + "no meeting";
    all.release();
    if (!here.meet()) return failed + "no meeting";
    if (!soon([&] { return !holds_memory(here); })) failed += here.fake.leaks();
    return failed;
  }));
}

TEST_CASE("a rank that is killed while it lends leaves nothing behind", "[device]") {
  check_all(run_processes(
      {.processes = 3, .variables = directly()},
      [](DeviceProcess& here) {
        Summing all(here);
        std::string failed =
            first_of({[&] { return here.init(); }, [&] { return all.allocate(); },
                      [&] { return all.await_lent(); }, [&] { return all.expect(true); }});
        if (!here.meet()) return failed + "no meeting";
        if (here.process() == 2) (void)raise(SIGKILL);
        if (here.await_error() != gyreRemoteError) failed += "no error";
        here.abort();
        return failed;
      },
      {2}));
}

TEST_CASE("each communicator of a split lends for itself", "[device]") {
  check_all(run_processes({.processes = 2, .variables = directly()}, [](DeviceProcess& here) {
    Summing all(here);
    gyreComm_t whole = nullptr;
    std::string failed =
        first_of({[&] { return here.init(); }, [&] { return all.allocate(); },
                  [&] { return all.await_lent(); }, [&] { return all.expect(true); },
                  [&]() -> std::string {
                    whole = here.comms[0];
                    return gyreCommSplit(whole, 0, 0, &here.comms[0], nullptr) == gyreSuccess
                               ? ""
                               : last_error(whole);
                  },
                  [&] { return all.await_lent(); }, [&] { return all.expect(true); }});
    (void)gyreCommDestroy(whole);
    return failed;
  }));
}

TEST_CASE("a graph lends at each replay what its capture found lent", "[device][graph]") {
  check_all(run_processes({.processes = 2, .variables = directly()}, [](DeviceProcess& here) {
    Summing all(here);
    loaded::CuGraph graph = nullptr;
    loaded::CuGraphRun run = nullptr;
    const loaded::CudaDriver& driver = *here.driver;
    std::string failed = first_of(
        {[&] { return here.init(); }, [&] { return all.allocate(); },
         [&] { return all.await_lent(); }, [&] { return all.sum(); },
         [&]() -> std::string {
           (void)driver.stream_begin_capture(here.streams[0], loaded::cu::capture_thread_local);
           const auto stream = reinterpret_cast<gyreStream_t>(here.streams[0]);
           const bool called = all.call(0, here.comms[0], stream) == gyreSuccess;
           (void)driver.stream_end_capture(here.streams[0], &graph);
           const auto made = driver.graph_instantiate(&run, graph, 0);
           if (!called) return last_error(here.comms[0]);
           return made == loaded::cu::success ? "" : "no graph";
         }});
    if (!failed.empty()) return failed;
    // The communicator may go before the graph does.
    for (int replay = 0; replay < 4 && failed.empty(); ++replay) {
      if (!here.meet()) return std::string("no meeting");
      if (replay < 3) (void)take_lent(here, here.comms[0]);
      if (replay == 3) here.destroy();
      all.fill();
      if (!here.meet()) return std::string("no meeting");
      (void)driver.graph_launch(run, here.streams[0]);
      failed = here.synchronize();
      failed += all.wrong();
      if (!here.meet()) return std::string("no meeting");
      if (replay < 3 && take_lent(here, here.comms[0]) == 0) failed += "nothing was lent";
    }
    (void)driver.graph_run_destroy(run);
    (void)driver.graph_destroy(graph);
    return failed;
  }));
}

TEST_CASE("want of memory in who opens a region costs copies and nothing else", "[device]") {
  for (int step = 1; step < 6; ++step) {
    INFO("step " << step);
    check_all(run_processes({.processes = 2, .variables = directly()}, [=](DeviceProcess& here) {
      Summing all(here);
      // Two regions of four steps: import, reserve, map, access.
      std::string failed =
          first_of({[&] { return here.init(); },
                    [&] { return all.allocate([](int rank) { return rank == 0; }); },
                    [&] { return all.sum(); }});
      if (here.process() == 1) here.fake.fail_allocation(step);
      for (int i = 0; i < 3 && failed.empty(); ++i) {
        failed = all.sum();
        usleep(20'000);
      }
      here.fake.fail_allocation(0);
      return failed;
    }));
  }
}

TEST_CASE("messages that name no region are heard without harm", "[device]") {
  check_all(run_processes({.processes = 2, .variables = directly()}, [](DeviceProcess& here) {
    Summing all(here);
    std::string failed = here.init();
    if (failed.empty() && here.process() == 1) {
      auto pin = pinned(here.comms[0]);
      const auto send = [&](std::vector<std::uint8_t> message) {
        (void)pin->membership().send(0, comm::region_key, std::move(message));
      };
      using Kind = comm::RegionMessage::Kind;
      send({});
      send(std::vector<std::uint8_t>(56, 0x5a));
      for (const Kind kind : {Kind::opened, Kind::refused, Kind::withdrawn})
        send(encode(comm::RegionMessage{.kind = kind, .number = 1234}));
      // Memory that nobody hands over, twice in one place, where no other offer comes.
      comm::RegionMessage offer{.number = (1 << 20) + 200, .bytes = 1 << 20, .ticket = {}};
      send(encode(offer));
      offer.number += cuda::max_regions;
      send(encode(offer));
    }
    return first_of({[&] { return failed; }, [&] { return all.allocate(); },
                     [&] { return all.await_lent(); }, [&] { return all.expect(true); }});
  }));
}

}  // namespace device_regions_test
