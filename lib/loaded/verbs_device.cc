#include "lib/loaded/verbs_device.h"

#include "lib/base/log.h"

#include <cerrno>
#include <fcntl.h>
#include <string_view>

namespace gyre::loaded {
namespace {

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

Result<std::shared_ptr<VerbsDevice>> VerbsDevice::open(const Verbs& table, ibv_device* device) {
  errno = 0;
  ibv_context* const opened = table.open_device(device);
  if (opened == nullptr)
    return Status::from_errno("it cannot be opened", errno != 0 ? errno : ENODEV);
  VerbsContext context({&table, opened});
  const int flags = fcntl(opened->async_fd, F_GETFL);
  if (flags < 0 || fcntl(opened->async_fd, F_SETFL, flags | O_NONBLOCK) != 0)
    return Status::from_errno("fcntl of the descriptor of its events", errno);
  return std::shared_ptr<VerbsDevice>(
      new VerbsDevice(std::move(context), table.device_name(device)));
}

void VerbsDevice::take_events() {
  const std::lock_guard lock(mutex_);
  ibv_async_event event{};
  // The descriptor does not block: EAGAIN ends it.
  while (table().get_async_event(context(), &event) == 0) {
    if (const std::string_view text = event_text(event.event_type); !text.empty())
      log_warn("RDMA device {}: {}", name_, text);
    if (event.event_type == IBV_EVENT_DEVICE_FATAL)
      has_failed_.store(true, std::memory_order_relaxed);
    // The queue and its user live until the event is acknowledged: ibv_destroy_cq waits for that.
    if (event.event_type == IBV_EVENT_CQ_ERR)
      static_cast<std::atomic<bool>*>(event.element.cq->cq_context)->store(true);
    table().ack_async_event(&event);
  }
}

}  // namespace gyre::loaded
