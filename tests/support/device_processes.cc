#include "tests/support/device_processes.h"

#include "lib/base/clock.h"
#include "lib/comm/process.h"
#include "tests/support/device_ranks.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace gyre::tests {
namespace {

constexpr int processes_most = 8;
constexpr int patience_ms = 20'000;

struct Board {
  std::atomic<int> has_id{0};
  gyreUniqueId id{};
  std::atomic<int> met{0};  // arrivals at meetings, of all
  std::atomic<std::int64_t> moment{0};
  char complaints[processes_most][2000] = {};
};

template <typename Condition>
bool soon(const Condition& holds) {
  for (int ms = 0; ms < patience_ms; ++ms) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return holds();
}

Board& shown(void* board) { return *static_cast<Board*>(board); }

}  // namespace

DeviceProcess::DeviceProcess(const DeviceProcesses& all, int process, void* board)
    : fake(all.fake(process)),
      driver(fake.table()),
      comms(static_cast<std::size_t>(all.ranks_each), nullptr),
      all_(all),
      process_(process),
      board_(board) {
  for (const auto& [name, value] : all_.variables) setenv(name.c_str(), value.c_str(), 1);
  comm::process().use_cuda(fake.table(), FakeCuda::images());
  for (std::size_t place = 0; place < comms.size(); ++place) {
    loaded::CuContext owner = nullptr;
    loaded::CuStream stream = nullptr;
    (void)driver->primary_retain(&owner, all_.device(rank(place)));
    (void)driver->set_current(owner);
    (void)driver->stream_create(&stream, 0);
    owners_.push_back(owner);
    streams.push_back(stream);
  }
}

DeviceProcess::~DeviceProcess() { release_contexts(); }

void DeviceProcess::release_contexts() {
  free_all();
  for (loaded::CuStream stream : std::exchange(streams, {})) (void)driver->stream_destroy(stream);
  const std::size_t count = std::exchange(owners_, {}).size();
  for (std::size_t place = 0; place < count; ++place)
    (void)driver->primary_release(all_.device(rank(place)));
  (void)driver->set_current(nullptr);
}

std::string DeviceProcess::init() {
  gyreUniqueId id;
  if (process_ == 0) {
    if (gyreGetUniqueId(&id) != gyreSuccess) return "id: " + last_error();
    shown(board_).id = id;
    shown(board_).has_id.store(1, std::memory_order_release);
  } else if (!soon([&] { return shown(board_).has_id.load(std::memory_order_acquire) != 0; })) {
    return "there is no id";
  }
  id = shown(board_).id;
  (void)gyreGroupStart();
  gyreResult_t begun = gyreSuccess;
  for (std::size_t place = 0; place < comms.size() && begun == gyreSuccess; ++place) {
    gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
    config.device = all_.device(rank(place));
    config.maxCTAs = 2;
    config.timeoutMs = all_.timeout_ms;
    begun = gyreCommInitRankConfig(&comms[place], ranks(), id, rank(place), &config);
  }
  const std::string refused = begun == gyreSuccess ? "" : last_error();
  const bool ended = gyreGroupEnd() == gyreSuccess;
  if (!refused.empty()) return "init: " + refused;
  return ended ? "" : "init: " + last_error();
}

std::string DeviceProcess::call(
    const std::function<gyreResult_t(std::size_t, gyreComm_t, gyreStream_t)>& one) {
  (void)gyreGroupStart();
  for (std::size_t place = 0; place < comms.size(); ++place)
    (void)one(place, comms[place], reinterpret_cast<gyreStream_t>(streams[place]));
  return gyreGroupEnd() == gyreSuccess ? "" : last_error();
}

std::string DeviceProcess::synchronize() {
  for (loaded::CuStream stream : streams)
    if (driver->stream_synchronize(stream) != loaded::cu::success) return fake.failure();
  return "";
}

std::int32_t* DeviceProcess::allocate(std::size_t place, std::size_t count) {
  loaded::CuDevicePointer memory = 0;
  (void)driver->set_current(owners_[place]);
  if (driver->allocate(&memory, count * sizeof(std::int32_t)) != loaded::cu::success) std::abort();
  memory_.push_back(memory);
  return reinterpret_cast<std::int32_t*>(memory);
}

void DeviceProcess::free_all() {
  for (loaded::CuDevicePointer memory : std::exchange(memory_, {})) (void)driver->free(memory);
}

std::string DeviceProcess::check_collectives(std::size_t count) {
  const int n = ranks();
  for (const Collective& one : collectives()) {
    const auto elements = [&](int blocks) {
      return count * static_cast<std::size_t>(blocks < 0 ? n : blocks);
    };
    std::vector<std::int32_t*> in, out;
    for (std::size_t place = 0; place < comms.size(); ++place) {
      in.push_back(allocate(place, elements(one.brings)));
      out.push_back(allocate(place, elements(one.gets)));
      for (std::size_t i = 0; i < elements(one.brings); ++i) in.back()[i] = brought(rank(place), i);
    }
    const std::string name = std::string(one.name) + " of " + std::to_string(count) + ": ";
    const std::string refused = call([&](std::size_t place, gyreComm_t comm, gyreStream_t stream) {
      return one.call(in[place], out[place], count, comm, stream);
    });
    if (!refused.empty()) return name + refused;
    if (const std::string failed = synchronize(); !failed.empty()) return name + failed;
    for (std::size_t place = 0; place < comms.size(); ++place)
      for (std::size_t i = 0; i < elements(one.gets) && !(one.root_only && rank(place) > 0); ++i)
        if (out[place][i] != one.wanted(n, rank(place), i, count))
          return name + "element " + std::to_string(i) + " of rank " + std::to_string(rank(place)) +
                 " is wrong";
    free_all();
  }
  return "";
}

void DeviceProcess::destroy() {
  for (gyreComm_t& comm : comms)
    if (comm != nullptr) (void)gyreCommDestroy(std::exchange(comm, nullptr));
}

void DeviceProcess::abort() {
  for (gyreComm_t& comm : comms)
    if (comm != nullptr) (void)gyreCommAbort(std::exchange(comm, nullptr));
}

gyreResult_t DeviceProcess::await_error() {
  gyreResult_t found = gyreSuccess;
  (void)soon([&] {
    (void)gyreCommGetAsyncError(comms[0], &found);
    return found != gyreSuccess;
  });
  return found;
}

bool DeviceProcess::meet() {
  shown(board_).met.fetch_add(1);
  const int wanted = ++meetings_ * all_.processes;
  return soon([&] { return shown(board_).met.load() >= wanted; });
}

std::atomic<std::int64_t>& DeviceProcess::moment() { return shown(board_).moment; }

namespace {

// In the child. Everything is given back before it ends; the fake tells what was not.
std::string carry_out(const DeviceProcesses& all, int process, void* board,
                      const std::function<std::string(DeviceProcess&)>& body, bool others_die) {
  DeviceProcess here(all, process, board);
  std::string complaint = body(here);
  here.destroy();
  if (!others_die && !here.meet()) complaint += " (others did not end)";
  comm::process().use_cuda(nullptr, {});
  if (!here.fake.failure().empty()) complaint += " the fake: " + here.fake.failure();
  here.release_contexts();
  if (const std::string leaks = here.fake.leaks(); !leaks.empty()) complaint += " leaks: " + leaks;
  return complaint;
}

}  // namespace

std::vector<std::string> run_processes(const DeviceProcesses& all,
                                       const std::function<std::string(DeviceProcess&)>& body,
                                       const std::vector<int>& dying) {
  void* const memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return {"no board"};
  Board& board = *new (memory) Board;
  std::vector<pid_t> children;
  for (int process = 0; process < all.processes; ++process) {
    const pid_t child = fork();
    if (child == 0) {
      const std::string complaint = carry_out(all, process, memory, body, !dying.empty());
      std::strncpy(board.complaints[process], complaint.c_str(), sizeof board.complaints[0] - 1);
      _exit(complaint.empty() ? 0 : 1);
    }
    children.push_back(child);
  }
  std::vector<std::string> complaints;
  for (int process = 0; process < all.processes; ++process) {
    const pid_t child = children[static_cast<std::size_t>(process)];
    int status = 0;
    const bool over = soon([&] { return waitpid(child, &status, WNOHANG) == child; });
    if (!over) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
    }
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && over;
    std::string complaint = board.complaints[process];
    if (!over) complaint += " it hung";
    if (std::ranges::count(dying, process) > 0)
      complaint = killed ? "" : "it did not die";
    else if (over && !WIFEXITED(status))
      complaint += " it died";
    complaints.push_back(complaint);
  }
  munmap(memory, sizeof(Board));
  return complaints;
}

}  // namespace gyre::tests
