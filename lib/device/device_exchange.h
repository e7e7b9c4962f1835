// DeviceExchange: sends and receives of device memory, as kernels. Each direction of a link has a
// block, which runs its transfers in order. Messages have neither tags nor a count, so both ends
// must agree on what they move. A batch is done when all its transfers are on their stream.
#pragma once

#include "lib/control/control.h"
#include "lib/device/device_links.h"
#include "lib/sendrecv/exchange.h"

#include <functional>
#include <map>
#include <vector>

namespace gyre::comm {

class DeviceExchange final : public Exchange {
 public:
  // `blocks`: that this rank may use at one time; the same on all ranks. `launched` is called when
  // a batch is on its streams.
  DeviceExchange(DeviceLinks& links, control::Membership& membership, exec::CudaExecutor& executor,
                 int rank, int size, std::uint32_t blocks, std::function<void()> launched);
  // Of each link that it opens.
  std::uint64_t link_bytes() const { return channels_ * executor_.shape().channel_bytes(); }
  static std::uint32_t channels_for(std::uint32_t blocks, int size);

  // One batch at a time: it is on its stream before the call returns.
  Status begin(Batch& batch) override;
  Status advance(bool& moved) override;
  Blocked blocked(const Batch& batch) override;
  void end(Batch& batch, const Status& why) override;
  // Its waits are kernels'.
  Status look_at_peers(std::int64_t, std::int64_t) override { return {}; }
  bool waits_on_memory(const Batch&) override { return false; }
  bool may_come_from_anyone() override { return true; }
  bool arm(WaitSet& set) override;
  void disarm() override {}

 private:
  int distance(const Transfer& transfer) const;
  std::uint32_t channels_of(const Transfer& transfer) const;
  Result<const exec::DevicePair*> pair(int peer);
  Result<bool> launch_some();
  Status add_parts(const Transfer& transfer, std::map<const void*, std::uint32_t>& blocks,
                   std::vector<exec::DeviceTransfer>& parts);

  DeviceLinks& links_;
  control::Membership& membership_;
  exec::CudaExecutor& executor_;
  const int rank_, size_;
  const std::uint32_t blocks_, channels_;
  const std::function<void()> on_launched_;
  std::map<int, exec::DevicePair> pairs_;  // by peer
  Batch* batch_ = nullptr;
  std::vector<const Transfer*> transfers_;    // by distance, and each pair's in the caller's order
  std::vector<loaded::CuStream> streams_;     // that they are on
  const exec::StreamState* asked_ = nullptr;  // of the only one, see Request
  std::size_t launched_ = 0;
};

}  // namespace gyre::comm
