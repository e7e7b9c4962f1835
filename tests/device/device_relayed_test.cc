// Communicators of CUDA devices that cannot reach each other, through the C API: ranks as threads
// and as processes, each process over a fake driver of its own. Kernels use host memory, and relays
// carry their messages over shared memory or tcp.
#include "lib/base/clock.h"
#include "tests/support/catch.h"
#include "tests/support/device/described_devices.h"
#include "tests/support/device/device_processes.h"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <unistd.h>

namespace device_relayed_test {

using namespace gyre;
using namespace gyre::tests;

namespace {

using Variables = std::map<std::string, std::string>;

const Variables over_tls = {{"GYRE_SHM_DISABLE", "1"}, {"GYRE_TCP_SECURITY", "tls"}};

std::string check_counts(DeviceProcess& here) {
  if (const std::string refused = here.init(); !refused.empty()) return refused;
  for (const std::size_t count : {std::size_t{1}, std::size_t{77}, std::size_t{5000}})
    if (const std::string wrong = here.check_collectives(count); !wrong.empty()) return wrong;
  return "";
}

// On buffers of 100 elements that `data` keeps by rank of the process.
std::string all_reduce(DeviceProcess& here, const std::vector<std::int32_t*>& data) {
  return here.call([&](std::size_t place, gyreComm_t comm, gyreStream_t stream) {
    return gyreAllReduce(data[place], data[place], 100, gyreInt32, gyreSum, comm, stream);
  });
}

std::string then_synchronize(DeviceProcess& here, const std::string& refused) {
  return refused.empty() ? here.synchronize() : refused;
}

std::string without(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos ? "" : "no \"" + word + "\" in: " + text;
}

std::string last_error(DeviceProcess& here) { return gyreGetLastError(here.comms[0]); }

}  // namespace

TEST_CASE("every collective is right between devices apart, ranks as threads", "[device]") {
  const int ranks = GENERATE(2, 3);
  const Variables over = GENERATE(over_shm, over_tcp);
  check_all(run_processes(apart(1, ranks, over), check_counts));
}

TEST_CASE("channels with other rings are relayed as well", "[device]") {
  const TopologyFile file(with_fake_devices(described_machine("dgx1_v100")));
  Variables over = over_shm;
  over.emplace("GYRE_TOPO_FILE", file.path());
  over.emplace("GYRE_ALGO", "ring,pairwise,linear");
  check_all(run_processes(apart(2, 2, over), [](DeviceProcess& here) {
    const std::string wrong = check_counts(here);
    if (!wrong.empty()) return wrong;
    const auto plans = all_reduce_plans(here.comms[0]);
    return plans.size() > 1 ? std::string() : "one ring for all channels";
  }));
}

TEST_CASE("every collective is right between devices apart, ranks as processes", "[device]") {
  const int processes = GENERATE(2, 3);
  const Variables over = GENERATE(over_shm, over_tcp, over_tls);
  check_all(run_processes(apart(processes, 1, over), check_counts));
}

TEST_CASE("sends and receives go between devices apart", "[device]") {
  const Variables over = GENERATE(over_shm, over_tcp);
  constexpr std::size_t count = 20000;
  const auto body = [](DeviceProcess& here) -> std::string {
    if (const std::string refused = here.init(); !refused.empty()) return refused;
    const int own = here.process(), ranks = here.ranks();
    std::int32_t* const out = here.allocate(0, count);
    std::int32_t* const in = here.allocate(0, count);
    for (int call = 0; call < 3; ++call) {
      for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<int>(i) * 3 + own + call;
      const std::string refused = here.call([&](std::size_t, gyreComm_t comm, gyreStream_t stream) {
        (void)gyreSend(out, count, gyreInt32, (own + 1) % ranks, comm, stream);
        return gyreRecv(in, count, gyreInt32, (own + ranks - 1) % ranks, comm, stream);
      });
      if (const std::string wrong = then_synchronize(here, refused); !wrong.empty()) return wrong;
      const int from = (own + ranks - 1) % ranks;
      for (std::size_t i = 0; i < count; ++i)
        if (in[i] != static_cast<int>(i) * 3 + from + call) return "element " + std::to_string(i);
    }
    return "";
  };
  check_all(run_processes(apart(3, 1, over), body));
}

TEST_CASE("without peer access nothing needs to be disabled", "[device]") {
  DeviceProcesses all = apart(1, 2);
  all.variables.erase("GYRE_P2P_DISABLE");
  all.fake = [](int) { return FakeCudaOptions{.devices = 2, .peer_access = false}; };
  check_all(run_processes(all, check_counts));
}

TEST_CASE("some pairs reach each other and some are relayed", "[device]") {
  const Variables over = GENERATE(over_shm, over_tcp);
  DeviceProcesses all = apart(2, 2, over);
  // Ranks 0 and 1, of one process, share a device, and so do 2 and 3.
  all.device = [](int rank) { return rank / 2; };
  check_all(run_processes(all, check_counts));
  // Ranks 0 and 2 share one, and are two processes.
  all.device = [](int rank) { return rank % 2; };
  check_all(run_processes(all, check_counts));
}

TEST_CASE("a rank that ends its part early leaves nothing behind that another needs", "[device]") {
  const Variables over = GENERATE(over_shm, over_tcp);
  const auto body = [](DeviceProcess& here) -> std::string {
    if (const std::string refused = here.init(); !refused.empty()) return refused;
    std::int32_t* const data = here.allocate(0, 3000);
    const auto broadcast = [&] {
      return here.call([&](std::size_t, gyreComm_t comm, gyreStream_t stream) {
        return gyreBroadcast(data, data, 3000, gyreInt32, 0, comm, stream);
      });
    };
    if (const std::string failed = then_synchronize(here, broadcast()); !failed.empty())
      return failed;
    if (!here.meet()) return "no meeting";
    if (here.process() != 0) usleep(300'000);
    for (int i = 0; i < 3000; ++i) data[i] = here.process() == 0 ? 7 * i : 0;
    const std::string failed = then_synchronize(here, broadcast());
    if (!failed.empty()) return failed;
    for (int i = 0; i < 3000; ++i)
      if (data[i] != 7 * i)
        return "element " + std::to_string(i) + " is " + std::to_string(data[i]);
    return "";  // and each ends its communicator at once
  };
  check_all(run_processes(apart(2, 1, over), body));
}

TEST_CASE("a protocol that needs memory that is reached is refused, not replaced", "[device]") {
  check_all(run_processes(apart(2, 1, {{"GYRE_PROTO", "LL"}}), [](DeviceProcess& here) {
    if (const std::string refused = here.init(); !refused.empty()) return refused;
    return without(all_reduce(here, {here.allocate(0, 100)}), "GYRE_PROTO");
  }));
}

TEST_CASE("the log says which pairs are relayed, and why", "[device]") {
  const std::string file = "/tmp/gyre-relayed-" + std::to_string(getpid());
  check_all(run_processes(
      apart(2, 1,
            {{"GYRE_DEBUG", "INFO"}, {"GYRE_DEBUG_SUBSYS", "INIT"}, {"GYRE_DEBUG_FILE", file}}),
      [&](DeviceProcess& here) {
        if (const std::string refused = here.init(); !refused.empty()) return refused;
        std::ifstream log(file);
        const std::string text{std::istreambuf_iterator<char>(log), {}};
        const int other = 1 - here.process();
        return without(text, "driver of CUDA 13.0") +
               without(text, "reaches the GPU of rank " + std::to_string(other) +
                                 " through memory of the host") +
               without(text, "GYRE_P2P_DISABLE or GYRE_TRANSPORT excludes p2p");
      }));
  (void)unlink(file.c_str());
}

TEST_CASE("a process that is killed is named to those it was relayed to", "[device]") {
  const Variables over = GENERATE(over_shm, over_tcp);
  const auto body = [](DeviceProcess& here) -> std::string {
    if (const std::string refused = here.init(); !refused.empty()) return refused;
    const std::vector<std::int32_t*> data{here.allocate(0, 100)};
    if (const std::string failed = then_synchronize(here, all_reduce(here, data)); !failed.empty())
      return failed;
    if (!here.meet()) return "no meeting";
    if (here.process() == 2) {
      usleep(100'000);  // the others' kernels wait for this one's
      here.moment().store(SystemClock::read());
      (void)raise(SIGKILL);
    }
    if (const std::string failed = all_reduce(here, data); !failed.empty()) return failed;
    const gyreResult_t error = here.await_error();
    const std::int64_t took_ns = SystemClock::read() - here.moment().load();
    if (error != gyreRemoteError) return "error " + std::to_string(error);
    if (took_ns > 3 * ns_per_s) return "after ns: " + std::to_string(took_ns);
    const std::string wrong = without(last_error(here), "rank 2");
    here.abort();
    return wrong + here.synchronize();
  };
  check_all(run_processes(apart(3, 1, over), body, {2}));
}

TEST_CASE("an abort frees kernels that wait for a relayed rank", "[device]") {
  const Variables over = GENERATE(over_shm, over_tcp);
  const int processes = GENERATE(1, 2);
  const auto body = [](DeviceProcess& here) -> std::string {
    if (const std::string refused = here.init(); !refused.empty()) return refused;
    std::vector<std::int32_t*> data;
    for (std::size_t place = 0; place < here.comms.size(); ++place)
      data.push_back(here.allocate(place, 100));
    if (const std::string failed = then_synchronize(here, all_reduce(here, data)); !failed.empty())
      return failed;
    if (!here.meet()) return "no meeting";
    // Rank 0 calls alone; rank 1 aborts.
    if (here.process() == 0 &&
        gyreAllReduce(data[0], data[0], 100, gyreInt32, gyreSum, here.comms[0],
                      reinterpret_cast<gyreStream_t>(here.streams[0])) != gyreSuccess)
      return last_error(here);
    if (here.process() == 0) here.moment().store(SystemClock::read());
    const std::int64_t begin_ns = SystemClock::read();
    if (here.rank(here.comms.size() - 1) == 1) {
      for (int ms = 0; ms < 10'000 && here.moment().load() == 0; ++ms) usleep(1000);
      usleep(50'000);
      (void)gyreCommAbort(std::exchange(here.comms.back(), nullptr));
      if (here.comms.size() == 1) return "";
    }
    const std::string failed = here.synchronize();
    if (SystemClock::read() - begin_ns > 3 * ns_per_s) return "it took too long";
    const gyreResult_t error = here.await_error();
    here.abort();
    return error == gyreRemoteError ? failed : "error " + std::to_string(error);
  };
  check_all(run_processes(apart(processes, 2 / processes, over), body));
}

}  // namespace device_relayed_test
