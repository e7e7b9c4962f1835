#include "transports/rdma/device.h"

#include "lib/base/log.h"
#include "transports/rdma/private_pages.h"

#include <fmt/core.h>

#include <cerrno>
#include <string_view>
#include <sys/resource.h>

namespace gyre::transport {
namespace {

std::string memlock_text() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return fmt::format(
      "; this process may lock {} bytes (RLIMIT_MEMLOCK): `ulimit -l unlimited`, or "
      "LimitMEMLOCK=infinity of the service that starts it, allows more",
      limit.rlim_cur);
}

void log_gpu_memory(const RdmaPort& port, std::size_t bytes, std::string_view way) {
  log_info(Subsystem::net, "{} has {} bytes of a GPU's memory by {}", port.name(), bytes, way);
}

}  // namespace

bool is_memory_limit(int error_number) {
  return error_number == ENOMEM || error_number == EAGAIN || error_number == EPERM;
}

Result<std::shared_ptr<RdmaDevice>> RdmaDevice::open(const RdmaPort& port,
                                                     const RdmaOptions& options) {
  std::shared_ptr<RdmaDevice> device(new RdmaDevice(port, options));
  GYRE_TRY(device->prepare().while_doing("opening RDMA port " + port.name()));
  return device;
}

Status RdmaDevice::prepare() {
  if (const int failed = verbs().query_device(context(), &limits_); failed != 0)
    return Status::from_errno("asking for the limits of the device", failed);
  errno = 0;
  domain_ = loaded::VerbsDomain({&verbs(), verbs().alloc_pd(context())});
  if (domain_.get().object == nullptr) {
    (void)domain_.release();
    return Status::from_errno("making a protection domain", errno != 0 ? errno : ENOMEM);
  }
  constexpr std::size_t probed_bytes = 64;
  GYRE_ASSIGN(probed_, private_pages(probed_bytes));
  GYRE_ASSIGN(probed_memory_, register_memory({probed_.get().data, probed_bytes},
                                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  return {};
}

int RdmaDevice::try_to_register(std::span<std::byte> memory, int access,
                                loaded::VerbsMemory& made) const {
  errno = 0;
  ibv_mr* const object = verbs().reg_mr(domain(), memory.data(), memory.size(), access);
  if (object == nullptr) return errno != 0 ? errno : ENOMEM;
  made = loaded::VerbsMemory({&verbs(), object});
  return 0;
}

int RdmaDevice::try_to_register_gpu(std::span<std::byte> memory, const GpuBuffer& buffer,
                                    int access, loaded::VerbsMemory& made) const {
  const auto by_address = [&] {
    const int why = try_to_register(memory, access, made);
    if (why == 0) log_gpu_memory(port_, memory.size(), "their address");
    return why;
  };
  if (!buffer.dmabuf.has_value() || verbs().reg_dmabuf_mr == nullptr) return by_address();
  errno = 0;
  ibv_mr* const object = verbs().reg_dmabuf_mr(
      domain(), static_cast<std::uint64_t>(memory.data() - buffer.range.data), memory.size(),
      reinterpret_cast<std::uintptr_t>(memory.data()), buffer.dmabuf.get(), access);
  // A device whose driver in the kernel knows no dmabufs.
  if (object == nullptr && (errno == EOPNOTSUPP || errno == EPROTONOSUPPORT)) return by_address();
  if (object == nullptr) return errno != 0 ? errno : ENOMEM;
  made = loaded::VerbsMemory({&verbs(), object});
  log_gpu_memory(port_, memory.size(), "a dmabuf");
  return 0;
}

Status RdmaDevice::registering_failed(std::size_t bytes, int why) const {
  const Status failed = Status::from_errno(
      fmt::format("registering {} bytes with RDMA device {}", bytes, port_.device->name()), why);
  return Status(failed.code(), std::string(failed.message()) +
                                   (is_memory_limit(why) ? memlock_text() : std::string()));
}

Result<loaded::VerbsMemory> RdmaDevice::register_memory(std::span<std::byte> memory,
                                                        int access) const {
  loaded::VerbsMemory made;
  if (const int why = try_to_register(memory, access, made); why != 0)
    return registering_failed(memory.size(), why);
  return made;
}

RemoteMemory RdmaDevice::probed() const {
  return {reinterpret_cast<std::uintptr_t>(probed_.get().data), probed_memory_.get()->rkey};
}

ibv_sge RdmaDevice::sink() const {
  return {reinterpret_cast<std::uintptr_t>(probed_.get().data), sizeof(std::uint32_t),
          probed_memory_.get()->lkey};
}

std::string RdmaDevice::trouble() {
  take_events();
  if (port_.device->has_failed()) return fmt::format("device {} has failed", port_.device->name());
  ibv_port_attr now{};
  if (verbs().query_port(context(), port_.number, &now) != 0)
    return fmt::format("the state of port {} cannot be read", port_.name());
  if (now.state != IBV_PORT_ACTIVE) return fmt::format("port {} is down", port_.name());
  return {};
}

}  // namespace gyre::transport
