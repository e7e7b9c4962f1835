// What a communicator does only on a CUDA device: it settles there, binds calls and hears from the
// watch.
#include "lib/comm/communicator.h"
#include "lib/comm/device_exchange.h"
#include "lib/comm/device_memory.h"
#include "lib/comm/joining_note.h"
#include "lib/comm/process.h"

#include <fmt/format.h>

#include <algorithm>

namespace gyre::comm {
namespace {

const SystemClock clock;

}  // namespace

std::string Communicator::device_note() const {
  if (!on_device()) return "";
  return encode(
      DeviceNote{.uuid = options_.device->uuid(),
                 .blocks = options_.device->blocks_most(),
                 .connections = device_connections(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS")),
                 .channels = options_.channels_most});
}

Status Communicator::settle_on_device() {
  const bootstrap::Roster& roster = membership_->roster();
  std::vector<DeviceNote> notes;
  for (int rank = 0; rank < size_; ++rank) {
    if (identity_of(rank).process != self_->process)
      return invalid_usage(fmt::format(
          "rank {} is in another process: this version reaches the memory of GPUs only "
          "between threads of one process; use gyreCommInitAll, or GYRE_DEVICE_HOST and "
          "host memory",
          rank));
    auto note =
        read_device_note(read_joining_note(roster.notes[static_cast<std::size_t>(rank)]).device);
    if (!note)
      return Status(Code::RemoteError,
                    fmt::format("rank {} says nothing sensible of its device", rank))
          .blame({rank});
    notes.push_back(std::move(*note));
  }
  // Between two GPUs that depends on the way, which nobody has asked for yet.
  const bool one_device = std::ranges::all_of(
      notes, [&](const DeviceNote& note) { return note.uuid == notes[0].uuid; });
  GYRE_ASSIGN(const DeviceShare share, share_devices(notes));
  GYRE_ASSIGN(device_, DeviceSide::create(
                           options_.device, share,
                           {.membership = *membership_,
                            .tickets = *tickets_,
                            .rank = rank_,
                            .size = size_,
                            .slot_bytes = static_cast<std::uint64_t>(options_.settings.slot_bytes),
                            .timeout_ns = options_.timeout_ns,
                            .reproducible = options_.reproducible,
                            .whole_lines = one_device,
                            .bury = [](std::shared_ptr<void> gone) {
                              process().device_watch.bury(std::move(gone));
                            }}));
  exchange_ = std::make_unique<DeviceExchange>(device_->links(), *membership_, device_->executor(),
                                               rank_, size_, share.blocks);
  process().device_watch.add(*this);
  return {};
}

const trust::ProcessIdentity& Communicator::identity_of(int rank) const {
  const bootstrap::Roster& roster = membership_->roster();
  return roster.processes[roster.process_of_rank[static_cast<std::size_t>(rank)]];
}

Status Communicator::check_known_memory(std::string_view name, const void* buffer,
                                        std::uint64_t bytes) const {
  return on_device() ? check_device_memory(*options_.device, name, buffer, bytes)
                     : check_host_memory(*options_.driver, name, buffer, bytes);
}

Status Communicator::check_stream(const void* stream) const {
  if (process().streams.pin(reinterpret_cast<std::uintptr_t>(stream)))
    return invalid_argument(
        "a host stream (gyreStreamCreate) was given to a communicator of a CUDA "
        "device: it takes a cudaStream_t");
  return check_device_stream(*options_.device, stream);
}

Status Communicator::bind_on_device(const Request& request, const CallRecord& record) {
  const std::uint64_t history = board_ != nullptr ? board_->history() : 0;
  GYRE_TRY(device_->bind(request, current_->plan, choice_, choice_bytes_, history));
  bound_for_ = record;
  if (request.tables != nullptr) bound_for_.sequence = 0;
  return {};
}

bool Communicator::look_at_device() {
  DeviceSide::Seen seen = device_->look();
  const std::int64_t now_ns = clock.now_ns();
  if (!seen.why.ok() && seen.asks >= 0 && board_ != nullptr) {
    ask(seen.asks);
    device_suspicion_.begin(std::move(seen.why), now_ns);
  } else if (!seen.why.ok()) {
    (void)fail(std::move(seen.why));
  }
  if (device_suspicion_.held() && device_suspicion_.ripe(now_ns)) {
    (void)fail(device_suspicion_.take());
    device_suspicion_.clear();
  }
  // A graph may bring a kernel at any time.
  if (membership_->failed()) (void)fail(membership_->failure());
  if (!broken().ok()) device_->abort();
  if (!seen.running) {
    device_asked_ns_ = device_begun_ns_ = 0;
    ledger_.end_wait(WaitLane::kernels);
    return device_suspicion_.held();
  }
  watch_kernel(seen, now_ns);
  return true;
}

// One that runs for long: what it waits for is shown, and whoever may keep it waiting is asked.
void Communicator::watch_kernel(const DeviceSide::Seen& seen, std::int64_t now_ns) {
  constexpr std::int64_t asks_after_ns = 250 * ns_per_ms;
  if (device_asked_ns_ == 0) device_asked_ns_ = now_ns;
  if (device_begun_ns_ == 0 || seen.starts != device_starts_) {
    device_starts_ = seen.starts;
    device_begun_ns_ = now_ns;
    ledger_.end_wait(WaitLane::kernels);
  }
  const std::int64_t for_ns = now_ns - device_begun_ns_;
  if (for_ns > asks_after_ns) {
    WaitRecord wait;
    wait.phase = WaitPhase::moving;
    wait.what = seen.waits.what;
    wait.peer = seen.waits.peer;
    ledger_.tell_wait(WaitLane::kernels, wait);
  }
  if (seen.waits.what == BlockedOn::stream && options_.timeout_ns > 0 &&
      for_ns > options_.timeout_ns)
    (void)fail(
        Status(Code::Timeout,
               fmt::format("a kernel of rank {} has not begun for {} s: what is before it "
                           "on its stream has not ended, or other kernels hold device {}",
                           rank_, options_.timeout_ns / ns_per_s, device_->device().ordinal()))
            .blame({rank_}));
  if (board_ == nullptr || now_ns - device_asked_ns_ < asks_after_ns) return;
  device_asked_ns_ = now_ns;
  for (int peer = 0; peer < size_; ++peer) ask(peer);
}

}  // namespace gyre::comm
