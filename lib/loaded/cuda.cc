#include "lib/loaded/cuda.h"

#include <fmt/core.h>

#include <cstdlib>
#include <dlfcn.h>
#include <unistd.h>

namespace gyre::loaded {
namespace {

constexpr const char* driver_library = "libcuda.so.1";
// cuGetProcAddress, through which each function comes in the form that its signature here has.
constexpr int min_version = 11030;
constexpr unsigned long long legacy_default_stream = 1;  // CU_GET_PROC_ADDRESS_LEGACY_STREAM

// Of 12.0 and later, which has one more result; and of 11.3.
using FindSymbol = CuResult (*)(const char*, void**, int, unsigned long long, void*);
using FindSymbolBefore12 = CuResult (*)(const char*, void**, int, unsigned long long);

struct Symbols {
  FindSymbol find = nullptr;
  FindSymbolBefore12 find_before_12 = nullptr;

  void* at(const char* name, int version) const {
    void* symbol = nullptr;
    const CuResult result = find != nullptr
                                ? find(name, &symbol, version, legacy_default_stream, nullptr)
                                : find_before_12(name, &symbol, version, legacy_default_stream);
    return result == cu::success ? symbol : nullptr;
  }
};

Status missing(std::string what) { return invalid_usage(std::move(what)); }

Status too_old(const CudaDriver& driver, std::string_view symbol, int version) {
  return missing(fmt::format(
      "{} is the driver of {} and has no {}, which comes with CUDA {}: update the NVIDIA driver",
      driver_library, cuda_version_shown(driver), symbol, shown_as_cuda(version)));
}

// Streams are given to queues of the hardware in turn, so that with few of them two ranks of a
// process may share one, where one's kernel stands before the other's that it waits for. The driver
// reads the variable when it begins: only whoever loads it can say so. Under MPS clients share the
// queues, and what there are is for its user to deal out.
void ask_for_connections() {
  constexpr const char* variable = "CUDA_DEVICE_MAX_CONNECTIONS";
  if (void* const known = dlopen(driver_library, RTLD_NOW | RTLD_NOLOAD); known != nullptr) {
    dlclose(known);
    return;
  }
  const char* const folder = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  const std::string pipes = folder != nullptr ? folder : "/tmp/nvidia-mps";
  if (access((pipes + "/control").c_str(), F_OK) != 0) (void)setenv(variable, "32", 0);
}

Result<Symbols> open_library(CudaPresence presence) {
  if (presence == CudaPresence::wanted) ask_for_connections();
  const int only = presence == CudaPresence::only_if_loaded ? RTLD_NOLOAD : 0;
  void* const opened = dlopen(driver_library, RTLD_NOW | RTLD_GLOBAL | only);
  if (opened == nullptr) {
    const char* const why = dlerror();
    return missing(fmt::format("{} was not found: no NVIDIA driver here, so no CUDA device ({})",
                               driver_library, why != nullptr ? why : "it is not loaded"));
  }
  Symbols symbols;
  symbols.find = reinterpret_cast<FindSymbol>(dlsym(opened, "cuGetProcAddress_v2"));
  symbols.find_before_12 = reinterpret_cast<FindSymbolBefore12>(dlsym(opened, "cuGetProcAddress"));
  if (symbols.find == nullptr && symbols.find_before_12 == nullptr)
    return missing(
        fmt::format("{} has no cuGetProcAddress: the NVIDIA driver is older than CUDA {}; update "
                    "it",
                    driver_library, shown_as_cuda(min_version)));
  return symbols;
}

}  // namespace

std::string shown_as_cuda(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string cuda_version_shown(const CudaDriver& driver) {
  int version = 0;
  if (driver.driver_version == nullptr || driver.driver_version(&version) != cu::success)
    return "an unknown CUDA";
  return "CUDA " + shown_as_cuda(version);
}

Status CudaDriver::check(CuResult result, std::string_view call) const {
  if (result == cu::success) [[likely]]
    return {};
  const char* name = nullptr;
  const char* words = nullptr;
  if (error_name(result, &name) != cu::success || name == nullptr) name = "an unknown error";
  if (error_string(result, &words) != cu::success || words == nullptr) words = "no description";
  return Status(Code::UnhandledCudaError,
                fmt::format("{}: {} ({}): {}", call, name, result, words));
}

Status find_cuda(CudaDriver& driver, const FindCuda& find) {
#define GYRE_CUDA_FIND(member, symbol, version, parameters)                         \
  driver.member = reinterpret_cast<decltype(driver.member)>(find(symbol, version)); \
  if (driver.member == nullptr) return too_old(driver, symbol, version);
  GYRE_CUDA_FUNCTIONS(GYRE_CUDA_FIND)
#undef GYRE_CUDA_FIND
#define GYRE_CUDA_FIND(member, symbol, version, parameters) \
  driver.member = reinterpret_cast<decltype(driver.member)>(find(symbol, version));
  GYRE_CUDA_OPTIONAL_FUNCTIONS(GYRE_CUDA_FIND)
#undef GYRE_CUDA_FIND
  return {};
}

Result<std::unique_ptr<const CudaDriver>> load_cuda(CudaPresence presence) {
  GYRE_ASSIGN(const Symbols symbols, open_library(presence));
  auto driver = std::make_unique<CudaDriver>();
  GYRE_TRY(
      find_cuda(*driver, [&](const char* name, int version) { return symbols.at(name, version); }));
  const CuResult begun = driver->init(0);
  if (begun == cu::no_device)
    return missing(fmt::format("{} finds no device: no GPU here, or CUDA_VISIBLE_DEVICES hides all",
                               driver_library));
  GYRE_TRY(driver->check(begun, "cuInit"));
  return std::unique_ptr<const CudaDriver>(std::move(driver));
}

std::string shown(const CuUuid& uuid, bool is_instance) {
  std::string text = is_instance ? "MIG" : "GPU";
  for (std::size_t i = 0; i < std::size(uuid.bytes); ++i)
    text += fmt::format("{}{:02x}", i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                        uuid.bytes[i]);
  return text;
}

std::string find_uuid(const CudaDriver& driver, CuDevice device) {
  CuUuid uuid{};
  char name[256] = "";  // "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
  if (driver.device_uuid(&uuid, device) != cu::success ||
      driver.device_name(name, sizeof name, device) != cu::success)
    return {};
  return shown(uuid, std::string_view(name).find(" MIG ") != std::string_view::npos);
}

Result<CudaPointer> find_pointer(const CudaDriver& driver, const void* pointer) {
  unsigned type = 0;
  int managed = 0, legacy = 0, device = -1;
  void* pool = nullptr;
  CuDevicePointer begin = 0;
  std::size_t bytes = 0;
  unsigned long long id = 0;
  int which[] = {cu::pointer_memory_type, cu::pointer_is_managed, cu::pointer_device_ordinal,
                 cu::pointer_range_start, cu::pointer_range_size, cu::pointer_buffer_id,
                 cu::pointer_is_legacy,   cu::pointer_pool};
  void* values[] = {&type, &managed, &device, &begin, &bytes, &id, &legacy, &pool};
  GYRE_TRY(driver.check(driver.pointer_attributes(std::size(which), which, values,
                                                  reinterpret_cast<CuDevicePointer>(pointer)),
                        fmt::format("cuPointerGetAttributes of {}", pointer)));
  CudaPointer found;
  found.known = type != 0;
  found.on_device = type == cu::memory_device;
  found.managed = managed != 0;
  found.legacy = legacy != 0;
  found.of_pool = pool != nullptr;
  found.device = device;
  found.range_begin = begin;
  found.range_bytes = bytes;
  found.id = id;
  return found;
}

// A failure shows in the call that needs it.
CurrentContext::CurrentContext(const CudaDriver& driver, CuContext owner)
    : driver_(driver), mode_(cu::capture_relaxed) {
  (void)driver_.exchange_capture_mode(&mode_);
  if (driver_.current(&before_) == cu::success && before_ == owner) return;
  changed_ = driver_.set_current(owner) == cu::success;
}

CurrentContext::~CurrentContext() {
  if (changed_) (void)driver_.set_current(before_);
  (void)driver_.exchange_capture_mode(&mode_);
}

}  // namespace gyre::loaded
