#include "tests/support/device/cuda_processes.h"

#include "tests/support/base/slowness.h"
#include "tests/support/comm/collective_case.h"
#include "tests/support/device/device_ranks.h"

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

template <typename Condition>
bool soon(int patience_s, const Condition& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(slowness * patience_s);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return holds();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

ProcessBoard::Shown* mapped(int file) {
  void* const memory =
      mmap(nullptr, sizeof(ProcessBoard::Shown), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) std::abort();
  return static_cast<ProcessBoard::Shown*>(memory);
}

}  // namespace

// Children have the file under the same number.
ProcessBoard::ProcessBoard() : file_(memfd_create("gyre-test-board", 0)) {
  if (ftruncate(file_.get(), sizeof(Shown)) != 0) std::abort();
  shown_ = new (mapped(file_.get())) Shown;
}

ProcessBoard::ProcessBoard(int inherited) : file_(inherited), shown_(mapped(inherited)) {}

ProcessBoard::~ProcessBoard() { munmap(shown_, sizeof(Shown)); }

void ProcessBoard::complain(int process, const std::string& complaint) const {
  std::strncpy(shown_->complaints[process], complaint.c_str(), sizeof shown_->complaints[0] - 1);
}

CudaProcess::CudaProcess(const DeviceProcesses& all, int process, const ProcessBoard& board,
                         std::unique_ptr<const loaded::CudaDriver> table)
    : driver(std::move(table)),
      comms(static_cast<std::size_t>(all.ranks_each), nullptr),
      all_(all),
      process_(process),
      board_(board) {
  for (const auto& [name, value] : all_.variables) setenv(name.c_str(), value.c_str(), 1);
  for (std::size_t place = 0; place < comms.size(); ++place) {
    loaded::CuContext owner = nullptr;
    loaded::CuStream stream = nullptr;
    (void)driver->primary_retain(&owner, all_.device(rank(place)));
    (void)driver->set_current(owner);
    (void)driver->stream_create(&stream, loaded::cu::stream_non_blocking);
    if (place == 0) (void)driver->stream_create(&copies_, loaded::cu::stream_non_blocking);
    owners_.push_back(owner);
    streams.push_back(stream);
  }
}

CudaProcess::~CudaProcess() { release_contexts(); }

void CudaProcess::release_contexts() {
  free_all();
  for (loaded::CuStream stream : std::exchange(streams, {})) (void)driver->stream_destroy(stream);
  if (copies_ != nullptr) (void)driver->stream_destroy(std::exchange(copies_, nullptr));
  const std::size_t count = std::exchange(owners_, {}).size();
  for (std::size_t place = 0; place < count; ++place)
    (void)driver->primary_release(all_.device(rank(place)));
  (void)driver->set_current(nullptr);
}

std::string CudaProcess::init() {
  const int number = ++inits_;
  if (process_ == 0) {
    // The others have read the one before: they joined by it.
    if (gyreGetUniqueId(&board_->id) != gyreSuccess) return "id: " + last_error();
    board_->ids.store(number, std::memory_order_release);  // pairs with the acquire below
  } else if (!soon(all_.patience_s,
                   [&] { return board_->ids.load(std::memory_order_acquire) >= number; })) {
    return "there is no id";
  }
  const gyreUniqueId id = board_->id;
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

std::string CudaProcess::call(
    const std::function<gyreResult_t(std::size_t, gyreComm_t, gyreStream_t)>& one) {
  (void)gyreGroupStart();
  for (std::size_t place = 0; place < comms.size(); ++place)
    (void)one(place, comms[place], reinterpret_cast<gyreStream_t>(streams[place]));
  return gyreGroupEnd() == gyreSuccess ? "" : last_error();
}

std::string CudaProcess::synchronize() {
  for (loaded::CuStream stream : streams)
    if (driver->stream_synchronize(stream) != loaded::cu::success)
      return "cuStreamSynchronize failed";
  return "";
}

std::string CudaProcess::finish() {
  std::string failed = synchronize();
  for (gyreComm_t comm : comms) {
    gyreResult_t error = gyreSuccess;
    if (gyreCommGetAsyncError(comm, &error) != gyreSuccess || error != gyreSuccess)
      failed += gyreGetLastError(comm);
  }
  return failed;
}

std::int32_t* CudaProcess::allocate(std::size_t place, std::size_t count) {
  loaded::CuDevicePointer memory = 0;
  (void)driver->set_current(owners_[place]);
  const std::size_t bytes = std::max<std::size_t>(count, 1) * sizeof(std::int32_t);
  if (takes_gyre_memory) {
    void*& given = gyre_memory_.emplace_back();
    if (gyreMemAllocOn(&given, bytes, all_.device(rank(place))) != gyreSuccess) std::abort();
    return static_cast<std::int32_t*>(given);
  }
  if (driver->allocate(&memory, bytes) != loaded::cu::success) std::abort();
  memory_.push_back(memory);
  return reinterpret_cast<std::int32_t*>(memory);
}

void CudaProcess::free_all() {
  for (loaded::CuDevicePointer memory : std::exchange(memory_, {})) (void)driver->free(memory);
  for (void* memory : std::exchange(gyre_memory_, {}))
    if (gyreMemFree(memory) != gyreSuccess) std::abort();
}

void CudaProcess::write(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (driver->copy_to_device(reinterpret_cast<loaded::CuDevicePointer>(to), from, bytes, copies_) !=
          loaded::cu::success ||
      driver->stream_synchronize(copies_) != loaded::cu::success)
    std::abort();
}

void CudaProcess::read(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (driver->copy_to_host(to, reinterpret_cast<loaded::CuDevicePointer>(from), bytes, copies_) !=
          loaded::cu::success ||
      driver->stream_synchronize(copies_) != loaded::cu::success)
    std::abort();
}

void CudaProcess::fill(std::int32_t* to, std::size_t count,
                       const std::function<std::int32_t(std::size_t i)>& element) {
  std::vector<std::int32_t> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = element(i);
  write(to, all.data(), count * sizeof(std::int32_t));
}

std::vector<std::int32_t> CudaProcess::values(const std::int32_t* from, std::size_t count) {
  std::vector<std::int32_t> all(count);
  read(all.data(), from, count * sizeof(std::int32_t));
  return all;
}

std::string CudaProcess::check_collectives(std::size_t count) {
  const int n = ranks();
  for (const Collective& one : collectives()) {
    const auto elements = [&](int blocks) {
      return count * static_cast<std::size_t>(blocks < 0 ? n : blocks);
    };
    std::vector<std::int32_t*> in, out;
    for (std::size_t place = 0; place < comms.size(); ++place) {
      in.push_back(allocate(place, elements(one.brings)));
      out.push_back(allocate(place, elements(one.gets)));
      fill(in.back(), elements(one.brings), [&](std::size_t i) { return brought(rank(place), i); });
    }
    const std::string name = std::string(one.name) + " of " + std::to_string(count) + ": ";
    const std::string refused = call([&](std::size_t place, gyreComm_t comm, gyreStream_t stream) {
      return one.call(in[place], out[place], count, comm, stream);
    });
    if (!refused.empty()) return name + refused;
    if (const std::string failed = finish(); !failed.empty()) return name + failed;
    for (std::size_t place = 0; place < comms.size(); ++place) {
      if (one.root_only && rank(place) > 0) continue;
      const std::vector<std::int32_t> got = values(out[place], elements(one.gets));
      for (std::size_t i = 0; i < got.size(); ++i)
        if (got[i] != one.wanted(n, rank(place), i, count))
          return name + "element " + std::to_string(i) + " of rank " + std::to_string(rank(place)) +
                 " is wrong";
    }
    free_all();
  }
  return "";
}

// All processes draw the same case, and each has the blocks of its own ranks on its device.
std::string CudaProcess::check(const CollectiveCase& one) {
  CaseBuffers buffers(one);
  std::vector<std::size_t> own;
  std::vector<std::int32_t*> placed;
  for (std::size_t place = 0; place < comms.size(); ++place)
    for (std::size_t side = 0; side < 2; ++side) {
      const std::size_t index = 2 * static_cast<std::size_t>(rank(place)) + side;
      const std::span<std::byte> block = buffers.block(index);
      if (block.empty()) continue;
      own.push_back(index);
      placed.push_back(allocate(place, block.size() / sizeof(std::int32_t) + 1));
      write(placed.back(), block.data(), block.size());
      buffers.place(index, reinterpret_cast<std::byte*>(placed.back()));
    }
  std::string wrong = call([&](std::size_t place, gyreComm_t comm, gyreStream_t stream) {
    return buffers.call(rank(place), comm, stream);
  });
  if (wrong.empty()) wrong = finish();
  for (std::size_t k = 0; k < own.size(); ++k)
    read(buffers.block(own[k]).data(), placed[k], buffers.block(own[k]).size());
  for (std::size_t place = 0; place < comms.size() && wrong.empty(); ++place)
    wrong = buffers.wrong(rank(place));
  free_all();
  return wrong.empty() ? "" : one.shown() + ": " + wrong;
}

void CudaProcess::destroy() {
  for (gyreComm_t& comm : comms)
    if (comm != nullptr) (void)gyreCommDestroy(std::exchange(comm, nullptr));
}

void CudaProcess::abort() {
  for (gyreComm_t& comm : comms)
    if (comm != nullptr) (void)gyreCommAbort(std::exchange(comm, nullptr));
}

gyreResult_t CudaProcess::await_error() {
  gyreResult_t found = gyreSuccess;
  (void)soon(all_.patience_s, [&] {
    (void)gyreCommGetAsyncError(comms[0], &found);
    return found != gyreSuccess && found != gyreInProgress;
  });
  return found;
}

bool CudaProcess::meet() {
  board_->met.fetch_add(1);
  const int wanted = ++meetings_ * all_.processes;
  return soon(all_.patience_s, [&] { return board_->met.load() >= wanted; });
}

std::atomic<std::int64_t>& CudaProcess::moment() { return board_->moment; }

std::string carry_out(CudaProcess& here, const std::function<std::string(CudaProcess&)>& body,
                      bool others_die) {
  std::string complaint = body(here);
  here.destroy();
  if (!others_die && !here.meet()) complaint += " (others did not end)";
  return complaint;
}

std::vector<std::string> collect_processes(const DeviceProcesses& all, const ProcessBoard& board,
                                           const std::vector<int>& children,
                                           const std::vector<int>& dying) {
  std::vector<std::string> complaints;
  for (int process = 0; process < all.processes; ++process) {
    const pid_t child = children[static_cast<std::size_t>(process)];
    int status = 0;
    const bool over =
        soon(all.patience_s, [&] { return waitpid(child, &status, WNOHANG) == child; });
    if (!over) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
    }
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && over;
    std::string complaint = board->complaints[process];
    if (!over) complaint += " it hung";
    if (std::ranges::count(dying, process) > 0)
      complaint = killed ? "" : "it did not die";
    else if (over && !WIFEXITED(status))
      complaint += " it died";
    else if (over && WEXITSTATUS(status) != 0 && complaint.empty())
      complaint = "it ended with code " + std::to_string(WEXITSTATUS(status));
    complaints.push_back(complaint);
  }
  return complaints;
}

}  // namespace gyre::tests
