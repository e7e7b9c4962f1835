#include "transports/rdma/device.h"

#include "lib/base/log.h"

#include <fmt/core.h>

#include <atomic>
#include <cerrno>
#include <fcntl.h>
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

std::string_view event_text(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      return "a completion queue overflowed";
    case IBV_EVENT_QP_FATAL:
      return "a queue pair failed";
    case IBV_EVENT_QP_REQ_ERR:
      return "a peer sent an invalid request";
    case IBV_EVENT_QP_ACCESS_ERR:
      return "a peer wrote where it may not";
    case IBV_EVENT_PORT_ACTIVE:
      return "a port is active again";
    case IBV_EVENT_PORT_ERR:
      return "a port went down";
    case IBV_EVENT_LID_CHANGE:
      return "a port has another LID";
    case IBV_EVENT_GID_CHANGE:
      return "the addresses of a port changed";
    case IBV_EVENT_DEVICE_FATAL:
      return "the device failed";
    default:
      return {};
  }
}

}  // namespace

Result<std::shared_ptr<RdmaDevice>> RdmaDevice::open(const loaded::Verbs& verbs,
                                                     const RdmaPort& port,
                                                     const RdmaOptions& options) {
  std::shared_ptr<RdmaDevice> device(new RdmaDevice(verbs, port, options));
  GYRE_TRY(device->prepare().while_doing("opening RDMA port " + port.name()));
  return device;
}

Status RdmaDevice::prepare() {
  if (const int failed = verbs_.query_device(context(), &limits_); failed != 0)
    return Status::from_errno("asking for the limits of the device", failed);
  errno = 0;
  domain_ = loaded::VerbsDomain({&verbs_, verbs_.alloc_pd(context())});
  if (domain_.get().object == nullptr) {
    (void)domain_.release();
    return Status::from_errno("making a protection domain", errno != 0 ? errno : ENOMEM);
  }
  GYRE_ASSIGN(probed_memory_,
              register_memory(probed_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  const int flags = fcntl(context()->async_fd, F_GETFL);
  if (flags < 0 || fcntl(context()->async_fd, F_SETFL, flags | O_NONBLOCK) != 0)
    return Status::from_errno("fcntl of the device's events", errno);
  return {};
}

Result<loaded::VerbsMemory> RdmaDevice::register_memory(std::span<std::byte> memory,
                                                        int access) const {
  errno = 0;
  ibv_mr* const made = verbs_.reg_mr(domain(), memory.data(), memory.size(), access);
  if (made != nullptr) return loaded::VerbsMemory({&verbs_, made});
  const int why = errno != 0 ? errno : ENOMEM;
  const Status failed = Status::from_errno(
      fmt::format("registering {} bytes with RDMA device {}", memory.size(), port_.device), why);
  const bool is_limit = why == ENOMEM || why == EAGAIN || why == EPERM;
  return Status(failed.code(),
                std::string(failed.message()) + (is_limit ? memlock_text() : std::string()));
}

RemoteMemory RdmaDevice::probed() const {
  return {reinterpret_cast<std::uintptr_t>(probed_.data()), probed_memory_.get()->rkey};
}

void RdmaDevice::take_events() {
  const std::lock_guard lock(mutex_);
  ibv_async_event event{};
  // The descriptor does not block: EAGAIN ends it.
  while (verbs_.get_async_event(context(), &event) == 0) {
    if (const std::string_view text = event_text(event.event_type); !text.empty())
      log_warn("RDMA device {}: {}", port_.device, text);
    // The queue and its user live until the event is acknowledged: ibv_destroy_cq waits for that.
    if (event.event_type == IBV_EVENT_CQ_ERR)
      static_cast<std::atomic<bool>*>(event.element.cq->cq_context)->store(true);
    verbs_.ack_async_event(&event);
  }
}

std::string RdmaDevice::trouble() {
  take_events();
  ibv_port_attr now{};
  if (verbs_.query_port(context(), port_.number, &now) != 0)
    return fmt::format("the state of port {} cannot be read", port_.name());
  if (now.state != IBV_PORT_ACTIVE) return fmt::format("port {} is down", port_.name());
  return {};
}

}  // namespace gyre::transport
