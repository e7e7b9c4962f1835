#include "lib/cuda/cuda_device.h"

#include "lib/base/log.h"
#include "lib/base/units.h"
#include "lib/loaded/cuda_rest.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace gyre::exec {

using loaded::CurrentContext;
namespace cu = loaded::cu;

namespace {

constexpr std::uint64_t zeros_bytes = 1 << 20;
// Of sixteen multiprocessors one is left to others, and one of fewer.
constexpr int multiprocessors_for_one_spare = 16;

}  // namespace

// Code of one CUDA runs under drivers of the same major version and of later ones (CUDA
// Compatibility, "Minor Version Compatibility").
Status check_images(const loaded::CudaDriver& driver, std::span<const cuda::KernelImage> images) {
  if (images.empty())
    return invalid_usage(
        "this build of Gyre has no CUDA kernels: install its package gyre-cu13 (pip), configure it "
        "with -Dcuda=enabled, which needs nvcc, or use GYRE_DEVICE_HOST and host memory");
  const cuda::ImageOrigin* const origin = images.front().origin;
  int version = 0;
  if (origin == nullptr || driver.driver_version(&version) != cu::success) return {};
  if (version / 1000 >= origin->release / 1000) return {};
  return invalid_usage(fmt::format(
      "the driver here is of CUDA {}, and the kernels of this build were compiled by CUDA {}, so "
      "only "
      "drivers of CUDA {}.0 and later load them: update the NVIDIA driver, build Gyre with an "
      "older compiler (tools/dev setup --cuda brings one), or use GYRE_DEVICE_HOST and host memory",
      loaded::shown_as_cuda(version), loaded::shown_as_cuda(origin->release),
      origin->release / 1000));
}

namespace {

Result<int> find_capability(const loaded::CudaDriver& driver, loaded::CuDevice device) {
  int major = 0, minor = 0;
  for (const auto& [value, which] : {std::pair(&major, cu::compute_capability_major),
                                     std::pair(&minor, cu::compute_capability_minor)})
    GYRE_TRY(driver.check(driver.device_attribute(value, which, device),
                          "cuDeviceGetAttribute of the compute capability"));
  return 10 * major + minor;
}

// Code runs on later GPUs of the same major compute capability (CUDA C++ Programming Guide, "Binary
// Compatibility").
bool has_code(const cuda::ImageOrigin& origin, int capability) {
  return std::ranges::any_of(
      origin.code, [&](int code) { return code / 10 == capability / 10 && code <= capability; });
}

}  // namespace

Status check_device(const loaded::CudaDriver& driver, loaded::CuDevice device,
                    std::span<const cuda::KernelImage> images) {
  const cuda::ImageOrigin* const origin = images.front().origin;
  GYRE_ASSIGN(const int capability, find_capability(driver, device));
  if (origin == nullptr || has_code(*origin, capability)) return {};
  char name[256] = "";
  (void)driver.device_name(name, sizeof name, device);
  if (capability < origin->ptx)
    return invalid_usage(
        fmt::format("{} is of sm_{}, and this build has kernels for sm_{} and later: use "
                    "GYRE_DEVICE_HOST and host memory",
                    name, capability, origin->code.empty() ? origin->ptx : origin->code.front()));
  int version = 0;
  if (driver.driver_version(&version) != cu::success || version >= origin->ptx_release) return {};
  return invalid_usage(fmt::format(
      "{} is of sm_{}, for which this build has only PTX; the PTX is of CUDA {}, and the driver of "
      "CUDA {}: update the NVIDIA driver, or build Gyre with a compiler that knows sm_{}",
      name, capability, loaded::shown_as_cuda(origin->ptx_release), loaded::shown_as_cuda(version),
      capability));
}

Result<std::shared_ptr<const CudaDevice>> CudaDevice::open(
    const loaded::CudaDriver& driver, int ordinal, std::span<const cuda::KernelImage> images) {
  int devices = 0;
  GYRE_TRY(driver.check(driver.device_count(&devices), "cuDeviceGetCount"));
  if (ordinal < 0 || ordinal >= devices)
    return invalid_argument(
        fmt::format("device {} is not one of the {} CUDA devices that this process sees "
                    "(CUDA_VISIBLE_DEVICES chooses them)",
                    ordinal, devices));
  GYRE_TRY(check_images(driver, images));
  std::shared_ptr<CudaDevice> made(new CudaDevice(driver, ordinal));
  GYRE_TRY(made->retain());
  GYRE_TRY(check_device(driver, made->device_, images));
  const cuda::ImageOrigin* const origin = images.front().origin;
  if (origin != nullptr && !has_code(*origin, static_cast<int>(made->capability_)))
    log_warn(
        "device {} ({}) is of sm_{}, for which this build has only PTX: the driver compiles the "
        "kernels now, which takes minutes, and keeps them (CUDA_CACHE_PATH)",
        ordinal, made->name_, made->capability_);
  const CurrentContext scope(driver, made->owner_);
  GYRE_TRY(loaded::when_still(driver, [&] {
    return made->load(images).while_doing(fmt::format("loading kernels on {}", made->name_));
  }));
  GYRE_TRY(made->count_blocks());
  made->choose_attributes();
  log_info(Subsystem::init, "device {} is {} ({}), driver of {}: {}; {}", ordinal, made->name_,
           made->uuid_, cuda_version_shown(driver), made->blocks_shown(), made->launches_shown());
  return std::shared_ptr<const CudaDevice>(std::move(made));
}

Status CudaDevice::retain() {
  GYRE_TRY(driver_.check(driver_.device_get(&device_, ordinal_), "cuDeviceGet"));
  char name[256] = "";
  GYRE_TRY(driver_.check(driver_.device_name(name, sizeof name, device_), "cuDeviceGetName"));
  name_ = name;
  uuid_ = loaded::find_uuid(driver_, device_);
  if (uuid_.empty())
    return Status(Code::SystemError, fmt::format("the driver gives no UUID of {}", name_));
  char bus_id[32] = "";
  GYRE_TRY(driver_.check(driver_.device_pci_bus_id(bus_id, sizeof bus_id, device_),
                         "cuDeviceGetPCIBusId"));
  bus_id_ = bus_id;
  GYRE_ASSIGN(const int capability, find_capability(driver_, device_));
  capability_ = static_cast<std::uint32_t>(capability);
  return driver_.check(driver_.primary_retain(&owner_, device_),
                       fmt::format("cuDevicePrimaryCtxRetain of device {}", ordinal_));
}

CudaDevice::~CudaDevice() {
  if (owner_ == nullptr) return;
  free_idle();
  {
    const CurrentContext scope(driver_, owner_);
    if (copies_ != nullptr) (void)driver_.stream_destroy(copies_);
    if (zeros_ != nullptr) (void)driver_.free_host(zeros_);
    for (loaded::CuModule module : modules_) (void)driver_.module_unload(module);
  }
  (void)driver_.primary_release(device_);
}

void CudaDevice::free_idle() const {
  const CurrentContext scope(driver_, owner_);
  for (const IdlePiece& one : idle(Kind::device).take_all()) (void)driver_.free(one.memory);
  for (const IdlePiece& one : idle(Kind::pinned).take_all())
    (void)driver_.free_host(reinterpret_cast<void*>(one.memory));
}

void CudaDevice::give_idle(const std::shared_ptr<const CudaDevice>& device, Kind kind,
                           const IdlePiece& piece) {
  device->idle(kind).give(piece);
  loaded::once_still(device->driver_, [device] { device->free_idle(); });
}

Status CudaDevice::load(std::span<const cuda::KernelImage> images) {
  for (const cuda::KernelImage& image : images) GYRE_TRY(load_row(image));
  GYRE_TRY(
      driver_.check(driver_.stream_create(&copies_, cu::stream_non_blocking), "cuStreamCreate"));
  GYRE_TRY(driver_.check(driver_.allocate_host(&zeros_, zeros_bytes, cu::host_alloc_portable),
                         fmt::format("cuMemHostAlloc of {} bytes of zeros", zeros_bytes)));
  std::memset(zeros_, 0, zeros_bytes);
  return {};
}

// Every kernel is looked up at once: the driver loads lazily otherwise (CUDA_MODULE_LOADING).
Status CudaDevice::load_row(const cuda::KernelImage& image) {
  const std::string row(image.row);
  loaded::CuModule module = nullptr;
  GYRE_TRY(driver_.check(driver_.module_load(&module, image.data), "cuModuleLoadData of " + row));
  modules_.push_back(module);
  ByProtocol found{};
  for (int i = 0; i < cuda::device_protocol_count; ++i) {
    const auto protocol = static_cast<cuda::DeviceProtocol>(i);
    const std::string name = cuda::kernel_name(protocol, row);
    loaded::CuFunction& kernel = found[static_cast<std::size_t>(i)];
    GYRE_TRY(driver_.check(driver_.module_function(&kernel, module, name.c_str()),
                           "cuModuleGetFunction of " + name));
    int threads = 0;
    GYRE_TRY(driver_.check(driver_.function_attribute(&threads, cu::function_max_threads, kernel),
                           "cuFuncGetAttribute of " + name));
    const auto most = static_cast<std::uint32_t>(threads);
    threads_ = threads_ == 0 ? most : std::min(threads_, most);
  }
  for (std::size_t type = 0; type < element_type_count; ++type)
    for (std::size_t op = 0; op < reduce_op_count; ++op)
      if (cuda::kernel_row(static_cast<ElementType>(type), static_cast<ReduceOp>(op)) == row)
        kernels_[type][op] = found;
  return {};
}

Status CudaDevice::count_blocks() {
  int threads = 0;
  GYRE_TRY(driver_.check(driver_.device_attribute(&threads, cu::max_threads_per_block, device_),
                         "cuDeviceGetAttribute"));
  GYRE_TRY(
      driver_.check(driver_.device_attribute(&multiprocessors_, cu::multiprocessor_count, device_),
                    "cuDeviceGetAttribute"));
  threads_ = std::min({threads_, static_cast<std::uint32_t>(threads), cuda::max_threads});
  threads_ -= threads_ % cuda::device::warp_threads;
  if (threads_ < 2 * cuda::device::warp_threads)
    return invalid_usage(fmt::format("{} runs blocks of {} threads at most; Gyre's kernels need {}",
                                     name_, threads_, 2 * cuda::device::warp_threads));
  for (const auto& by_op : kernels_)
    for (const ByProtocol& row : by_op)
      for (loaded::CuFunction kernel : row) {
        if (kernel == nullptr) continue;
        int blocks = 0;
        GYRE_TRY(driver_.check(
            driver_.blocks_per_multiprocessor(&blocks, kernel, static_cast<int>(threads_), 0),
            "cuOccupancyMaxActiveBlocksPerMultiprocessor"));
        blocks_each_ = blocks_each_ == 0 ? blocks : std::min(blocks_each_, blocks);
      }
  const int spare = std::max(1, multiprocessors_ / multiprocessors_for_one_spare);
  max_blocks_ = static_cast<std::uint32_t>(std::max(1, multiprocessors_ - spare) * blocks_each_);
  return {};
}

std::string CudaDevice::blocks_shown() const {
  return fmt::format("{} multiprocessors with {} blocks of {} threads each, {} blocks for kernels",
                     multiprocessors_, blocks_each_, threads_, max_blocks_);
}

// In a domain of its own, a fence of a kernel waits for none of the traffic of the caller's
// kernels, nor theirs for its own (CUDA C++ Programming Guide, "Memory Synchronization Domains",
// from sm_90 on). What crosses between domains has to be of system scope: kernels here say all that
// others than their own grid read by words of that scope. The priority lets blocks that peers wait
// for begin before a caller's that wait for a multiprocessor.
// What a driver does not know is not used: that costs time, and is no error.
void CudaDevice::choose_attributes() {
  if (driver_.launch_with == nullptr) return;
  int domains = 0, least = 0, greatest = 0;
  if (driver_.device_attribute(&domains, cu::sync_domain_count, device_) == cu::success &&
      domains > 1)
    attributes_.push_back({.id = cu::launch_sync_domain, .value = cu::remote_domain});
  if (driver_.priority_range != nullptr &&
      driver_.priority_range(&least, &greatest) == cu::success && greatest < least)
    attributes_.push_back({.id = cu::launch_priority, .value = greatest});
}

std::string CudaDevice::launches_shown() const {
  if (attributes_.empty()) return "kernels by cuLaunchKernel";
  std::string text = "kernels by cuLaunchKernelEx";
  for (const loaded::CuLaunchAttribute& one : attributes_)
    text += one.id == cu::launch_priority ? fmt::format(", at priority {}", one.value)
                                          : ", in the remote memory synchronisation domain";
  return text;
}

Status CudaDevice::launch(loaded::CuFunction kernel, std::uint32_t blocks, loaded::CuStream stream,
                          void* parameter) const {
  void* parameters[] = {parameter};
  if (attributes_.empty())
    return driver_.check(
        driver_.launch(kernel, blocks, 1, 1, threads_, 1, 1, 0, stream, parameters, nullptr),
        fmt::format("cuLaunchKernel of {} blocks of {} threads", blocks, threads_));
  loaded::CuLaunchConfig config;
  config.grid_x = blocks;
  config.block_x = threads_;
  config.stream = stream;
  config.attributes = attributes_.data();
  config.count = static_cast<unsigned>(attributes_.size());
  return driver_.check(
      driver_.launch_with(&config, kernel, parameters, nullptr),
      fmt::format("cuLaunchKernelEx of {} blocks of {} threads", blocks, threads_));
}

Result<std::uint64_t> CudaDevice::free_bytes() const {
  const CurrentContext scope(driver_, owner_);
  std::size_t free = 0, total = 0;
  GYRE_TRY(driver_.check(driver_.memory_info(&free, &total), "cuMemGetInfo"));
  return std::uint64_t{free};
}

Status CudaDevice::upload(std::byte* to, std::span<const std::byte> from) const {
  const CurrentContext scope(driver_, owner_);
  GYRE_TRY(driver_.check(driver_.copy_to_device(reinterpret_cast<loaded::CuDevicePointer>(to),
                                                from.data(), from.size(), copies_),
                         fmt::format("cuMemcpyHtoDAsync of {} bytes", from.size())));
  return driver_.check(driver_.stream_synchronize(copies_), "cuStreamSynchronize after an upload");
}

Status CudaDevice::download(void* to, const std::byte* from, std::uint64_t bytes) const {
  const CurrentContext scope(driver_, owner_);
  GYRE_TRY(driver_.check(
      driver_.copy_to_host(to, reinterpret_cast<loaded::CuDevicePointer>(from), bytes, copies_),
      fmt::format("cuMemcpyDtoHAsync of {} bytes", bytes)));
  return driver_.check(driver_.stream_synchronize(copies_), "cuStreamSynchronize after a download");
}

// Not by cuMemsetD8Async, which is a kernel and needs a free multiprocessor.
Status CudaDevice::zero(std::byte* to, std::uint64_t bytes) const {
  const CurrentContext scope(driver_, owner_);
  for (std::uint64_t done = 0; done < bytes; done += zeros_bytes)
    GYRE_TRY(
        driver_.check(driver_.copy_to_device(reinterpret_cast<loaded::CuDevicePointer>(to + done),
                                             zeros_, std::min(zeros_bytes, bytes - done), copies_),
                      "cuMemcpyHtoDAsync of zeros"));
  return driver_.check(driver_.stream_synchronize(copies_), "cuStreamSynchronize after zeros");
}

Status CudaDevice::reach(const CudaDevice& other) const {
  if (other.ordinal_ == ordinal_) return {};
  int can = 0;
  GYRE_TRY(driver_.check(driver_.device_can_access_peer(&can, device_, other.device_),
                         "cuDeviceCanAccessPeer"));
  if (can == 0)
    return Status(Code::SystemError,
                  fmt::format("device {} ({}) cannot reach the memory of device {} ({}): the "
                              "driver finds no path between them (see nvidia-smi topo -p2p rw)",
                              ordinal_, name_, other.ordinal_, other.name_));
  const std::lock_guard lock(reach_mutex_);
  if (reached_.contains(other.ordinal_)) return {};
  const CurrentContext scope(driver_, owner_);
  const loaded::CuResult result =
      loaded::when_still(driver_, [&] { return driver_.enable_peer_access(other.owner_, 0); });
  if (result == cu::success || result == cu::peer_access_already_enabled)
    return reached_.insert(other.ordinal_), Status();
  return driver_.check(result, fmt::format("cuCtxEnablePeerAccess from device {} to device {}",
                                           ordinal_, other.ordinal_));
}

Result<std::shared_ptr<DeviceBlock>> DeviceBlock::make(std::shared_ptr<const CudaDevice> device,
                                                       std::uint64_t bytes,
                                                       std::string_view purpose) {
  std::shared_ptr<DeviceBlock> made(new DeviceBlock(std::move(device)));
  const CudaDevice& on = *made->device_;
  const CurrentContext scope(on.driver(), on.owner());
  made->bytes_ = bytes;
  made->piece_ = on.take_idle(CudaDevice::Kind::device, bytes);
  if (made->piece_.memory != 0) return made;
  loaded::CuDevicePointer memory = 0;
  GYRE_TRY(on.driver().check(
      loaded::when_still(on.driver(), [&] { return on.driver().allocate(&memory, bytes); }),
      fmt::format("cuMemAlloc of {} bytes of device {} for {}", bytes, on.ordinal(), purpose)));
  made->piece_ = {memory, bytes};
  return made;
}

DeviceBlock::~DeviceBlock() {
  if (piece_.memory != 0) CudaDevice::give_idle(device_, CudaDevice::Kind::device, piece_);
}

Result<std::unique_ptr<PinnedBlock>> PinnedBlock::make(std::shared_ptr<const CudaDevice> device,
                                                       std::uint64_t bytes,
                                                       std::string_view purpose) {
  std::unique_ptr<PinnedBlock> made(new PinnedBlock(std::move(device)));
  const loaded::CudaDriver& driver = made->device_->driver();
  const CurrentContext scope(driver, made->device_->owner());
  made->piece_ = made->device_->take_idle(CudaDevice::Kind::pinned, bytes);
  if (made->piece_.memory == 0) {
    void* memory = nullptr;
    const auto allocate = [&] {
      return driver.allocate_host(&memory, bytes,
                                  cu::host_alloc_portable | cu::host_alloc_device_map);
    };
    GYRE_TRY(driver.check(loaded::when_still(driver, allocate),
                          fmt::format("cuMemHostAlloc of {} bytes for {}", bytes, purpose)));
    made->piece_ = {reinterpret_cast<std::uintptr_t>(memory), bytes};
  }
  std::memset(made->begin(), 0, bytes);
  GYRE_TRY(driver.check(driver.host_device_pointer(&made->seen_, made->begin(), 0),
                        "cuMemHostGetDevicePointer"));
  return made;
}

PinnedBlock::~PinnedBlock() {
  if (piece_.memory != 0) CudaDevice::give_idle(device_, CudaDevice::Kind::pinned, piece_);
}

}  // namespace gyre::exec
