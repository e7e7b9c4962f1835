// DeviceBackend: turns calls on a GPU's memory into kernels on the caller's streams
// (DeviceResources). The watch (lib/device/device_watch.h) observes the kernels, and this class
// turns its findings into errors. Calls that go through the host, such as a split, belong to the
// HostBackend.
//
//   device_backend.cc    calls
//   device_settling.cc   the ranks' exchange of facts about their GPUs, and what follows from it
//   device_rings.cc      the rings that its channels take
//   device_looking.cc    the watch's findings
#pragma once

#include "lib/comm/communicator_state.h"
#include "lib/comm/device_services.h"
#include "lib/comm/host_backend.h"
#include "lib/comm/machine_exchange.h"
#include "lib/comm/suspicion.h"
#include "lib/device/device_resources.h"

#include <span>
#include <vector>

namespace gyre::comm {

class DeviceBackend final : public Backend, public Watched {
 public:
  DeviceBackend(CommunicatorState& state, const DeviceServices& services,
                trust::TicketBook& tickets, const std::string& communicator,
                std::unique_ptr<HostBackend> host);

  // Null before all have joined.
  DeviceResources* resources() const { return resources_.get(); }

  Result<control::MessageBytes> join_info() override;
  Result<bool> settle() override;
  void leave() override;
  void abort() override;

  Status check_memory(std::string_view name, const void* buffer,
                      std::uint64_t bytes) const override;
  Result<bool> take_stream(const void* stream, exec::StreamState& asked) const override;
  Status fetch(void* value, const void* from, std::uint64_t bytes) const override;
  bool has_tags() const override { return false; }
  // Both are kernels, of which one would wait for the other.
  bool runs_side_by_side() const override { return false; }
  std::byte* barrier_byte() override { return resources_->barrier_byte(); }
  int ordinal() const override { return device_.ordinal(); }
  Result<std::uint64_t> register_buffer(const void* buffer, std::uint64_t bytes) override;
  Status deregister_buffer(std::uint64_t handle) override;

  Backend& on_host() override { return *host_; }
  bool is_bound(const Request& request, const CallRecord& record) override;
  Status choose(const Request& request) override;
  const tune::Choice& choice() const override { return chosen_.choice; }
  std::span<const plan::Plan> chosen_plans() const override { return chosen_.by_channel; }
  bool is_open() const override { return current_ != nullptr; }
  Status begin_opening() override { return resources_->links().open(chosen_.by_channel); }
  Result<bool> open(bool& moved) override { return resources_->links().advance(moved); }
  Status bind(const Request& request, const CallRecord& record) override;
  State begin(const Request& request, std::uint64_t sequence, bool more) override;
  State advance() override;
  Status error() const override { return error_; }
  // Aborted kernels write no more; what peers see of a caller's buffer, they opened for good.
  exec::Launch::RecallResult recall() override { return {}; }
  bool withdraw(int) override { return false; }
  void close() override {}

  Blocked blocked() const override;
  bool waits_on_memory() const override { return !is_launching_; }
  bool may_finish_after_failure() const override { return false; }
  // Its waits are kernels'.
  Status look_at_peers(std::int64_t, std::int64_t) override { return {}; }
  bool arm(WaitSet& set) override;
  void disarm() override {}

  Exchange& exchange() override { return *exchange_; }
  std::vector<PeerPath> peer_paths() const override { return host_->peer_paths(); }
  int awaited_rank() const override {
    return machines_ != nullptr ? machines_->awaited_rank() : -1;
  }
  bool has_given_up() const override;
  void await_kernels() override;

 private:
  // Of the watch.
  bool look() override;
  std::shared_ptr<DeviceRegions> regions() const override { return resources_->regions(); }
  std::shared_ptr<PeerPools> pools() const override { return resources_->links().pools(); }
  void watch_kernel(const DeviceResources::KernelStatus& seen, std::int64_t now_ns);

  Status settle_now();
  Result<std::string> note_machine(const loaded::Nvml* nvml);
  Status ask_for_machines();
  Result<bool> follow_rings();
  void follow_ports(PortsByPeer ports);
  Result<std::vector<GpuInfo>> device_notes() const;
  std::vector<p2p::Gpu> find_gpus(const std::vector<GpuInfo>& notes) const;
  std::vector<p2p::PairRoute> find_ways(const std::vector<p2p::Gpu>& gpus) const;
  void reach_siblings(const std::vector<p2p::PairRoute>& ways,
                      const std::vector<p2p::Gpu>& gpus) const;
  Status hold_share(const std::vector<GpuInfo>& notes, const DeviceShare& share);
  DeviceEnvironment surroundings(const std::vector<p2p::Gpu>& gpus,
                                 std::vector<p2p::PairRoute> ways, const DeviceDemand& demand);

  Status choose_plan(const Request& request);
  Status check_turn(const exec::StreamState& stream) const;
  void note_launch();
  // What the caller registered.
  struct RegisteredBuffer {
    const void* buffer = nullptr;
    std::uint64_t bytes = 0;
    std::shared_ptr<RegisteredMemory> lent = nullptr;  // null: nobody else has it open
    bool is_delisted = false;
  };
  Status meet_buffer(RegisteredBuffer& registered);
  Status await_departure(DeviceRegions& regions, RegisteredMemory& memory);
  std::uint64_t history() const {
    return state_.call_history != nullptr ? state_.call_history->hash() : 0;
  }

  CommunicatorState& state_;
  const DeviceServices& services_;
  trust::TicketBook& tickets_;
  const exec::CudaDevice& device_;
  const std::unique_ptr<HostBackend> host_;
  const DeviceHoldings::ClaimResult claimed_;
  std::unique_ptr<DeviceResources> resources_;
  std::unique_ptr<Exchange> exchange_;
  std::optional<OutlinedMachine> machine_;     // this host's, if it is known
  std::unique_ptr<MachineExchange> machines_;  // until rings are found, or not
  bool has_asked_ = false, is_settled_ = false;
  std::int64_t rest_until_ns_ = 0;  // so long it waits for kernels of this process to end

  std::map<const plan::Plan*, const exec::DevicePlan*> prepared_;
  PlanChooser::PlanChoice chosen_;
  const exec::DevicePlan* current_ = nullptr;  // of the chosen plan; null: its links are not open
  CallRecord bound_for_;                       // sequence 0: for nothing that may come again
  std::uint64_t bound_history_ = 0;
  const Request* request_ = nullptr;
  bool more_follow_ = false;
  bool is_launching_ = false;
  Status error_;

  // The watch's.
  Suspicion suspicion_;
  std::int64_t asked_ns_ = 0;  // or since when kernels run
  std::int64_t begun_ns_ = 0;  // when a kernel began last, or the first was launched
  std::uint32_t starts_ = 0;

  // Once it has links. Without a lock: an abort has to get there while the driver keeps others.
  std::atomic<DeviceResources*> resources_ready_{nullptr};
  std::atomic<bool> shares_gpu_{false};        // with another rank of it, in this process
  std::atomic<bool> lends_registered_{false};  // ever since some of it may be lent
  mutable std::mutex mutex_;                   // of what follows
  std::map<std::uint64_t, RegisteredBuffer> registered_;
  std::uint64_t registrations_ = 0;
  std::shared_ptr<DeviceRegions> regions_ready_;  // with ranks in other processes
};

}  // namespace gyre::comm
