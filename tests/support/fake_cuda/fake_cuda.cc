#include "tests/support/fake_cuda/fake_cuda.h"

#include "tests/support/fake_cuda/fake_cuda_state.h"

#include <fmt/format.h>

#include <cstdlib>

namespace gyre::tests {

using namespace loaded;

namespace {

constexpr std::string_view rows[] = {
#define GYRE_FAKE_ROWS(element) element "_Sum", element "_Product", element "_Extreme",
    GYRE_FAKE_ROWS("Bits8") GYRE_FAKE_ROWS("Bits32") GYRE_FAKE_ROWS("Bits64")
        GYRE_FAKE_ROWS("Float16") GYRE_FAKE_ROWS("BFloat16") GYRE_FAKE_ROWS("Float32")
            GYRE_FAKE_ROWS("Float64") GYRE_FAKE_ROWS("Float8E4M3") GYRE_FAKE_ROWS("Float8E5M2")
#undef GYRE_FAKE_ROWS
                "Bits64_Bitwise"};

// The host's kernel of that name.
cuda::Kernel kernel_named(std::string_view name) {
  for (int type = 0; type < element_type_count; ++type)
    for (int op = 0; op < reduce_op_count; ++op)
      for (int protocol = 0; protocol < cuda::device_protocol_count; ++protocol) {
        const auto as_type = static_cast<ElementType>(type);
        const auto as_op = static_cast<ReduceOp>(op);
        const auto as_protocol = static_cast<cuda::DeviceProtocol>(protocol);
        if (cuda::kernel_name(as_protocol, cuda::kernel_row(as_type, as_op)) == name)
          return cuda::find_kernel(as_protocol, as_type, as_op);
      }
  return nullptr;
}

CuResult needs_current() {
  return FakeCuda::State::current() != nullptr ? cu::success : cu::invalid_context;
}

// --- what fills the table ------------------------------------------------------------------------

CuResult init(unsigned) { return fake->options.devices > 0 ? cu::success : cu::no_device; }
CuResult driver_version(int* version) { return *version = fake->options.driver, cu::success; }
CuResult error_name(CuResult error, const char** text) {
  switch (error) {
    case cu::out_of_memory:
      return *text = "CUDA_ERROR_OUT_OF_MEMORY", cu::success;
    case cu::invalid_value:
      return *text = "CUDA_ERROR_INVALID_VALUE", cu::success;
    case cu::invalid_device:
      return *text = "CUDA_ERROR_INVALID_DEVICE", cu::success;
    default:
      return *text = "CUDA_ERROR_OF_THE_FAKE", cu::success;
  }
}
CuResult error_string(CuResult, const char** text) {
  return *text = "as the fake says", cu::success;
}

CuResult device_count(int* count) { return *count = fake->options.devices, cu::success; }
CuResult device_get(CuDevice* device, int ordinal) {
  if (ordinal < 0 || ordinal >= fake->options.devices) return cu::invalid_device;
  return *device = ordinal, cu::success;
}
CuResult device_name(char* name, int bytes, CuDevice device) {
  const auto end =
      fmt::format_to_n(name, static_cast<std::size_t>(bytes - 1), "Fake {}{}",
                       fake->on_machine(device), fake->options.mig ? " MIG 1g.10gb" : "");
  *end.out = '\0';
  return cu::success;
}
CuResult device_attribute(int* value, int which, CuDevice) {
  *value = which == cu::multiprocessor_count       ? fake->options.multiprocessors
           : which == cu::max_threads_per_block    ? fake->options.max_threads
           : which == cu::mps_enabled              ? fake->options.mps
           : which == cu::nics_reach_memory        ? fake->options.nics_reach
           : which == cu::exports_dmabuf           ? fake->options.dmabuf
           : which == cu::nic_writes_ordering      ? fake->options.nic_writes_ordering
           : which == cu::sync_domain_count        ? (fake->options.capability >= 90 ? 4 : 1)
           : which == cu::compute_capability_major ? fake->options.capability / 10
           : which == cu::compute_capability_minor ? fake->options.capability % 10
           : which == cu::virtual_memory || which == cu::file_descriptor_handles
               ? fake->options.virtual_memory
               : 9;
  return cu::success;
}
CuResult device_uuid(CuUuid* uuid, CuDevice device) {
  *uuid = {{0xfa, 0xce, static_cast<unsigned char>(fake->on_machine(device))}};
  return cu::success;
}
CuResult device_pci_bus_id(char* id, int bytes, CuDevice device) {
  const auto end = fmt::format_to_n(id, static_cast<std::size_t>(bytes - 1), "0000:{:02X}:00.0",
                                    (fake->options.mig ? 0 : fake->on_machine(device)) + 16);
  *end.out = '\0';
  return cu::success;
}
CuResult device_can_access_peer(int* can, CuDevice, CuDevice) {
  return *can = fake->options.peer_access ? 1 : 0, cu::success;
}
CuResult primary_retain(CuContext* made, CuDevice device) {
  const std::lock_guard lock(fake->mutex);
  *made = &fake->contexts[static_cast<std::size_t>(device)];
  ++(*made)->retained;
  return cu::success;
}
CuResult primary_release(CuDevice device) {
  const std::lock_guard lock(fake->mutex);
  --fake->contexts[static_cast<std::size_t>(device)].retained;
  return cu::success;
}
CuResult current(CuContext* now) { return *now = FakeCuda::State::current(), cu::success; }
CuResult set_current(CuContext now) { return FakeCuda::State::current() = now, cu::success; }
CuResult current_device(CuDevice* device) {
  if (FakeCuda::State::current() == nullptr) return cu::invalid_context;
  return *device = FakeCuda::State::current()->device, cu::success;
}
CuResult enable_peer_access(CuContext peer, unsigned) {
  if (!fake->options.peer_access) return cu::peer_access_unsupported;
  const std::lock_guard lock(fake->mutex);
  const bool fresh = FakeCuda::State::current()->peers.insert(peer->device).second;
  return fresh ? cu::success : cu::peer_access_already_enabled;
}

CuResult allocate(CuDevicePointer* memory, std::size_t bytes) {
  if (needs_current() != cu::success) return needs_current();
  void* place = nullptr;
  const CuResult result = fake->allocate(&place, bytes, FakeCuda::State::current()->device, false);
  *memory = reinterpret_cast<CuDevicePointer>(place);
  return result;
}
CuResult free_memory(CuDevicePointer memory) {
  return fake->release(reinterpret_cast<void*>(memory), false);
}
CuResult allocate_host(void** memory, std::size_t bytes, unsigned) {
  if (needs_current() != cu::success) return needs_current();
  return fake->allocate(memory, bytes, FakeCuda::State::current()->device, true);
}
CuResult free_host(void* memory) { return fake->release(memory, true); }
CuResult host_device_pointer(CuDevicePointer* seen, void* memory, unsigned) {
  return *seen = reinterpret_cast<CuDevicePointer>(memory), cu::success;
}
CuResult copy_to_device(CuDevicePointer to, const void* from, std::size_t bytes, CuStream stream) {
  CuStreamBody::Item item;
  item.act = [=] { return std::memcpy(reinterpret_cast<void*>(to), from, bytes), true; };
  item.copies = true;
  fake->queue(stream, std::move(item));
  return cu::success;
}
CuResult copy_to_host(void* to, CuDevicePointer from, std::size_t bytes, CuStream stream) {
  return copy_to_device(reinterpret_cast<CuDevicePointer>(to), reinterpret_cast<void*>(from), bytes,
                        stream);
}
CuResult copy_on_device(CuDevicePointer to, CuDevicePointer from, std::size_t bytes,
                        CuStream stream) {
  return copy_to_device(to, reinterpret_cast<void*>(from), bytes, stream);
}
CuResult memory_info(std::size_t* free, std::size_t* total) {
  if (needs_current() != cu::success) return needs_current();
  const std::lock_guard lock(fake->mutex);
  *total = fake->options.memory_bytes;
  *free = *total - fake->memory_used;
  return cu::success;
}
CuResult pointer_attributes(unsigned count, int* which, void** values, CuDevicePointer pointer) {
  const std::lock_guard lock(fake->mutex);
  const auto* const found = fake->find(pointer);
  for (unsigned i = 0; i < count; ++i) {
    const auto put = [&](auto value) { std::memcpy(values[i], &value, sizeof value); };
    const bool known = found != nullptr;
    if (which[i] == cu::pointer_memory_type)
      put(!known ? 0U : found->second.on_host ? cu::memory_host : cu::memory_device);
    else if (which[i] == cu::pointer_is_managed)
      put(static_cast<int>(known && found->second.is_managed));
    else if (which[i] == cu::pointer_device_ordinal)
      put(known ? found->second.device : -2);
    else if (which[i] == cu::pointer_range_start)
      put(known ? reinterpret_cast<CuDevicePointer>(found->first) : CuDevicePointer{0});
    else if (which[i] == cu::pointer_range_size)
      put(known ? found->second.bytes : std::size_t{0});
    else if (which[i] == cu::pointer_buffer_id)
      put(known ? found->second.id : std::uint64_t{0});
    else if (which[i] == cu::pointer_is_legacy)
      put(known && !found->second.on_host && found->second.mapped == 0 && !found->second.of_pool);
    else if (which[i] == cu::pointer_pool)
      put(known && found->second.of_pool ? fake : nullptr);
    else
      return cu::invalid_value;
  }
  return cu::success;
}

CuResult stream_create(CuStream* stream, unsigned flags) {
  if (needs_current() != cu::success) return needs_current();
  const std::lock_guard lock(fake->mutex);
  *stream = new CuStreamBody{FakeCuda::State::current(), {}, nullptr};
  (*stream)->queue = fake->streams_made++ % fake->connections();
  (*stream)->blocking = (flags & cu::stream_non_blocking) == 0;
  fake->streams.insert(*stream);
  return cu::success;
}
CuResult stream_destroy(CuStream stream) {
  std::unique_lock lock(fake->mutex);
  fake->await_stream(lock, *stream);
  fake->streams.erase(stream);
  delete stream;
  return cu::success;
}
CuResult stream_synchronize(CuStream stream) {
  std::unique_lock lock(fake->mutex);
  CuStreamBody& all = fake->stream(stream);
  if (all.capturing != nullptr || !fake->may_disturb()) return cu::capture_unsupported;
  fake->await_stream(lock, all);
  return fake->failure.empty() ? cu::success : cu::launch_out_of_resources;
}
CuResult stream_owner(CuStream stream, CuContext* owner) {
  const std::lock_guard lock(fake->mutex);
  return *owner = fake->stream(stream).owner, cu::success;
}
CuResult stream_flags(CuStream stream, unsigned* flags) {
  const std::lock_guard lock(fake->mutex);
  // As a driver of CUDA 13.0 did, also for a thread in relaxed mode.
  if (CuGraphBody* const into = fake->stream(stream).capturing; into != nullptr)
    return into->spoiled = true, cu::capture_unsupported;
  return *flags = fake->stream(stream).blocking ? 0 : cu::stream_non_blocking, cu::success;
}
CuResult stream_wait_event(CuStream stream, CuEvent event, unsigned) {
  if (event->captured != nullptr) {
    const std::lock_guard lock(fake->mutex);
    CuStreamBody& joins = fake->stream(stream);
    if (joins.capturing != nullptr && joins.capturing != event->captured) return cu::invalid_value;
    return joins.capturing = event->captured, cu::success;
  }
  const std::uint64_t wanted = event->recorded;
  fake->queue(stream, {[=] { return event->reached >= wanted; }, {}, false});
  return cu::success;
}
CuResult event_create(CuEvent* event, unsigned) {
  const std::lock_guard lock(fake->mutex);
  *event = new CuEventBody;
  fake->events.insert(*event);
  return cu::success;
}
// What still waits for it may go on doing so.
CuResult event_destroy(CuEvent event) {
  const std::lock_guard lock(fake->mutex);
  if (fake->events.erase(event) == 0) return cu::invalid_handle;
  fake->old_events.emplace_back(event);
  return cu::success;
}
CuResult event_record(CuEvent event, CuStream stream) {
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(fake->mutex);
    event->captured = fake->stream(stream).capturing;
    if (event->captured != nullptr) return cu::success;  // items have one order there
    number = ++event->recorded;
  }
  fake->queue(stream,
              {[=] { return event->reached = std::max(event->reached, number), true; }, {}, false});
  return cu::success;
}
CuResult event_query(CuEvent event) {
  std::unique_lock lock(fake->mutex);
  fake->enter(lock);
  if (event->captured != nullptr || !fake->may_disturb()) return cu::capture_unsupported;
  return event->reached == event->recorded ? cu::success : cu::not_ready;
}

CuResult module_load(CuModule* module, const void* image) {
  if (needs_current() != cu::success) return needs_current();
  if (fake->options.driver / 1000 < fake->options.images / 1000) return cu::invalid_image;
  const std::lock_guard lock(fake->mutex);
  *module = new CuModuleBody{static_cast<const char*>(image), {}};
  fake->modules.insert(*module);
  return cu::success;
}
CuResult module_unload(CuModule module) {
  const std::lock_guard lock(fake->mutex);
  fake->modules.erase(module);
  delete module;
  return cu::success;
}
CuResult module_function(CuFunction* function, CuModule module, const char* name) {
  const cuda::Kernel kernel = kernel_named(name);
  if (kernel == nullptr || std::string(name).find(module->row) == std::string::npos)
    return cu::not_found;
  return *function = &module->functions.emplace_back(CuFunctionBody{name, kernel}), cu::success;
}
CuResult function_attribute(int* value, int which, CuFunction) {
  *value = which == cu::function_max_threads ? fake->options.max_threads : 168;
  return cu::success;
}
CuResult blocks_per_multiprocessor(int* blocks, CuFunction, int, std::size_t) {
  return *blocks = 1, cu::success;
}
// A poll in vain takes a GPU a microsecond, and the host's machine up to milliseconds: an abort
// would not be seen for seconds. An earlier launch of the same tasks may be reading them: what is
// right is not written again.
void look_often(cuda::DeviceLaunch& launch, unsigned blocks) {
  constexpr std::uint32_t polls = 16;
  launch.polls_between_looks = polls;
  if (launch.tasks == nullptr) return;
  for (unsigned block = 0; block < blocks; ++block)
    for (const cuda::DeviceTask* one = &launch.tasks[block]; one != nullptr; one = one->then)
      if (one->call.polls_between_looks != polls)
        const_cast<cuda::DeviceTask*>(one)->call.polls_between_looks = polls;
}

CuResult launch(CuFunction function, unsigned grid_x, unsigned, unsigned, unsigned block_x,
                unsigned, unsigned, unsigned, CuStream stream, void** parameters, void**) {
  if (needs_current() != cu::success) return needs_current();
  if (static_cast<int>(grid_x) > fake->options.multiprocessors) return cu::launch_out_of_resources;
  auto launch = *static_cast<const cuda::DeviceLaunch*>(parameters[0]);
  look_often(launch, grid_x);
  CuStreamBody::Item item;
  item.grid = {static_cast<int>(launch.rank), grid_x, block_x,
               [launch, kernel = function->kernel] { kernel(launch); }};
  fake->queue(stream, std::move(item));
  std::unique_lock lock(fake->mutex);
  ++fake->launches;
  fake->await_launched(lock, stream);
  return cu::success;
}

// Attributes by the driver's numbers, as it has them from 12.0 on.
CuResult launch_with(const CuLaunchConfig* config, CuFunction function, void** parameters,
                     void** extra) {
  bool is_apart = false, is_first = false;
  for (unsigned i = 0; i < config->count; ++i) {
    const CuLaunchAttribute& one = config->attributes[i];
    if (one.id != 8 && one.id != 10) return cu::invalid_value;
    is_first |= one.id == 8 && one.value == -5;
    is_apart |= one.id == 10 && one.value == 1;
  }
  const CuResult result = launch(function, config->grid_x, 1, 1, config->block_x, 1, 1,
                                 config->shared_bytes, config->stream, parameters, extra);
  const std::lock_guard lock(fake->mutex);
  fake->launches_apart += result == cu::success && is_first && is_apart;
  return result;
}
CuResult priority_range(int* least, int* greatest) {
  if (needs_current() != cu::success) return needs_current();
  return *least = 0, *greatest = -5, cu::success;
}

CuResult launch_host(CuStream stream, void (*function)(void*), void* body) {
  CuStreamBody::Item item;
  item.host = [function, body] { function(body); };
  fake->queue(stream, std::move(item));
  return cu::success;
}

}  // namespace

FakeCuda::FakeCuda(const FakeCudaOptions& options) : state_(std::make_unique<State>(options)) {
  fake = state_.get();
}

FakeCuda::~FakeCuda() {
  state_.reset();
  fake = nullptr;
}

namespace {

CudaDriver filled_table(int driver) {
  // clang-format off
  return CudaDriver{
      driver_version, init, error_name, error_string, device_count, device_get, device_name,
      device_attribute, device_uuid, device_pci_bus_id, device_can_access_peer, primary_retain,
      primary_release, current, set_current, current_device, enable_peer_access, allocate,
      free_memory, allocate_host, free_host, host_device_pointer, fake_ipc_export,
      fake_ipc_import, fake_ipc_close, fake_memory_granularity, fake_memory_create,
      fake_memory_release, fake_memory_export, fake_memory_import, fake_addresses_reserve,
      fake_addresses_free, fake_memory_map, fake_memory_unmap, fake_memory_set_access,
      copy_to_device, copy_to_host, pointer_attributes, stream_create, stream_destroy,
      stream_synchronize, stream_owner, stream_flags, stream_wait_event,
      fake_exchange_capture_mode, event_create, event_destroy, event_record, event_query,
      module_load, module_unload, module_function, function_attribute, blocks_per_multiprocessor,
      launch, launch_host, memory_info, copy_on_device, fake_stream_begin_capture,
      fake_stream_end_capture, fake_graph_instantiate, fake_graph_launch, fake_graph_destroy,
      fake_graph_run_destroy, fake_stream_capture_info, fake_user_object_create,
      fake_user_object_release, fake_graph_retain,
      driver >= 12000 ? launch_with : nullptr, priority_range, fake_range_handle};
  // clang-format on
}

// A call of the driver's that is known to be Gyre's.
template <auto call>
struct OfLibrary;
template <typename... Parameters, CuResult (*call)(Parameters...)>
struct OfLibrary<call> {
  static CuResult act(Parameters... parameters) {
    fake_in_library() = true;
    const CuResult result = call(parameters...);
    fake_in_library() = false;
    return result;
  }
};

}  // namespace

std::unique_ptr<const CudaDriver> FakeCuda::table() const {
  return std::make_unique<CudaDriver>(filled_table(state_->options.driver));
}

std::unique_ptr<const CudaDriver> FakeCuda::library_table() const {
  CudaDriver of_library = filled_table(state_->options.driver);
  of_library.allocate = OfLibrary<allocate>::act;
  of_library.free = OfLibrary<free_memory>::act;
  of_library.allocate_host = OfLibrary<allocate_host>::act;
  of_library.free_host = OfLibrary<free_host>::act;
  of_library.ipc_import = OfLibrary<fake_ipc_import>::act;
  of_library.ipc_close = OfLibrary<fake_ipc_close>::act;
  of_library.memory_create = OfLibrary<fake_memory_create>::act;
  of_library.memory_release = OfLibrary<fake_memory_release>::act;
  of_library.memory_map = OfLibrary<fake_memory_map>::act;
  of_library.memory_unmap = OfLibrary<fake_memory_unmap>::act;
  of_library.memory_set_access = OfLibrary<fake_memory_set_access>::act;
  return std::make_unique<CudaDriver>(of_library);
}

std::span<const cuda::KernelImage> FakeCuda::images() {
  static const std::vector<cuda::KernelImage> all = [] {
    std::vector<cuda::KernelImage> made;
    for (std::string_view row : rows) made.push_back({row, row.data()});
    return made;
  }();
  return all;
}

void FakeCuda::fail_allocation(int number) {
  const std::lock_guard lock(state_->mutex);
  state_->failing = number;
}

void FakeCuda::fail_dmabuf(int number) {
  const std::lock_guard lock(state_->mutex);
  state_->failing_dmabuf = number;
}

std::string FakeCuda::leaks() const {
  const std::lock_guard lock(state_->mutex);
  std::string text;
  const auto tell = [&](std::size_t count, std::string_view what) {
    if (count > 0) text += fmt::format("{} {}; ", count, what);
  };
  std::size_t imports = 0, mappings = 0;
  for (const auto& [place, one] : state_->memory) {
    imports += one.imported > 0;
    mappings += one.mapped != 0;
  }
  tell(state_->memory.size() - imports - mappings, "allocations");
  tell(imports, "imports");
  tell(mappings, "mappings");
  tell(state_->physical.size(), "physical memories");
  tell(state_->reserved.size(), "ranges of addresses");
  tell(state_->streams.size() - state_->per_thread.size(), "streams");
  tell(state_->events.size(), "events");
  tell(state_->modules.size(), "modules");
  tell(state_->graphs.size(), "graphs");
  tell(state_->graph_runs.size(), "graphs made ready");
  tell(state_->user_objects.size(), "user objects");
  for (const CuContextBody& context : state_->contexts)
    tell(static_cast<std::size_t>(context.retained), "retained contexts");
  return text;
}

bool FakeCuda::is_of_device(const void* place) const {
  const std::lock_guard lock(state_->mutex);
  const auto* const found = state_->find(reinterpret_cast<std::uintptr_t>(place));
  return found != nullptr && !found->second.on_host;
}

int FakeCuda::allocations() const {
  const std::lock_guard lock(state_->mutex);
  return state_->allocations;
}
int FakeCuda::launches() const {
  const std::lock_guard lock(state_->mutex);
  return state_->launches;
}
int FakeCuda::launches_apart() const {
  const std::lock_guard lock(state_->mutex);
  return state_->launches_apart;
}
int FakeCuda::host_calls() const {
  const std::lock_guard lock(state_->mutex);
  return state_->host_calls;
}
std::string FakeCuda::failure() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failure;
}

}  // namespace gyre::tests
