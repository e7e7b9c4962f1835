#include "lib/comm/device_backend.h"

#include "lib/base/wait.h"
#include "lib/device/device_memory.h"
#include "lib/device/device_streams.h"
#include "lib/loaded/cuda_rest.h"

#include <algorithm>

namespace gyre::comm {
namespace {

// Watches that sleep look within 100 ms.
constexpr std::int64_t max_departure_ns = ns_per_s;

}  // namespace

DeviceBackend::DeviceBackend(CommunicatorState& state, const DeviceServices& services,
                             trust::TicketBook& tickets, const std::string& communicator,
                             std::unique_ptr<HostBackend> host)
    : state_(state),
      services_(services),
      tickets_(tickets),
      device_(*state.options.device),
      host_(std::move(host)),
      claimed_(services.holdings.claim(device_.uuid(), communicator, device_.max_blocks(),
                                       estimate_holding)) {}

void DeviceBackend::leave() {
  if (resources_ == nullptr) return;
  services_.watch.remove(*this);
  resources_->leave(state_.broken().ok() && !state_.membership->failed());
  p2p::LentMemory lent = resources_->links().take_lent();
  resources_.reset();
  services_.watch.keep(std::move(lent));
  device_.driver().rest->settle();
}

void DeviceBackend::abort() {
  if (DeviceResources* const ready = resources_ready_.load(std::memory_order_acquire))
    ready->abort();
}

bool DeviceBackend::has_given_up() const {
  DeviceResources* const ready = resources_ready_.load(std::memory_order_acquire);
  return ready != nullptr && ready->executor().has_given_up();
}

void DeviceBackend::await_kernels() {
  if (resources_ != nullptr) (void)resources_->settle(INT64_MAX / 2);
}

// ------------------------------------------------------------------------------ arguments

Status DeviceBackend::check_memory(std::string_view name, const void* buffer,
                                   std::uint64_t bytes) const {
  GYRE_ASSIGN(const loaded::CudaPointer where, check_device_memory(device_, name, buffer, bytes));
  if (bytes == 0 || !lends_registered_.load(std::memory_order_relaxed)) return {};
  std::shared_ptr<DeviceRegions> regions;
  {
    const std::lock_guard lock(mutex_);
    regions = regions_ready_;
  }
  return regions->check(name, buffer, where);
}

Result<bool> DeviceBackend::take_stream(const void* stream, exec::StreamState& asked) const {
  if (services_.is_host_stream(stream))
    return invalid_argument(
        "a host stream (gyreStreamCreate) was given to a communicator of a CUDA "
        "device: it takes a cudaStream_t");
  GYRE_ASSIGN(asked, check_device_stream(device_, stream));
  GYRE_TRY(check_turn(asked));
  return true;
}

// Refuses what would hang (lib/device/device_streams.h). A call counts from here on, as two ranks
// may be asking at one time.
Status DeviceBackend::check_turn(const exec::StreamState& stream) const {
  if (stream.stream == loaded::cu::thread_stream && !state_.options.blocking)
    return invalid_argument(
        "cudaStreamPerThread was given to a non-blocking communicator: a thread of Gyre launches "
        "its kernels, and there cudaStreamPerThread is another stream. Give it a stream that "
        "cudaStreamCreate made");
  if (!shares_gpu_.load(std::memory_order_relaxed)) return {};
  const DeviceResources* const ready = resources_ready_.load(std::memory_order_acquire);
  if (ready == nullptr) return {};
  GYRE_ASSIGN(DeviceStreamUse use, ask_stream(device_.driver(), stream));
  use.is_running = [executor = ready->weak_executor()](std::shared_ptr<const void>& held) {
    const auto alive = executor.lock();
    held = alive;
    return alive != nullptr && alive->is_running();
  };
  return claimed_.claim->use_stream(state_.rank, std::move(use));
}

Status DeviceBackend::fetch(void* value, const void* from, std::uint64_t bytes) const {
  GYRE_TRY(check_memory("scalar", from, bytes));
  return device_.download(value, static_cast<const std::byte*>(from), bytes);
}

// ------------------------------------------------------------------------------ registered buffers

Result<std::uint64_t> DeviceBackend::register_buffer(const void* buffer, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  RegisteredBuffer made{.buffer = buffer, .bytes = bytes};
  GYRE_TRY(meet_buffer(made));
  registered_[++registrations_] = std::move(made);
  return registrations_;
}

// mutex_ is held. Before the ranks have joined, it is only kept.
Status DeviceBackend::meet_buffer(RegisteredBuffer& registered) {
  if (regions_ready_ == nullptr) return {};
  GYRE_ASSIGN(registered.lent, regions_ready_->enlist(registered.buffer, registered.bytes));
  // The word that tells other threads of it is under the lock that they take next.
  if (registered.lent != nullptr) lends_registered_.store(true, std::memory_order_relaxed);
  services_.watch.launched();
  return {};
}

Status DeviceBackend::deregister_buffer(std::uint64_t handle) {
  std::shared_ptr<RegisteredMemory> lent;
  std::shared_ptr<DeviceRegions> regions;
  {
    const std::lock_guard lock(mutex_);
    const auto found = registered_.find(handle);
    if (found == registered_.end()) return not_registered(handle);
    lent = found->second.lent;
    regions = regions_ready_;
    if (lent != nullptr && !std::exchange(found->second.is_delisted, true)) regions->delist(*lent);
  }
  if (lent != nullptr) GYRE_TRY(await_departure(*regions, *lent));
  const std::lock_guard lock(mutex_);
  registered_.erase(handle);
  return {};
}

// Peers let go of it by their watches, when their kernels rest; those may wait for the very call
// that this rank makes next, so that it cannot wait for long.
Status DeviceBackend::await_departure(DeviceRegions& regions, RegisteredMemory& memory) {
  Departure seen;
  const auto is_settled = [&] {
    services_.watch.launched();  // which reads what peers say of it
    seen = regions.departure(memory);
    return seen.over || !seen.keepers.empty() || !state_.broken().ok();
  };
  (void)look_until(system_clock, without_bell, max_departure_ns, is_settled);
  if (seen.over) return {};
  return why_not_free(memory.bytes, seen, state_.broken(), state_.rank);
}

// ------------------------------------------------------------------------------ a collective

// Calls on the host are not counted here, but messages tell of them.
bool DeviceBackend::is_bound(const Request& request, const CallRecord& record) {
  return bound_for_.sequence != 0 && request.tables == nullptr && bound_for_.agrees_with(record) &&
         bound_history_ == history();
}

// Calls that are kept for this one go without it, if it cannot follow at once: peers may wait for
// them first.
Status DeviceBackend::choose(const Request& request) {
  bound_for_ = {};
  is_launching_ = false;
  Status chosen = choose_plan(request);
  if (chosen.ok() && current_ != nullptr) return chosen;
  GYRE_TRY(resources_->launch_pending());
  services_.watch.launched();
  return chosen;
}

Status DeviceBackend::choose_plan(const Request& request) {
  GYRE_ASSIGN(chosen_, host_->plans().choose(request, resources_->tuning()));
  if (!resources_->fits(*chosen_.plan, chosen_.choice.protocol))
    chosen_.choice.protocol = plan::without_lines(chosen_.choice.protocol);
  const auto known = prepared_.find(chosen_.plan);
  current_ = known != prepared_.end() ? known->second : nullptr;
  return {};
}

Status DeviceBackend::bind(const Request& request, const CallRecord& record) {
  if (current_ == nullptr) {
    GYRE_ASSIGN(current_, resources_->bind_plan(chosen_.by_channel));
    prepared_[chosen_.plan] = current_;
  }
  bound_history_ = history();
  GYRE_TRY(resources_->bind(request, chosen_.by_channel, chosen_.choice, chosen_.bytes,
                            with_own_number(request, bound_history_, record.sequence)));
  bound_for_ = record;
  if (request.tables != nullptr) bound_for_.sequence = 0;
  return {};
}

Backend::State DeviceBackend::begin(const Request& request, std::uint64_t, bool more) {
  request_ = &request;
  more_follow_ = more;
  is_launching_ = true;
  return advance();
}

// The call is done when it is on its stream; it may have to wait for room there.
Backend::State DeviceBackend::advance() {
  auto launched = resources_->launch(*request_, *current_, more_follow_);
  if (!launched.ok()) {
    error_ = std::move(launched).status();
    return State::failed;
  }
  if (!*launched) return State::blocked;
  note_launch();
  return State::done;
}

Blocked DeviceBackend::blocked() const {
  if (is_launching_) return {BlockedOn::kernel, -1, 0, 0};
  return resources_->links().blocked();
}

bool DeviceBackend::arm(WaitSet& set) {
  auto& word = state_.membership->changed();
  set.add_futex(&word, word.load(std::memory_order_acquire));
  return true;
}

// Whoever looks after kernels begins.
void DeviceBackend::note_launch() {
  resources_->note_launch();
  if (shares_gpu_.load(std::memory_order_relaxed)) claimed_.claim->note_launch(state_.rank);
  services_.watch.launched();
}

}  // namespace gyre::comm
