#include "lib/comm/process.h"

#include "lib/base/clock.h"
#include "lib/base/forks.h"
#include "lib/base/log.h"
#include "lib/base/state_page_reader.h"
#include "lib/call/version.h"
#include "lib/comm/metrics.h"
#include "lib/loaded/cuda_rest.h"
#include "lib/rendezvous/rendezvous.h"

#include <chrono>
#include <cstdlib>
#include <pthread.h>
#include <sys/random.h>
#include <thread>

namespace gyre::comm {

namespace process_state {
constinit std::atomic<Process*> current{nullptr};
}
using process_state::current;

namespace {

constexpr std::uint8_t communicator_kind = 0xC1;
constexpr std::uint8_t stream_kind = 0xC2;

// Handles of another process, or of this one before a fork, should not happen to be valid here.
std::uint32_t random_generation() {
  std::uint32_t value = 1;
  if (getrandom(&value, sizeof value, GRND_NONBLOCK) != sizeof value) value = 1;
  return value;
}

std::mutex making;
Process* before_fork = nullptr;  // in a child

LogLevel level_of(const std::string& word) {
  if (word == "NONE") return LogLevel::none;
  if (word == "VERSION") return LogLevel::version;
  if (word == "INFO") return LogLevel::info;
  return word == "TRACE" ? LogLevel::trace : LogLevel::warn;
}

void tell_version(const std::string& text) {
  if (log_level() != LogLevel::warn && log_level() != LogLevel::none)
    write_log(LogLevel::version, {}, text);
}

// At exit() other threads may hold on to what is waited for: so long each time.
constexpr std::int64_t patience_ns = 200 * ns_per_ms;

// A driver of which this process keeps count.
std::unique_ptr<const loaded::CudaDriver> counting(
    std::unique_ptr<const loaded::CudaDriver> driver) {
  auto made = std::make_unique<loaded::CudaDriver>(*driver);
  made->rest = std::make_shared<loaded::CudaRest>();
  return made;
}

void close_at_exit() {
  Process* here = current.load(std::memory_order_acquire);
  if (here != nullptr) here->say_farewell();
}

// The child has none of the threads and must not touch the parent's connections: not by a group
// that the thread had opened either, whose calls are dropped with all that they hold.
void forget_in_child() {
  if (Process* here = current.exchange(nullptr); here != nullptr) before_fork = here;
  CallerState& state = caller();
  state.group_depth = 0;
  state.short_group.count = 0;
  if (!state.group.empty()) new std::vector<GroupedCall>(std::move(state.group));
  state.group_error = {};
  forget_logged_ranks();
  making.unlock();
}

}  // namespace

Process::Process(Process* before_fork)
    : communicators(communicator_kind, random_generation()),
      streams(stream_kind, random_generation()),
      before_fork_(before_fork),
      device_services{
          device_holdings,
          device_memory,
          device_progress,
          device_watch,
          machine,
          ring_searches,
          [this] { return nvml(); },
          [this](int ordinal) { return cuda_device(ordinal); },
          [this](const void* stream) {
            return static_cast<bool>(streams.pin(reinterpret_cast<std::uintptr_t>(stream)));
          }},
      services{regions, ends_, machine, verbs, ucp, device_services, [this] {
                 const auto driver = cuda_driver(loaded::CudaPresence::only_if_loaded);
                 return driver.ok() ? *driver : nullptr;
               }} {}

bool Process::was_known_before_fork(std::uint64_t handle) {
  for (Process* one = before_fork_; one != nullptr; one = one->before_fork_)
    if (one->communicators.knows(handle) || one->streams.knows(handle)) return true;
  return false;
}

// Streams first: what they do needs the others.
void Process::say_farewell() {
  ends_.store(true, std::memory_order_relaxed);
  worker.end(patience_ns);
  device_watch.end(patience_ns);
  device_progress.end(patience_ns);
  // Not by a std::timed_mutex, whose waits GCC 12's thread sanitizer does not see.
  std::unique_lock lock(mutex_, std::try_to_lock);
  for (std::int64_t waited_ms = 0; !lock.owns_lock() && waited_ms < patience_ns / ns_per_ms;
       ++waited_ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    (void)lock.try_lock();  // owns_lock() says
  }
  if (lock.owns_lock() && cuda_ != nullptr) cuda_->rest->end(patience_ns);
  if (lock.owns_lock() && plane_ != nullptr) plane_->close();
  launcher.finish();
}

Status Process::begin_log(const Settings& settings) {
  const std::lock_guard lock(mutex_);
  if (logs_) return {};
  GYRE_ASSIGN(const SubsystemMask subsystems, parse_subsystems(settings.debug_subsystems));
  GYRE_TRY(configure_log(level_of(settings.debug), settings.debug_file, subsystems));
  logs_ = true;
  tell_version(fmt::format("Gyre {}", version_text()));
  for (const auto& [name, value] : given_settings())
    log_info(Subsystem::env, "{} is \"{}\"", name, printable(value));
  if (!communicators.has_process_fence())
    log_info(Subsystem::init, "the kernel refuses membarrier: small calls take some 10 ns longer");
  return {};
}

Status Process::open_plane(const Settings& settings) {
  GYRE_ASSIGN(plane_, control::ControlPlane::start(settings));
  // Only now: what is hooked later runs earlier, and OpenSSL, which starting the plane has begun
  // to use at the latest, tears itself down at exit as well.
  static const int hooked = std::atexit(close_at_exit);
  if (hooked != 0)
    log_warn("atexit failed: the other ranks will not be told that this process ends");
  return {};
}

// One listener for the process: a wish for a second one would have to be passed over in silence.
Status Process::serve_metrics(const Settings& settings) {
  if (settings.metrics.empty() || settings.metrics == metrics_) return {};
  if (!metrics_.empty())
    return invalid_usage(fmt::format(
        "GYRE_METRICS=\"{}\" comes too late: this process serves metrics at \"{}\" already",
        settings.metrics, metrics_));
  // Processes of a host that nobody counted are told apart by nothing: the second one is refused.
  std::vector<std::string> contradictions;  // gyreCommInitEnv tells them
  const auto place =
      rendezvous::read_launch_place(settings, rendezvous::process_environment(), &contradictions);
  int local_rank = static_cast<int>(settings.local_rank);
  if (local_rank < 0 && place.ok()) local_rank = place->local_rank;
  GYRE_TRY(plane_->serve_metrics(settings.metrics, local_rank, [this] {
    return metrics_text(version_text(), read_heads(state_page), SystemClock::read());
  }));
  metrics_ = settings.metrics;
  return {};
}

Result<const loaded::CudaDriver*> Process::cuda_driver(loaded::CudaPresence presence) {
  const std::lock_guard lock(mutex_);
  if (cuda_ == nullptr) {
    GYRE_ASSIGN(auto driver, loaded::load_cuda(presence));
    cuda_ = counting(std::move(driver));
    tell_version("NVIDIA driver of " + loaded::cuda_version_shown(*cuda_));
  }
  return cuda_.get();
}

Result<const loaded::Nvml*> Process::nvml() {
  const std::lock_guard lock(mutex_);
  if (!nvml_) nvml_ = loaded::load_nvml();
  if (!nvml_->ok()) return nvml_->status();
  return (*nvml_)->get();
}

Result<std::shared_ptr<const exec::CudaDevice>> Process::cuda_device(int ordinal) {
  GYRE_ASSIGN(const loaded::CudaDriver* driver, cuda_driver(loaded::CudaPresence::wanted));
  if (auto known = known_device(ordinal)) return known;
  // Before the lock, which whoever is in a rest may take. The end of one that does not open is in
  // it, too.
  const loaded::CudaRest::Stillness still = loaded::await_rest(*driver);
  const std::lock_guard lock(mutex_);
  if (images_.empty()) GYRE_TRY(cuda::why_no_images());
  auto& device = cuda_devices_[ordinal];
  if (device == nullptr) {
    auto opened = exec::CudaDevice::open(*driver, ordinal, images_);
    if (!opened.ok()) {
      cuda_devices_.erase(ordinal);
      return std::move(opened).status();
    }
    device = std::move(opened).value();
  }
  return device;
}

std::shared_ptr<const exec::CudaDevice> Process::known_device(int ordinal) {
  const std::lock_guard lock(mutex_);
  const auto found = cuda_devices_.find(ordinal);
  return found != cuda_devices_.end() ? found->second : nullptr;
}

int Process::default_device(Status* why) {
  if (images_.empty()) {
    if (why != nullptr) *why = cuda::why_no_images();
    return GYRE_DEVICE_HOST;
  }
  const auto driver = cuda_driver(loaded::CudaPresence::wanted);
  loaded::CuDevice ordinal = 0;  // CUDA's own default
  Status usable = driver.status();
  if (usable.ok()) usable = exec::check_images(**driver, images_);
  if (usable.ok()) {
    (void)(*driver)->current_device(&ordinal);
    usable = exec::check_device(**driver, ordinal, images_);
  }
  if (usable.ok()) return ordinal;
  if (why != nullptr) *why = usable;
  return GYRE_DEVICE_HOST;
}

void Process::use_cuda(std::unique_ptr<const loaded::CudaDriver> driver,
                       std::span<const cuda::KernelImage> images) {
  constexpr std::int64_t peers_end_ns = 10 * ns_per_s;
  device_watch.let_go(peers_end_ns);
  device_memory.clear();
  const std::lock_guard lock(mutex_);
  if (cuda_ != nullptr) cuda_->rest->finish();
  cuda_devices_.clear();
  cuda_ = driver != nullptr ? counting(std::move(driver)) : nullptr;
  images_ = cuda_ != nullptr ? images : cuda::built_in_images();
}

void Process::use_nvml(std::unique_ptr<const loaded::Nvml> nvml) {
  machine.forget();
  const std::lock_guard lock(mutex_);
  if (nvml != nullptr)
    nvml_ = std::move(nvml);
  else
    nvml_ = invalid_usage("there is none");
}

Result<GroupedCall> Process::adopt(std::unique_ptr<Communicator> made) {
  GroupedCall call;
  std::uint64_t background = 0;
  if (!made->options().blocking) {
    background = streams.insert(std::make_unique<HostStream>());
    if (background == 0) return Status(Code::SystemError, "there are 2^20 host streams already");
    made->set_background_stream(background);
    call.stream = streams.pin(background);
    call.background = true;
  }
  Communicator& communicator = *made;
  const std::uint64_t handle = communicators.insert(std::move(made));
  if (handle == 0) {
    streams.remove(background);
    return Status(Code::SystemError, "there are 2^20 communicators already");
  }
  communicator.set_handle(handle, communicators);
  call.communicator = communicators.pin(handle);
  return call;
}

Result<control::ControlPlane*> Process::plane(const Settings& settings) {
  const std::lock_guard lock(mutex_);
  if (plane_ == nullptr) GYRE_TRY(open_plane(settings));
  GYRE_TRY(serve_metrics(settings));
  return plane_.get();
}

Process& make_process() {
  const std::lock_guard lock(making);
  Process* known = known_process();
  if (known != nullptr) return *known;
  (void)fork_count();  // from here on
  static const bool hooked =
      pthread_atfork([] { making.lock(); }, [] { making.unlock(); }, forget_in_child) == 0;
  if (!hooked) log_warn("pthread_atfork failed: a forked child must not use Gyre");
  known = new Process(before_fork);
  current.store(known, std::memory_order_release);
  return *known;
}

}  // namespace gyre::comm
