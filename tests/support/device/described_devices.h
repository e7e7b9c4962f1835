// Described machines whose GPUs are the devices of the fake driver, as topology files; and the
// rings that a communicator takes there.
#pragma once

#include "lib/plan/plan.h"
#include "tests/topologies/described_machines.h"
#include <gyre/gyre.h>

#include <span>
#include <string>

namespace gyre::tests {

// As the kernel names a device of the fake driver.
std::string fake_bus_id(int device);

// The machine with these devices in place of its GPUs, from the last to the first, so that rank
// order is the machine's no more.
topology::Topology with_fake_devices(topology::Topology machine);

// A process keeps what it has read, so each has a name of its own.
class TopologyFile {
 public:
  explicit TopologyFile(const topology::Topology& machine);
  ~TopologyFile();
  TopologyFile(const TopologyFile&) = delete;
  TopologyFile& operator=(const TopologyFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  static inline int made_ = 0;
  const std::string path_;
};

// A rank's plans for a large all-reduce, by channel.
std::span<const plan::Plan> all_reduce_plans(gyreComm_t comm);

}  // namespace gyre::tests
