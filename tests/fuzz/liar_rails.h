// LiarRails: the queue pairs with which a fuzz target plays the peer of an RDMA end, over two rails
// of a fake device.
#pragma once

#include "tests/fuzz/input.h"
#include "tests/support/fake_verbs/fake_verbs.h"
#include "transports/rdma/end.h"
#include "transports/rdma/sender.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace gyre::fuzz {

inline constexpr transport::FifoShape liar_shape = {
    .slot_count = 4, .line_count = 4, .slot_bytes = 512};

template <typename T>
T must(Result<T> made) {
  GYRE_DEMAND(made.ok());
  return std::move(made).value();
}

class LiarRails {
 public:
  static constexpr std::size_t rails = 2;

  explicit LiarRails(std::size_t pairs) : pairs_(pairs) {
    const transport::RdmaPorts ports = must(transport::find_rdma_ports(verbs_, {}));
    device_ = must(transport::RdmaDevice::open(ports.usable.front(), {}));
    gid_ = ports.usable.front().gids.front();
    window_ = fit_window(liar_shape, {device_, device_}, pairs);
    for (auto& one : liars_)
      one = must(transport::RdmaQueues::make(device_, gid_, pairs, {64, 64}));
  }

  transport::RdmaDevice& device() { return *device_; }
  transport::RdmaWindow window() const { return window_; }
  transport::RdmaShared shared() const { return {farewell_, registrations_}; }
  // What the end under test may lend.
  std::byte* allocate(std::size_t bytes) {
    return static_cast<std::byte*>(must(regions_.allocate(bytes)));
  }
  std::size_t pairs() const { return pairs_; }
  // Of the end under test.
  std::vector<transport::RdmaRail> make_rails() const {
    std::vector<transport::RdmaRail> made(rails);
    for (transport::RdmaRail& one : made)
      one.queues = must(transport::RdmaQueues::make(device_, gid_, pairs_, window_.depth()));
    return made;
  }
  transport::RdmaAddress address(std::size_t rail) const { return liars_[rail]->address("a liar"); }
  void join(const std::vector<transport::RdmaAddress>& there) {
    for (std::size_t rail = 0; rail < rails; ++rail)
      GYRE_DEMAND(liars_[rail]->join(there[rail]).ok());
  }
  void post(std::size_t rail, std::size_t pair, ibv_send_wr& request) {
    (void)liars_[rail]->post(pair, request);
  }
  static ibv_send_wr notice(std::uint32_t immediate) {
    ibv_send_wr request{};
    request.opcode = IBV_WR_SEND_WITH_IMM;
    request.send_flags = IBV_SEND_SIGNALED;
    request.imm_data = immediate;
    return request;
  }
  // Lets the end take what has come: an error is for good, and its fifo is never overfull.
  Status settle(transport::Connection& end) {
    const Status before = end.progress();
    Status after = end.progress();
    GYRE_DEMAND(before.ok() || before.message() == after.message());
    const transport::FifoControl& control = *end.fifo().control;
    GYRE_DEMAND(control.tail.value - control.head.value <= liar_shape.slot_count);
    for (const auto& one : liars_) (void)one->poll();
    return after;
  }

 private:
  const std::size_t pairs_;
  const tests::FakeVerbs fake_;
  loaded::SharedVerbs verbs_{&fake_.table()};
  const std::shared_ptr<transport::RdmaFarewell> farewell_ =
      std::make_shared<transport::RdmaFarewell>();
  transport::RegionTable regions_;
  const std::shared_ptr<transport::LastingMemory> lasting_ =
      std::make_shared<transport::LastingMemory>(regions_);
  const std::shared_ptr<transport::RegistrationCache> registrations_ =
      std::make_shared<transport::RegistrationCache>(lasting_);
  std::shared_ptr<transport::RdmaDevice> device_;
  transport::RdmaGid gid_;
  transport::RdmaWindow window_;
  std::array<std::unique_ptr<transport::RdmaQueues>, rails> liars_;
};

}  // namespace gyre::fuzz
