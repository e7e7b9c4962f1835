#include "tests/support/fake_cuda/fake_cuda_state.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gyre::tests {

using namespace loaded;

FakeCuda::State* fake = nullptr;

FakeCuda::State::State(const FakeCudaOptions& wanted) : options(wanted) {
  for (int device = 0; device < options.devices; ++device) contexts.push_back({device, 0, {}});
  for (CuContextBody& context : contexts) default_streams[&context].owner = &context;
  thread = std::thread([this] { serve(); });
}

FakeCuda::State::~State() {
  {
    const std::lock_guard lock(mutex);
    stop = true;
  }
  changed.notify_all();
  thread.join();
  for (auto& [address, allocation] : memory) munmap(address, allocation.bytes);
  for (auto& [address, bytes] : reserved) munmap(address, bytes);
  for (auto& [address, bytes] : remains) munmap(address, bytes);
}

CuStreamBody& FakeCuda::State::stream(CuStream handle) {
  if (handle == nullptr || handle == cu::default_stream) return default_streams[current()];
  return handle == cu::thread_stream ? stream_of_thread() : *handle;
}

CuContext& FakeCuda::State::current() {
  static thread_local CuContext now = nullptr;
  return now;
}

int& FakeCuda::State::capture_mode() {
  static thread_local int mode = cu::capture_global;
  return mode;
}

bool FakeCuda::State::may_disturb() {
  if (fake_has_called_out())
    failure = "a call of the driver in a host function, or while a user object is destroyed";
  if (capture_mode() == cu::capture_relaxed) return true;
  bool any = false;
  for (CuGraphBody* graph : graphs) {
    any |= graph->capturing;
    graph->spoiled |= graph->capturing;
  }
  return !any;
}

void FakeCuda::State::queue(CuStream handle, CuStreamBody::Item item) {
  std::unique_lock lock(mutex);
  if (fake_has_called_out()) failure = "something is put on a stream by a host function";
  enter(lock);
  CuStreamBody& to = stream(handle);
  if (to.capturing != nullptr) return to.capturing->items.push_back(std::move(item));
  if (item.is_kernel()) await_room(lock, to);
  item.number = ++items_queued;
  to.items.push_back(std::move(item));
  changed.notify_all();
}

CuResult FakeCuda::State::begin_taking() {
  ++allocations;
  if (!may_disturb()) return cu::capture_unsupported;
  return failing > 0 && --failing == 0 ? cu::out_of_memory : cu::success;
}

CuResult FakeCuda::State::allocate(void** place, std::size_t bytes, int device, bool on_host) {
  std::unique_lock lock(mutex);
  if (bytes == 0) return cu::invalid_value;
  if (const CuResult refused = begin_taking(); refused != cu::success) return refused;
  wait_for_kernels(lock, device, on_host ? "cuMemHostAlloc" : "cuMemAlloc");
  if (memory_used + bytes > options.memory_bytes) return cu::out_of_memory;
  // Whole pages, as the driver gives; what is not zeroed by anybody is no zero.
  const std::size_t pages = (bytes + 4095) / 4096 * 4096;
  FileDescriptor file(memfd_create("fake-cuda", MFD_CLOEXEC));
  if (!file.has_value() || ftruncate(file.get(), static_cast<off_t>(pages)) != 0)
    return cu::out_of_memory;
  // Where something as large lay before, if anything did.
  const auto left =
      std::ranges::find_if(remains, [&](const auto& one) { return one.second == pages; });
  void* const at = left != remains.end() ? left->first : nullptr;
  if (left != remains.end()) remains.erase(left);
  void* const made = mmap(at, pages, PROT_READ | PROT_WRITE,
                          MAP_SHARED | (at != nullptr ? MAP_FIXED : 0), file.get(), 0);
  struct stat status {};
  if (made == MAP_FAILED || fstat(file.get(), &status) != 0) return cu::out_of_memory;
  *place = made;
  std::memset(made, 0xa5, bytes);
  memory[*place] = {bytes, device, on_host, std::move(file), status.st_ino};
  memory_used += bytes;
  return cu::success;
}

CuResult FakeCuda::State::release(void* place, bool on_host) {
  std::unique_lock lock(mutex);
  if (!may_disturb()) return cu::capture_unsupported;
  auto found = memory.find(place);
  if (found == memory.end()) return cu::invalid_value;
  wait_for_kernels(lock, found->second.device, on_host ? "cuMemFreeHost" : "cuMemFree");
  found = memory.find(place);
  if (found == memory.end() || found->second.on_host != on_host || found->second.imported > 0 ||
      found->second.mapped != 0)
    return cu::invalid_value;
  if (found->second.exported && is_held_elsewhere(found->second))
    failure = "memory was freed while another process had it open";
  memory_used -= found->second.bytes;
  if (options.harsh && !on_host)
    give_up_addresses(place, found->second.bytes);
  else
    munmap(place, found->second.bytes);
  memory.erase(found);
  return cu::success;
}

// The driver keeps them, as an allocator's reserve: there is something, and nobody may touch it.
void FakeCuda::State::give_up_addresses(void* place, std::size_t bytes) {
  if (mmap(place, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
           0) != MAP_FAILED)
    remains[place] = (bytes + 4095) / 4096 * 4096;
}

const std::pair<void* const, FakeCuda::State::Allocation>* FakeCuda::State::find(
    std::uint64_t address) const {
  auto found = memory.upper_bound(reinterpret_cast<void*>(address));
  if (found == memory.begin()) return nullptr;
  --found;
  const auto begin = reinterpret_cast<std::uint64_t>(found->first);
  return address - begin < found->second.bytes ? &*found : nullptr;
}

// What stands at the head of a stream and needs no kernel is done here; kernels come back as grids,
// as far as their device has room.
std::vector<Grid> FakeCuda::State::take_grids(bool idle) {
  std::unique_lock lock(mutex);
  if (idle) changed.wait_for(lock, std::chrono::microseconds(300));
  std::vector<Grid> grids;
  const auto serve_one = [&](CuStreamBody& stream) {
    while (!stream.items.empty()) {
      CuStreamBody::Item& item = stream.items.front();
      if (item.running || !may_begin(stream)) return;
      if (item.host) {
        lock.unlock();
        fake_call_out(item.host);
        lock.lock();
        ++host_calls;
      } else if (item.act && !item.act()) {
        return;
      } else if (!item.act) {
        const int device = stream.owner->device;
        const int blocks = static_cast<int>(item.grid.blocks);
        if (blocks_running[device] + blocks > options.multiprocessors) return;
        item.running = true;
        blocks_running[device] += blocks;
        Grid grid = item.grid;
        grid.device = device;
        grid.on_end = [this, &stream, device, blocks] {
          const std::lock_guard ended(mutex);
          blocks_running[device] -= blocks;
          stream.items.pop_front();
          ++items_done;
          changed.notify_all();
        };
        return grids.push_back(std::move(grid));
      }
      stream.items.pop_front();
      ++items_done;
      changed.notify_all();
    }
  };
  for (auto& [owner, stream] : default_streams) serve_one(stream);
  for (CuStreamBody* stream : streams) serve_one(*stream);
  return grids;
}

void FakeCuda::State::serve() {
  while (true) {
    std::vector<Grid> first = take_grids(true);
    if (!first.empty()) {
      MachineOptions how;
      how.seed = options.seed;
      how.delayed_stores = how.stale_loads = options.delayed_stores;
      how.watches_races = false;
      how.real_clock = true;
      if (options.harsh && options.devices > 1)
        how.reaches = [this](const Grid& grid, const void* place) {
          check_reach(grid.device, place);
        };
      how.arrivals = [this](bool idle) { return take_grids(idle); };
      const std::string why = run_grids(first, how);
      const std::lock_guard lock(mutex);
      if (!why.empty()) failure = why;
    }
    const std::lock_guard lock(mutex);
    if (stop) return;
  }
}

}  // namespace gyre::tests
