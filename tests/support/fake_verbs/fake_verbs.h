// FakeVerbs: a table of libibverbs with devices of its own, whose queue pairs reach each other in
// this process. It models what the transport relies on: states of queue pairs and their packet
// numbers, subnets, keys and bounds of memory, receive requests, depths of queues, completion
// events, late completions, and failures. It is stricter than a NIC: what a NIC would wait out is
// an error at once. One at a time; any thread.
#pragma once

#include "lib/base/owned.h"
#include "lib/loaded/verbs.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::tests {

struct FakePortOptions {
  ibv_port_state state = IBV_PORT_ACTIVE;
  std::uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;
  std::uint8_t speed = 32, width = 2;  // 25 Gb/s, 4 lanes
  std::uint32_t max_message = 1U << 30;
  // "10.0.0.1", "fd00::1"; with v1: in front, of RoCE version 1.
  std::vector<std::string> gids = {"fe80::1", "v1:10.0.0.1", "10.0.0.1", "fd00::1"};
};

struct FakeNicOptions {
  std::string name = "fake0";
  std::vector<FakePortOptions> ports = {{}};
  int max_requests = 1024;     // of one queue of a pair
  int max_completions = 4096;  // of one completion queue
  std::uint32_t inline_bytes = 256;
};

struct FakeVerbsOptions {
  std::vector<FakeNicOptions> devices = {{}};
  // 0: a request is carried out when it is posted. Else a thread does so later, those of different
  // queue pairs in an order that this seed draws.
  std::uint64_t seed = 0;
};

// The memory of GPUs, as NICs meet it.
struct FakeGpuMemory {
  std::function<bool(const void*)> is_there = {};  // at an address
  bool by_address = false;                         // plain registration takes it; else EFAULT
  bool by_dmabuf = true;                           // the kernel's drivers of the NICs know dmabufs
  // What a NIC writes there is on its way until the same NIC reads there.
  bool delays_writes = true;
};

class FakeVerbs {
 public:
  explicit FakeVerbs(const FakeVerbsOptions& options = {});
  ~FakeVerbs();
  FakeVerbs(const FakeVerbs&) = delete;
  FakeVerbs& operator=(const FakeVerbs&) = delete;

  const loaded::Verbs& table() const;

  // What was made and not destroyed: "2 queue pairs, 1 region"; empty if nothing is.
  std::string live() const;
  // How often a function of that name was called; the k-th call from now on (1: the next) fails.
  int calls(std::string_view member) const;
  void fail_call(std::string_view member, int k);
  // The k-th completion from now on tells of that failure, and its queue pair is in error.
  void fail_completion(ibv_wc_status status, int k);
  // How many completions were made, and how often a sender found no receive request.
  int completions() const;
  int unexpected() const;
  // Payload that left by a device.
  std::uint64_t bytes_by(std::string_view device) const;
  // Of it, what NICs read from registered memory that begins there, and what they wrote there.
  std::uint64_t bytes_from(const void* registered) const;
  std::uint64_t bytes_into(const void* registered) const;

  // From now on. Dmabufs are known without it.
  void know_gpus(const FakeGpuMemory& gpus);
  // Bytes that NICs have written to GPUs, and that are on their way.
  std::uint64_t bytes_on_way_to_gpus() const;
  // The library is older than dmabufs: tables that are taken from now on.
  void forget_dmabufs();

  // The memory that is registered now.
  std::vector<MemoryRange> registered() const;

  // A port's state; its packets are lost while it is not active.
  void set_port(std::string_view device, int number, ibv_port_state state);
  // What comes for a device is acknowledged and written, but its completions are late: they cannot
  // be polled until they are shown, or for a while after their queue pair is put into the error
  // state.
  void hold_arrivals(std::string_view device);
  void show_arrivals(std::string_view device);
  // Of what has come, the last alone.
  void hold_last_arrival(std::string_view device);
  // Done once, before a queue pair is put into the error state. For one thread.
  void at_stop(std::function<void()> act);
  // No queue pair of the device finds a way to a peer.
  void cut_route(std::string_view device);
  // The device says that it has failed, and goes on.
  void fail_device(std::string_view device);
  // Requests that wait because of lost packets fail, as after the last retry.
  void give_up();
  // Every queue pair that is there is put into the error state.
  void break_pairs();
  // Every completion queue that is there overflows.
  void overrun_queues();
  // No key of memory that is registered now lets a peer write any more.
  void revoke_keys();

  struct State;

 private:
  std::unique_ptr<State> state_;
};

// The functions of the table, but those that free lists and acknowledge: they cannot fail. And
// "descriptor": that of a context or a channel is none.
const std::vector<std::string_view>& fallible_verbs();

// "fake0" with the address 10.0.0.1, and so on.
inline FakeVerbsOptions many_nics(int count) {
  FakeVerbsOptions machine{.devices = {}};
  for (int i = 0; i < count; ++i)
    machine.devices.push_back({.name = "fake" + std::to_string(i),
                               .ports = {{.gids = {"10.0.0." + std::to_string(i + 1)}}}});
  return machine;
}
inline FakeVerbsOptions two_nics() { return many_nics(2); }

}  // namespace gyre::tests
