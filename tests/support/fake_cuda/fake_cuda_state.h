// The state behind tests/support/fake_cuda/fake_cuda.h: its objects, and the thread that carries
// out streams.
#pragma once

#include "lib/base/owned.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/host_device/host_device.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace gyre::loaded {

struct CuContextBody {
  int device = 0;
  int retained = 0;
  std::set<int> peers;  // devices whose memory it may use
};
struct CuEventBody {
  std::uint64_t recorded = 0, reached = 0;  // counts of records
  CuGraphBody* captured = nullptr;          // by the last record
};
struct CuFunctionBody {
  std::string name;
  cuda::Kernel kernel = nullptr;
};
struct CuModuleBody {
  std::string row;
  std::list<CuFunctionBody> functions;
};
struct CuStreamBody {
  struct Item {
    std::function<bool()> act;  // true: it is done. Empty for a kernel
    tests::Grid grid;
    bool running = false;
    std::function<void()> host = nullptr;  // instead of both
    bool copies = false;                   // by an engine of its own
    std::uint64_t number = 0;              // in the order they came to the driver
    bool is_kernel() const { return !act && !host; }
  };
  CuContextBody* owner = nullptr;
  std::deque<Item> items;
  CuGraphBody* capturing = nullptr;  // into which it is captured
  int queue = 0;                     // of the hardware
  bool blocking = true;              // waits for the default stream, and is waited for
};
struct CuUserObjectBody {
  void* body;
  void (*destroy)(void*);
  unsigned references;
};
// What was captured, in one order; and what is kept alive by it.
struct CuGraphBody {
  std::vector<CuStreamBody::Item> items;
  std::vector<CuUserObjectBody*> kept;
  std::uint64_t id = 0;
  bool capturing = true;
  bool spoiled = false;
};
struct CuGraphRunBody {
  std::vector<CuStreamBody::Item> items;
  std::vector<CuUserObjectBody*> kept;
};

}  // namespace gyre::loaded

namespace gyre::tests {

extern FakeCuda::State* fake;  // the one there is

struct FakeCuda::State {
  // A file of memory, so that other processes of this machine can have it as well.
  struct Allocation {
    std::size_t bytes;
    int device;
    bool on_host;
    FileDescriptor file;
    std::uint64_t inode;
    bool exported = false;
    int imported = 0;  // how often this process has opened it; 0: it is this process's own
    loaded::CuMemory mapped = 0;  // what physical memory it is a view of; 0: of none
    std::uint64_t id = ++fake->ids;
    bool of_pool = false;
    bool is_managed = false;
    std::set<int> reached_by = {};  // devices that a view was given to
  };
  // What memory_create and memory_import give (fake_cuda_memory.cc): a file of memory as well.
  struct Physical {
    FileDescriptor file;
    std::size_t bytes;
    int device;      // of the machine
    bool made_here;  // or imported
    int handles;     // its own handle, and what others hold
    int mappings;
  };

  explicit State(const FakeCudaOptions& wanted);
  ~State();

  loaded::CuStreamBody& stream(loaded::CuStream handle);  // `mutex` is held; null: the default one
  loaded::CuStreamBody& stream_of_thread();  // the default stream of the calling thread
  void queue(loaded::CuStream handle, loaded::CuStreamBody::Item item);
  loaded::CuResult allocate(void** memory, std::size_t bytes, int device, bool on_host);
  loaded::CuResult release(void* memory, bool on_host);
  // Before something is taken; `mutex` is held. Not success if the test wants it to fail.
  loaded::CuResult begin_taking();
  using Lock = std::unique_lock<std::mutex>;  // of `mutex`
  // Any kernel that was put on a stream of the device, or of any, and has not ended.
  bool has_kernels(int device) const;
  bool has_kernels() const;
  // fake_cuda_harsh.cc. Before a call that a driver may make wait for the kernels of the device and
  // of its peers: a harsh one does, and keeps everybody out meanwhile.
  void wait_for_kernels(Lock& lock, int device, std::string_view call);
  // Before a call that needs what such a call keeps.
  void enter(Lock& lock);
  // A launch finds room, or waits.
  void await_room(Lock& lock, const loaded::CuStreamBody& stream);
  // With CUDA_LAUNCH_BLOCKING=1, a launch waits for its end.
  void await_launched(Lock& lock, loaded::CuStream stream);
  // Whether nothing that came before keeps the item at the stream's head waiting.
  bool may_begin(const loaded::CuStreamBody& stream) const;
  // Whether kernels of the device reach what lies there; if not, that is the failure.
  void check_reach(int device, const void* place);
  int connections() const;
  void await_stream(Lock& lock, const loaded::CuStreamBody& stream);
  void give_up_addresses(void* place, std::size_t bytes);
  bool wait_bounded(Lock& lock, const std::function<bool()>& over);
  void fail(const std::string& why) { failure = failure.empty() ? why : failure; }
  // The number of a device on this machine, which all processes share.
  int on_machine(int device) const {
    return options.visible.empty() ? device : options.visible[static_cast<std::size_t>(device)];
  }
  const std::pair<void* const, Allocation>* find(std::uint64_t address) const;
  std::vector<Grid> take_grids(bool idle);
  void serve();
  static loaded::CuContext& current();  // the calling thread's
  static int& capture_mode();           // the same
  // Whether the calling thread may make a call that captures cannot have; it spoils them else.
  bool may_disturb();

  const FakeCudaOptions options;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::vector<loaded::CuContextBody> contexts;
  std::map<loaded::CuContextBody*, loaded::CuStreamBody> default_streams;
  std::set<loaded::CuStreamBody*> streams;
  std::map<std::pair<loaded::CuContext, std::thread::id>, std::unique_ptr<loaded::CuStreamBody>>
      per_thread;  // `streams` has them too
  std::set<loaded::CuEventBody*> events;
  std::vector<std::unique_ptr<loaded::CuEventBody>> old_events;  // destroyed
  std::set<loaded::CuModuleBody*> modules;
  std::set<loaded::CuGraphBody*> graphs;
  std::set<loaded::CuGraphRunBody*> graph_runs;
  std::set<loaded::CuUserObjectBody*> user_objects;
  std::uint64_t captures = 0, ids = 0;  // so far; an allocation's is never used again
  std::map<void*, Allocation> memory;
  std::map<loaded::CuMemory, Physical> physical;
  loaded::CuMemory physical_made = 0;  // so far
  std::map<void*, std::size_t> reserved;
  std::map<void*, std::size_t> remains;  // addresses of what was freed, which nothing lies at
  std::uint64_t memory_used = 0;
  int allocations = 0, failing = 0, launches = 0;
  int failing_dmabuf = 0;  // so many from now on, this one fails; 0: none
  int host_calls = 0, launches_apart = 0, exports_of_parts = 0;
  std::map<std::string, int> synchronising;  // calls that may wait, made while kernels were to end
  std::uint64_t items_queued = 0, items_done = 0;
  int streams_made = 0;
  bool kept_out = false;              // somebody waits in the driver, and has its lock
  std::map<int, int> blocks_running;  // by device
  std::string failure;
  bool stop = false;
  std::thread thread;
};

// The calling thread is in a call of Gyre's.
bool& fake_in_library();

// fake_cuda_graph.cc
loaded::CuResult fake_stream_begin_capture(loaded::CuStream stream, int mode);
loaded::CuResult fake_stream_end_capture(loaded::CuStream stream, loaded::CuGraph* graph);
loaded::CuResult fake_graph_instantiate(loaded::CuGraphRun* run, loaded::CuGraph graph,
                                        unsigned long long flags);
loaded::CuResult fake_graph_launch(loaded::CuGraphRun run, loaded::CuStream stream);
loaded::CuResult fake_graph_destroy(loaded::CuGraph graph);
loaded::CuResult fake_graph_run_destroy(loaded::CuGraphRun run);
loaded::CuResult fake_stream_capture_info(loaded::CuStream stream, int* status, std::uint64_t* id,
                                          loaded::CuGraph* graph,
                                          const loaded::CuGraphNode** dependencies,
                                          std::size_t* count);
loaded::CuResult fake_exchange_capture_mode(int* mode);
loaded::CuResult fake_user_object_create(loaded::CuUserObject* object, void* body,
                                         void (*destroy)(void*), unsigned references,
                                         unsigned flags);
loaded::CuResult fake_user_object_release(loaded::CuUserObject object, unsigned count);
loaded::CuResult fake_graph_retain(loaded::CuGraph graph, loaded::CuUserObject object,
                                   unsigned count, unsigned flags);
// Calls a function of the program's, where no call of the driver may be: a user object's `destroy`,
// or a host function.
void fake_call_out(const std::function<void()>& function);
bool fake_has_called_out();  // whether the calling thread is in one
// Memory between processes, as the table has it (fake_cuda_ipc.cc).
loaded::CuResult fake_ipc_export(loaded::CuIpcHandle* handle, loaded::CuDevicePointer memory);
loaded::CuResult fake_ipc_import(loaded::CuDevicePointer* memory, loaded::CuIpcHandle handle,
                                 unsigned flags);
loaded::CuResult fake_ipc_close(loaded::CuDevicePointer memory);
// Virtual memory, as the table has it (fake_cuda_memory.cc).
loaded::CuResult fake_memory_granularity(std::size_t* bytes, const loaded::CuMemoryKind* kind,
                                         int option);
loaded::CuResult fake_memory_create(loaded::CuMemory* memory, std::size_t bytes,
                                    const loaded::CuMemoryKind* kind, unsigned long long flags);
loaded::CuResult fake_memory_release(loaded::CuMemory memory);
loaded::CuResult fake_memory_export(void* handle, loaded::CuMemory memory, int handle_type,
                                    unsigned long long flags);
loaded::CuResult fake_memory_import(loaded::CuMemory* memory, void* handle, int handle_type);
loaded::CuResult fake_addresses_reserve(loaded::CuDevicePointer* begin, std::size_t bytes,
                                        std::size_t alignment, loaded::CuDevicePointer wanted,
                                        unsigned long long flags);
loaded::CuResult fake_addresses_free(loaded::CuDevicePointer begin, std::size_t bytes);
loaded::CuResult fake_memory_map(loaded::CuDevicePointer at, std::size_t bytes, std::size_t offset,
                                 loaded::CuMemory memory, unsigned long long flags);
loaded::CuResult fake_memory_unmap(loaded::CuDevicePointer at, std::size_t bytes);
loaded::CuResult fake_memory_set_access(loaded::CuDevicePointer at, std::size_t bytes,
                                        const loaded::CuMemoryAccess* access, std::size_t count);
// A dmabuf, as the table has it (fake_cuda_memory.cc): the file of the allocation, opened anew, at
// the position where the range begins.
loaded::CuResult fake_range_handle(void* handle, loaded::CuDevicePointer begin, std::size_t bytes,
                                   int handle_type, unsigned long long flags);
// Whether another process holds the memory.
bool is_held_elsewhere(const FakeCuda::State::Allocation& allocation);

}  // namespace gyre::tests
