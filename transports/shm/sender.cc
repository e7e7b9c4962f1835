#include "transports/shm/sender.h"

#include "lib/transport/handover.h"
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
      listener_name_(endpoint.places.front()),
      ticket_(endpoint.ticket),
      says_sealed_((endpoint.flags & endpoint_unsealed) == 0),
      memory_(std::move(reserved)) {}

Status ShmSender::progress() {
  if (state_ == State::mapped || !error_.ok()) return error_;
  Status status = join();
  if (status.ok()) return status;
  socket_.reset();
  error_ = link_failure(std::move(status), fmt::format("shared memory of rank {}", key_.peer),
                        key_.peer);
  return error_;
}

Status ShmSender::join() {
  if (state_ == State::knocking) {
    GYRE_ASSIGN(std::optional<FileDescriptor> listener, connect_to_listener(listener_name_));
    if (!listener.has_value()) return {};
    socket_ = std::move(*listener);
    GYRE_TRY(show_ticket_at_listener(socket_, ticket_));
    state_ = State::waiting;
  }
  GYRE_ASSIGN(const std::optional<FileDescriptor> received,
              take_over(socket_, memory_->mapping.get().bytes));
  if (!received.has_value()) return {};
  GYRE_TRY(map_received_fifo(*received, says_sealed_ || !memfd_is_denied(), *memory_));
  socket_.reset();
  state_ = State::mapped;
  return {};
}

void ShmSender::arm(WaitSet& set) {
  if (state_ == State::mapped) return arm_bell(memory_->view.control->sender_bell, set);
  if (state_ == State::waiting && socket_.has_value()) set.add_descriptor(socket_.get(), POLLIN);
}

void ShmSender::disarm() {
  if (state_ == State::mapped) disarm_bell(memory_->view.control->sender_bell);
}

}  // namespace gyre::transport
