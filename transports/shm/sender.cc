#include "transports/shm/sender.h"

#include "transports/shm/memory.h"

#include <fmt/core.h>

#include <poll.h>

namespace gyre::transport {

Result<std::unique_ptr<Connection>> ShmSender::create(const LinkKey& key,
                                                      const EndpointContents& endpoint) {
  if (endpoint.places.size() != 1)
    return Status(Code::RemoteError, fmt::format("rank {} named no listener for shm", key.peer))
        .blame({key.peer});
  GYRE_ASSIGN(std::shared_ptr<FifoMemory> reserved, reserve_fifo(endpoint.shape));
  return std::unique_ptr<Connection>(new ShmSender(key, endpoint, std::move(reserved)));
}

ShmSender::ShmSender(const LinkKey& key, const EndpointContents& endpoint,
                     std::shared_ptr<FifoMemory> reserved)
    : key_(key),
      says_sealed_((endpoint.flags & endpoint_unsealed) == 0),
      memory_(std::move(reserved)),
      request_(endpoint.places.front(), endpoint.ticket, memory_->mapping.get().bytes) {}

Status ShmSender::progress() {
  if (is_mapped_ || !error_.ok()) return error_;
  Status status = join();
  if (status.ok()) return status;
  error_ = link_failure(std::move(status), fmt::format("shared memory of rank {}", key_.peer),
                        key_.peer);
  return error_;
}

Status ShmSender::join() {
  GYRE_ASSIGN(const std::optional<FileDescriptor> received, request_.advance());
  if (!received.has_value()) return {};
  GYRE_TRY(map_received_fifo(*received, says_sealed_ || !memfd_is_denied(), *memory_));
  is_mapped_ = true;
  return {};
}

void ShmSender::arm(WaitSet& set) {
  if (is_mapped_) return arm_bell(memory_->view.control->sender_bell, set);
  if (request_.descriptor() >= 0) set.add_descriptor(request_.descriptor(), POLLIN);
}

void ShmSender::disarm() {
  if (is_mapped_) disarm_bell(memory_->view.control->sender_bell);
}

}  // namespace gyre::transport
