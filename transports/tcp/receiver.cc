#include "transports/tcp/receiver.h"

#include <fmt/core.h>

#include <algorithm>

namespace gyre::transport {

TcpReceiver::TcpReceiver(const LinkKey& key, const TransportEnvironment& environment,
                         std::shared_ptr<FifoMemory> memory, std::vector<ReceivingRail> rails)
    : memory_(std::move(memory)),
      inbound_(memory_->view),
      common_(common_header(key, environment)),
      rails_("tcp from", key.peer, std::move(rails)) {}

Status TcpReceiver::progress() {
  if (!rails_.error().ok() || closed_) return rails_.error();
  if (is_cut_off_) return rails_.fail(cut_off_failure());
  if (!ready()) GYRE_TRY(rails_.join());
  if (!ready()) return {};
  for (ReceivingRail& rail : rails_.all()) {
    Status landed = rail.land(inbound_, common_);
    if (!landed.ok()) return rails_.fail(rail, std::move(landed));
  }
  closed_ = std::ranges::all_of(rails_.all(), &ReceivingRail::is_closed);
  if (!closed_ || !inbound_.has_gap()) return {};
  return rails_.fail(
      Status(Code::RemoteError,
             fmt::format("the peer closed, and not all of message {} came", inbound_.next())));
}

void TcpReceiver::arm(WaitSet& set) {
  if (!rails_.error().ok()) return;
  // This end waits for a message that will not come.
  if (at_end()) {
    const Status closed(Code::RemoteError, "the peer closed the connection");
    static_cast<void>(rails_.fail(closed));
    return;
  }
  for (const ReceivingRail& rail : rails_.all()) rail.arm(set, inbound_);
}

}  // namespace gyre::transport
