// RdmaDevice: a port with a protection domain. All connections of a transport over that port share
// it. Other transports of the process have a domain of their own, in which this one's keys are
// worth nothing.
#pragma once

#include "lib/base/owned.h"
#include "lib/transport/lasting_memory.h"
#include "transports/rdma/address.h"
#include "transports/rdma/ports.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace gyre::transport {

// Whether registering failed at a limit on locked memory: with less of it, it might do.
bool is_memory_limit(int error_number);

class RdmaDevice {
 public:
  static Result<std::shared_ptr<RdmaDevice>> open(const RdmaPort& port, const RdmaOptions& options);
  RdmaDevice(const RdmaDevice&) = delete;
  RdmaDevice& operator=(const RdmaDevice&) = delete;

  const loaded::Verbs& verbs() const { return port_.device->table(); }
  const RdmaPort& port() const { return port_; }
  const RdmaOptions& options() const { return options_; }
  ibv_context* context() const { return port_.device->context(); }
  ibv_pd* domain() const { return domain_.get().object; }
  const ibv_device_attr& limits() const { return limits_; }
  // Of one request.
  std::uint64_t max_write_bytes() const {
    return std::max<std::uint64_t>(port_.attributes.max_msg_sz, 128);
  }
  // Memory for the NIC: which it reads, or which peers write.
  Result<loaded::VerbsMemory> register_memory(std::span<std::byte> memory, int access) const;
  // The same, and why it failed: an errno, or 0.
  int try_to_register(std::span<std::byte> memory, int access, loaded::VerbsMemory& made) const;
  // The same of memory of a GPU, in that buffer: by its dmabuf, or by its address.
  int try_to_register_gpu(std::span<std::byte> memory, const GpuBuffer& buffer, int access,
                          loaded::VerbsMemory& made) const;
  Status registering_failed(std::size_t bytes, int why) const;
  // Where peers may write nothing, to see whether this NIC answers.
  RemoteMemory probed() const;
  // Where reads of which nobody wants the bytes put these.
  ibv_sge sink() const;
  // See VerbsDevice.
  void take_events() { port_.device->take_events(); }
  // What is wrong with the port now, for the text of an error; empty if nothing is. It takes the
  // device's events.
  std::string trouble();

 private:
  RdmaDevice(const RdmaPort& port, const RdmaOptions& options) : port_(port), options_(options) {}
  Status prepare();

  const RdmaPort port_;
  const RdmaOptions options_;
  ibv_device_attr limits_{};
  loaded::VerbsDomain domain_;
  Mapping probed_;
  loaded::VerbsMemory probed_memory_;
};

}  // namespace gyre::transport
