// RelayMesh: relays between all ranks of a DeviceJob, as if none of their GPUs reached another. One
// thread of the simulated device drives them all beside the kernels.
#pragma once

#include "lib/cuda/device_relay.h"
#include "lib/plan/step.h"
#include "tests/support/host_device/host_device.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace gyre::tests {

class RelayMesh {
 public:
  RelayMesh(std::uint32_t channels, std::uint64_t slot_bytes, std::uint32_t slot_shift);
  ~RelayMesh();
  // That rank's ends; the other's are made with them.
  cuda::DeviceEnd send_end(int rank, plan::Link link, std::uint32_t channel);
  cuda::DeviceEnd receive_end(int rank, plan::Link link, std::uint32_t channel);
  // Until `ended()`. What went wrong is in `failure`.
  Grid grid(int rank, std::function<bool()> ended);
  const std::string& failure() const { return failure_; }

 private:
  struct Half;
  using Key = std::tuple<int, int, int>;  // rank, peer, channel of the plan
  Half& half(const Key& key);
  exec::DeviceLink link(int rank, plan::Link link);
  void drive(const std::function<bool()>& ended);

  const exec::DeviceShape shape_;
  std::map<Key, std::unique_ptr<Half>> halves_;
  std::string failure_;
};

}  // namespace gyre::tests
