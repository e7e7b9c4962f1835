// HostBackend: calls on host memory, with links to the peers and a Launch that moves messages over
// them. A communicator on a GPU has one too, for its splits and for calls that go through the host.
#pragma once

#include "lib/call/binding.h"
#include "lib/comm/backend.h"
#include "lib/comm/gpu_nics.h"
#include "lib/comm/plan_chooser.h"
#include "lib/comm/rank_layout.h"
#include "lib/comm/repeatable_calls.h"
#include "lib/links/links.h"
#include "lib/sendrecv/host_exchange.h"
#include <gyre/gyre.h>

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gyre::comm {

class HostBackend final : public Backend {
 public:
  static Result<std::unique_ptr<HostBackend>> make(CommunicatorState& state,
                                                   const Services& services,
                                                   control::ControlPlane& plane,
                                                   const trust::UniqueId& id);

  // The same with what a backend on a GPU says of its device and its machine. An error:
  // GYRE_TOPO_FILE.
  Result<control::MessageBytes> join_info(const std::string& device,
                                          const std::string& machine) const;
  const RankLayout& layout() const { return layout_; }                       // once it has settled
  const std::vector<tune::Level>& levels() const { return tuning_.levels; }  // once it has settled
  PlanChooser& plans() { return plans_; }
  Links& links() { return *links_; }
  const std::shared_ptr<transport::LastingMemory>& lasting() const { return lasting_; }
  // Null if the rank uses no GPU.
  const std::shared_ptr<GpuNics>& gpu_nics() const { return gpu_nics_; }

  Result<control::MessageBytes> join_info() override { return join_info({}, {}); }
  Result<bool> settle() override;
  int awaited_rank() const override { return -1; }
  void leave() override {}
  void abort() override {}

  Status check_memory(std::string_view name, const void* buffer,
                      std::uint64_t bytes) const override;
  Result<bool> take_stream(const void*, exec::StreamState&) const override { return false; }
  Status fetch(void* value, const void* from, std::uint64_t bytes) const override;
  bool has_tags() const override { return true; }
  bool runs_side_by_side() const override { return true; }
  std::byte* barrier_byte() override { return &barrier_byte_; }
  int ordinal() const override { return GYRE_DEVICE_HOST; }
  Result<std::uint64_t> register_buffer(const void* buffer, std::uint64_t bytes) override;
  Status deregister_buffer(std::uint64_t handle) override;

  Backend& on_host() override { return *this; }
  bool is_bound(const Request& request, const CallRecord& record) override;
  Status choose(const Request& request) override;
  const tune::Choice& choice() const override { return current_->chosen.choice; }
  std::span<const plan::Plan> chosen_plans() const override { return current_->chosen.by_channel; }
  bool is_open() const override { return current_->plan->is_open; }
  Status begin_opening() override;
  Result<bool> open(bool& moved) override;
  Status bind(const Request& request, const CallRecord& record) override;
  State begin(const Request& request, std::uint64_t sequence, bool more) override;
  State advance() override {
    const State state = launch_.advance();
    if (state != State::done) return state;
    current_->call.pace->end_call();
    close();
    return state;
  }
  exec::ShortRun* short_run() override {
    exec::ShortRun* const run = current_->call.short_run;
    return run != nullptr && run->is_whole() ? run : nullptr;
  }
  RepeatableCalls* repeatable_calls() override { return &repeatable_; }
  RepeatableCall* repeatable_place() override {
    return short_run() != nullptr ? &repeatable_.at(place_of(*current_)) : nullptr;
  }
  void take_over(const Request& request, std::uint64_t sequence) override;
  Status error() const override { return launch_.error(); }
  exec::Launch::RecallResult recall() override { return launch_.recall(); }
  bool withdraw(int by) override;
  void close() override {
    if (current_->call.output_place.region != transport::region_staged) end_loan();
  }

  Blocked blocked() const override { return is_running_ ? launch_.blocked() : links_->blocked(); }
  bool waits_on_memory() const override { return !is_running_ || launch_.waits_on_memory(); }
  bool may_finish_after_failure() const override { return true; }
  Status look_at_peers(std::int64_t now_ns, std::int64_t limit_ns) override;
  bool arm(WaitSet& set) override { return is_running_ ? launch_.arm(set) : links_->arm(set); }
  void disarm() override { is_running_ ? launch_.disarm() : links_->disarm(); }

  Exchange& exchange() override { return *exchange_; }
  HostExchange* host_exchange() override;
  std::vector<PeerPath> peer_paths() const override;
  bool has_given_up() const override { return false; }
  void await_kernels() override {}

 private:
  HostBackend(CommunicatorState& state, const Services& services, tune::Allowed allowed);
  transport::FifoShape fifo_shape() const;
  void settle_shape();
  std::uint64_t ranks_per_processor() const;
  bool yields_reach_all() const;
  Result<topology::Locality> own_locality() const;
  void log_candidates() const;
  void end_loan();
  void prepare(const Request& request, std::uint64_t sequence);

  // A plan with its links, kept for good.
  struct CachedPlan {
    bool is_open = false;
    exec::BoundPlan bound;
  };
  // A kind of call with its plan. It stays where it is, as launches refer to it.
  struct BoundCall {
    PlanChooser::PlanChoice chosen;
    CachedPlan* plan = nullptr;  // of the chosen one
    Binding binding;
    exec::Call call;     // bound with it
    exec::ShortRun run;  // bound with it, where that may carry it out
    std::vector<std::byte> scratch;
    CallRecord made_for;          // sequence 0: for nothing that may come again
    std::uint64_t signature = 0;  // without the history
    bool copies = false;          // receivers, from where the root's input lies
  };
  transport::RegionPlace place_of_input(const BoundCall& bound) const;
  std::size_t place_of(const BoundCall& one) const {
    return static_cast<std::size_t>(&one - bound_calls_.data());
  }
  BoundCall& oldest();
  static void bind_run(BoundCall& bound, bool comes_again);

  CommunicatorState& state_;
  const Services& services_;
  transport::RegionTable& regions_;
  const std::shared_ptr<transport::LastingMemory> lasting_;  // transports watch it
  std::shared_ptr<GpuNics> gpu_nics_;                        // transports ask it
  HostMachine& machine_;
  TransportList transports_;
  RankLayout layout_;  // once all have joined
  PlanChooser plans_;
  tune::TuningInputs tuning_;
  std::unique_ptr<Links> links_;  // with the next, once all have joined
  std::unique_ptr<HostExchange> exchange_;
  std::map<const plan::Plan*, CachedPlan> prepared_;
  std::array<BoundCall, RepeatableCalls::max_kinds> bound_calls_;
  BoundCall* current_ = &bound_calls_[0];
  RepeatableCalls repeatable_;  // at the same places
  exec::Launch launch_;
  std::array<std::array<exec::OutputPaces, 2>, plan::collective_count> paces_;  // 1: in place
  bool is_one_process_ = false;    // all ranks are of this one
  bool may_copy_ = false;          // peers, from what callers lend
  bool is_running_ = false;        // the launch; else links open
  bool has_told_refusal_ = false;  // of pages that cannot be withdrawn now
  std::byte barrier_byte_{};
};

}  // namespace gyre::comm
