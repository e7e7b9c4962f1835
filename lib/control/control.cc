#include "lib/control/control.h"

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/recent.h"
#include "lib/control/control_listener.h"
#include "lib/control/control_thread.h"
#include "lib/control/local_member.h"
#include "lib/control/metrics_listener.h"
#include "lib/control/open_job.h"
#include "lib/trust/address.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <sys/epoll.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace gyre::control {
namespace {

// At most this long does the end of a process wait for its last words to leave.
constexpr std::int64_t farewell_ns = 200 * ns_per_ms;
// And at most this long a failed root's, for ranks that are still on their way to it.
constexpr std::int64_t latecomers_ns = 2 * ns_per_s;
// Failed jobs that a root remembers, to tell those who come late.
constexpr std::ptrdiff_t max_tombstones = 64;

// What the control thread owns.
class ControlThreadState final : private LinkTaker {
 public:
  ControlThreadState(std::shared_ptr<ControlThread> thread, std::unique_ptr<trust::Tls> tls)
      : thread_(std::move(thread)), tls_(std::move(tls)), listener_(*thread_, *tls_, tickets_) {}
  ControlThreadState(const ControlThreadState&) = delete;
  ControlThreadState& operator=(const ControlThreadState&) = delete;

  const std::shared_ptr<ControlThread>& thread() const { return thread_; }
  const trust::ProcessIdentity& self() const { return self_; }
  trust::TicketBook& tickets() { return tickets_; }

  // Any thread, first.
  Status open(const Settings& settings);
  // The control thread from here.
  Status serve();
  Result<std::vector<std::string>> listen_for(Audience audience, const Settings& settings) {
    return listener_.listen_for(audience, settings);
  }
  // The job of this key, made if it is new; `root` as for Job.
  Result<OpenJob*> job(const std::shared_ptr<const trust::SessionKey>& key,
                       std::optional<Destination> root, Audience audience,
                       const Settings& settings);
  // This process is the root of that key's job, and listens at `name` for those of this host. Anew
  // after an earlier job of that key that failed.
  Status open_named_root(const std::shared_ptr<const trust::SessionKey>& key,
                         const std::string& name);
  bool has_job(const std::string& identity) const { return jobs_.contains(identity); }
  // Whether that process is in a communicator of this one.
  bool has_met(const std::string& listener_name) const;
  // These two, of a job whose root is this process.
  Status watch(const std::string& identity, int descriptor, std::function<bool()> on_readable);
  void renounce(const std::string& identity, const Status& why);
  void end_failed_meetings();
  Status serve_metrics(std::unique_ptr<MetricsListener> listener);
  // Something went wrong on the thread: all jobs are over.
  void give_up(const Status& why);
  // The end: last words, then nothing.
  void close_jobs();
  bool flushed() const;
  bool has_unreported_failure() const;
  void clear();

 private:
  std::shared_ptr<const trust::SessionKey> find_key(const std::string& identity) override;
  ControlListener::KeyLookup named(const std::string& identity);
  void on_link(const std::string& identity, std::unique_ptr<ControlLink> link) override;
  std::int64_t tick(std::int64_t now_ns, std::int64_t overslept_ns);
  using OpenJobs = std::map<std::string, std::unique_ptr<OpenJob>>;
  void drop(OpenJobs::iterator job);
  void drop_finished();

  const std::shared_ptr<ControlThread> thread_;
  const std::unique_ptr<trust::Tls> tls_;
  trust::ProcessIdentity self_;
  trust::TicketBook tickets_;
  ControlListener listener_;
  Trunks trunks_{*thread_, *tls_, self_, *this};
  OpenJobs jobs_;                             // by the key's identity
  Recent<std::string, 64> ended_;             // identities of jobs that are over
  std::unique_ptr<MetricsListener> metrics_;  // null: nobody wished for them
};

Status ControlThreadState::open(const Settings& settings) {
  GYRE_ASSIGN(self_, trust::describe_this_process());
  GYRE_TRY(listener_.open(settings).while_doing("opening this process's listeners"));
  self_.listener_name = listener_.name();
  return {};
}

Status ControlThreadState::serve() {
  thread_->on_trouble([this](const Status& why) { give_up(why); });
  thread_->on_tick([this](std::int64_t now, std::int64_t late) { return tick(now, late); });
  return listener_.serve([this](const std::string& identity) { return named(identity); },
                         [this](std::unique_ptr<trust::SecureSession> session) {
                           trunks_.adopt(std::move(session), trust::SessionRole::server);
                         });
}

std::shared_ptr<const trust::SessionKey> ControlThreadState::find_key(const std::string& identity) {
  const auto found = jobs_.find(identity);
  return found == jobs_.end() ? nullptr : found->second->job.key();
}

ControlListener::KeyLookup ControlThreadState::named(const std::string& identity) {
  const bool was_known = jobs_.contains(identity) || ended_.contains(identity);
  return {find_key(identity), was_known};
}

void ControlThreadState::on_link(const std::string& identity, std::unique_ptr<ControlLink> link) {
  const auto found = jobs_.find(identity);
  if (found != jobs_.end()) found->second->job.admit(std::move(link));
}

bool ControlThreadState::has_met(const std::string& listener_name) const {
  return std::ranges::any_of(jobs_, [&](const auto& entry) {
    const Roster* roster = entry.second->job.roster();
    return roster != nullptr && std::ranges::any_of(roster->processes, [&](const auto& process) {
             return process.listener_name == listener_name;
           });
  });
}

Result<OpenJob*> ControlThreadState::job(const std::shared_ptr<const trust::SessionKey>& key,
                                         std::optional<Destination> root, Audience audience,
                                         const Settings& settings) {
  if (const auto found = jobs_.find(key->identity); found != jobs_.end()) {
    if (!found->second->job.is_spent()) return found->second.get();
    drop(found);
  }
  std::vector<std::string> addresses;
  if (audience == Audience::any_host) {
    auto listens = listener_.listen_for(audience, settings);
    if (!listens.ok())
      return std::move(listens).status().while_doing("opening this process's listeners");
    addresses = std::move(*listens);
  }
  auto made = std::make_unique<OpenJob>(*thread_, trunks_, self_, std::move(addresses), key,
                                        std::move(root));
  return jobs_.emplace(key->identity, std::move(made)).first->second.get();
}

Status ControlThreadState::open_named_root(const std::shared_ptr<const trust::SessionKey>& key,
                                           const std::string& name) {
  if (const auto earlier = jobs_.find(key->identity); earlier != jobs_.end()) {
    if (earlier->second->job.is_untouched()) return {};
    if (!earlier->second->job.failed())
      return invalid_usage(
          "this process takes part in a communicator with that secret already: wait until all "
          "ranks have joined it, or end it");
    jobs_.erase(earlier);  // not its name: others may be waiting there
  }
  GYRE_ASSIGN(OpenJob * open, job(key, std::nullopt, Audience::this_host, {}));
  open->root_name = name;
  Status listens = listener_.add_name(name);
  if (!listens.ok()) jobs_.erase(key->identity);
  return std::move(listens).while_doing(
      "listening where the other ranks look for rank 0 (if the address is in use: is there a "
      "second process with rank 0?)");
}

Status ControlThreadState::watch(const std::string& identity, int descriptor,
                                 std::function<bool()> on_readable) {
  const auto found = jobs_.find(identity);
  if (found == jobs_.end() || found->second->job.failed())
    return invalid_usage("the communicator of this unique id is over: make a new id");
  OpenJob* const open = found->second.get();
  // The descriptor is on_readable's, which is destroyed after its watch.
  GYRE_ASSIGN(open->watches[descriptor], thread_->watch(descriptor, EPOLLIN, [=](std::uint32_t) {
    if (!on_readable()) open->watches.erase(descriptor);
  }));
  return {};
}

void ControlThreadState::end_failed_meetings() {
  for (const auto& [identity, open] : jobs_)
    if (open->job.failed()) open->watches.clear();
}

void ControlThreadState::renounce(const std::string& identity, const Status& why) {
  const auto found = jobs_.find(identity);
  if (found == jobs_.end()) return;
  if (found->second->job.is_untouched()) found->second->job.give_up(why);
}

Status ControlThreadState::serve_metrics(std::unique_ptr<MetricsListener> listener) {
  if (metrics_ != nullptr) return internal_error("metrics are served already");
  GYRE_TRY(listener->serve());
  metrics_ = std::move(listener);
  return {};
}

// What a handler left half done is ended on this side; where not even the failure can be told, the
// connections are cut, so that the others miss this process.
void ControlThreadState::give_up(const Status& why) {
  log_warn("all communicators of this process end: {}", why.message());
  try {
    for (const auto& [identity, open] : jobs_) open->job.give_up(why);
  } catch (const std::bad_alloc&) {
    for (const auto& [identity, open] : jobs_) open->job.give_up_here(why);
    trunks_.clear();
  }
}

std::int64_t ControlThreadState::tick(std::int64_t now_ns, std::int64_t overslept_ns) {
  tell_lost_lines();
  const Status deaf = listener_.check_deaf();
  std::int64_t next = listener_.tick(now_ns);
  if (metrics_ != nullptr) next = std::min(next, metrics_->tick(now_ns));
  next = std::min(next, trunks_.tick(now_ns, overslept_ns));
  std::size_t guests = 0;
  bool expects_other_hosts = false;
  for (const auto& [identity, open] : jobs_) {
    next = std::min(next, open->job.tick(now_ns, overslept_ns));
    guests += open->job.expected_guests();
    expects_other_hosts |= open->expects_other_hosts();
  }
  if (!deaf.ok() && (guests > 0 || tickets_.are_out())) give_up(deaf);
  if (!expects_other_hosts) listener_.close_to_other_hosts();
  constexpr std::size_t min_guests = 64;
  listener_.expect(std::max(guests, min_guests));
  drop_finished();
  return next;
}

void ControlThreadState::drop(OpenJobs::iterator job) {
  if (!job->second->root_name.empty()) listener_.remove_name(job->second->root_name);
  ended_.note(job->first);
  jobs_.erase(job);
}

void ControlThreadState::drop_finished() {
  for (auto next = jobs_.begin(); next != jobs_.end();) {
    const auto job = next++;
    if (job->second->job.finished()) drop(job);
  }
  const auto is_tombstone = [](const auto& entry) { return entry.second->job.is_tombstone(); };
  const auto failed_ns_of = [](const auto& entry) {
    const Job& job = entry.second->job;
    return job.is_tombstone() ? job.failed_ns() : never_ns;
  };
  while (std::ranges::count_if(jobs_, is_tombstone) > max_tombstones)
    drop(std::ranges::min_element(jobs_, {}, failed_ns_of));
}

void ControlThreadState::close_jobs() {
  listener_.close();
  for (const auto& [identity, open] : jobs_) open->job.close();
}

bool ControlThreadState::flushed() const {
  return trunks_.flushed() && std::all_of(jobs_.begin(), jobs_.end(), [](const auto& entry) {
           return entry.second->job.flushed();
         });
}

bool ControlThreadState::has_unreported_failure() const {
  return std::any_of(jobs_.begin(), jobs_.end(),
                     [](const auto& entry) { return entry.second->job.has_unreported_failure(); });
}

void ControlThreadState::clear() {
  thread_->on_trouble(nullptr);
  thread_->on_tick(nullptr);
  jobs_.clear();
  trunks_.clear();
  metrics_.reset();
}

class Plane final : public ControlPlane {
 public:
  static Result<std::unique_ptr<Plane>> make(const Settings& settings);
  ~Plane() override { close(); }
  void close() override;

  const trust::ProcessIdentity& identity() const override { return state_->self(); }
  trust::TicketBook& tickets() override { return state_->tickets(); }
  Result<trust::UniqueId> create_unique_id(Audience audience, const Settings& settings) override;
  Result<trust::UniqueId> create_root(const trust::Secret& secret) override;
  void renounce(const trust::UniqueId& id, const Status& why) override;
  Status end_failed_meetings() override;
  Result<std::string> listen_on_this_host(const Settings& settings) override;
  Result<std::shared_ptr<Membership>> join(const trust::UniqueId& id, int size, int rank,
                                           MessageBytes note, const Settings& settings) override;
  Status watch(const trust::UniqueId& id, int descriptor,
               std::function<bool()> on_readable) override;
  Status serve_metrics(const std::string& where, int local_rank,
                       std::function<std::string()> text) override;

 private:
  Plane() = default;
  Status check_process() const;
  // On the control thread; what came of it, or why nothing can.
  Status ask(const std::function<Status()>& act) const;
  void stay_for_latecomers();
  Result<trust::ProcessIdentity> make_root(const trust::UniqueId& id, Audience audience,
                                           const Settings& settings);
  Result<Destination> root_of(const trust::UniqueId& id) const;
  ControlThread& thread() const { return *state_->thread(); }

  const pid_t process_ = getpid();
  std::unique_ptr<ControlThreadState> state_;
  bool closed_ = false;
};

Result<std::unique_ptr<Plane>> Plane::make(const Settings& settings) {
  GYRE_ASSIGN(auto tls, trust::Tls::create());
  GYRE_ASSIGN(auto thread, ControlThread::start());
  std::unique_ptr<Plane> plane(new Plane);
  plane->state_ = std::make_unique<ControlThreadState>(std::move(thread), std::move(tls));
  GYRE_TRY(plane->state_->open(settings));
  GYRE_TRY(plane->ask([&] { return plane->state_->serve(); }));
  return plane;
}

Status Plane::ask(const std::function<Status()>& act) const {
  Status answer;
  return thread().call([&] { answer = act(); }) ? answer : thread().verdict();
}

void Plane::close() {
  if (state_ == nullptr || std::exchange(closed_, true)) return;
  if (getpid() != process_) {
    // A forked child: the thread is not here, and its locks may be held for ever.
    [[maybe_unused]] const ControlThreadState* left_behind = state_.release();
    return;
  }
  stay_for_latecomers();
  const std::int64_t until = SystemClock::read() + farewell_ns;
  bool flushed = false;
  thread().call([&] {
    state_->close_jobs();
    flushed = state_->flushed();
  });
  while (!flushed && SystemClock::read() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    thread().call([&] { flushed = state_->flushed(); });
  }
  thread().call([&] { state_->clear(); });
  thread().stop();
}

// Ranks that come while a root whose job has failed is on its way out would find nobody, and blame
// the root in place of whoever made it fail.
void Plane::stay_for_latecomers() {
  const std::int64_t until = SystemClock::read() + latecomers_ns;
  bool has_unreported_failure = true;
  while (has_unreported_failure && SystemClock::read() < until) {
    thread().call([&] { has_unreported_failure = state_->has_unreported_failure(); });
    if (has_unreported_failure) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

Status Plane::check_process() const {
  if (getpid() == process_) return {};
  return invalid_usage("a control plane does not survive fork: the child needs its own");
}

// This process as it shows itself to those who join.
Result<trust::ProcessIdentity> Plane::make_root(const trust::UniqueId& id, Audience audience,
                                                const Settings& settings) {
  GYRE_ASSIGN(const auto key, trust::derive_control_key(id));
  std::optional<trust::ProcessIdentity> shown;
  GYRE_TRY(ask([&]() -> Status {
    GYRE_ASSIGN(const OpenJob* open, state_->job(key, std::nullopt, audience, settings));
    shown = *open->self;
    return {};
  }));
  return *shown;
}

Result<trust::UniqueId> Plane::create_unique_id(Audience audience, const Settings& settings) {
  GYRE_TRY(check_process());
  trust::UniqueId id;
  GYRE_ASSIGN(id.secret, trust::random_secret());
  id.root_host = state_->self().host;
  id.root_listener = state_->self().listener_name;
  GYRE_ASSIGN(const trust::ProcessIdentity shown, make_root(id, audience, settings));
  if (!shown.addresses.empty()) id.root_address = shown.addresses[0];
  return id;
}

Result<trust::UniqueId> Plane::create_root(const trust::Secret& secret) {
  GYRE_TRY(check_process());
  GYRE_ASSIGN(const trust::UniqueId id, trust::id_on_this_host(secret));
  GYRE_ASSIGN(const auto key, trust::derive_control_key(id));
  GYRE_TRY(ask([&] { return state_->open_named_root(key, id.root_listener); }));
  return id;
}

void Plane::renounce(const trust::UniqueId& id, const Status& why) {
  const auto key = trust::derive_control_key(id);
  if (check_process().ok() && key.ok())
    thread().call([&] { state_->renounce((*key)->identity, why); });
}

Status Plane::end_failed_meetings() {
  GYRE_TRY(check_process());
  return ask([&]() -> Status {
    state_->end_failed_meetings();
    return {};
  });
}

Result<std::string> Plane::listen_on_this_host(const Settings& settings) {
  GYRE_TRY(check_process());
  Result<std::vector<std::string>> addresses = invalid_usage("the control plane has ended");
  thread().call([&] { addresses = state_->listen_for(Audience::this_host, settings); });
  if (!addresses.ok()) return std::move(addresses).status();
  return std::move(addresses->front());
}

Result<Destination> Plane::root_of(const trust::UniqueId& id) const {
  Destination root{.host = id.root_host, .listener_name = id.root_listener};
  auto& ways = root.ways;
  if (id.root_host == state_->self().host && !id.root_listener.empty()) {
    GYRE_ASSIGN(ways.emplace_back(), trust::abstract_address(id.root_listener));
  }
  if (!id.root_address.empty()) {
    GYRE_ASSIGN(ways.emplace_back(), trust::parse_address(id.root_address));
  }
  if (ways.empty())
    return invalid_usage(
        "the unique id was made on another host by a process that other hosts cannot reach: it has "
        "no network, or its launcher said that all ranks are on that host. Set GYRE_SOCKET_IFNAME "
        "there");
  return root;
}

Result<std::shared_ptr<Membership>> Plane::join(const trust::UniqueId& id, int size, int rank,
                                                MessageBytes note, const Settings& settings) {
  GYRE_TRY(check_process());
  if (size < 1 || size > max_size)
    return invalid_argument(fmt::format("a communicator of {} ranks", size));
  if (rank < 0 || rank >= size)
    return invalid_argument(fmt::format("rank {} is not among 0 to {}", rank, size - 1));
  if (note.size() > max_rank_message_bytes)
    return invalid_argument(fmt::format("a note of {} bytes is longer than 64 KiB", note.size()));
  GYRE_ASSIGN(const auto key, trust::derive_control_key(id));
  GYRE_ASSIGN(auto root, root_of(id));
  const bool own_id = id.root_listener == state_->self().listener_name;
  const Audience audience = id.root_address.empty() ? Audience::this_host : Audience::any_host;
  std::shared_ptr<Membership> joined;
  GYRE_TRY(ask([&]() -> Status {
    // If this process made the id, its job is there and is the root's.
    if (own_id && !state_->has_job(key->identity))
      return invalid_usage("the communicator of this unique id is over: make a new id");
    root.is_up = state_->has_met(root.listener_name);
    GYRE_ASSIGN(OpenJob * open, state_->job(key, root, audience, settings));
    auto member = std::make_shared<LocalMember>(state_->thread(), open->self, rank, size);
    joined = member;
    open->job.enlist(std::move(member), size, std::move(note), settings);
    return {};
  }));
  return joined;
}

Status Plane::watch(const trust::UniqueId& id, int descriptor, std::function<bool()> on_readable) {
  GYRE_TRY(check_process());
  GYRE_ASSIGN(const auto key, trust::derive_control_key(id));
  return ask([&] { return state_->watch(key->identity, descriptor, std::move(on_readable)); });
}

Status Plane::serve_metrics(const std::string& where, int local_rank,
                            std::function<std::string()> text) {
  GYRE_TRY(check_process());
  GYRE_ASSIGN(const MetricsPlace place, read_metrics_place(where, local_rank));
  GYRE_ASSIGN(auto listener, MetricsListener::open(thread(), place, std::move(text)));
  const std::string name = listener->name();
  GYRE_TRY(ask([&] { return state_->serve_metrics(std::move(listener)); }));
  log_info(Subsystem::init, "metrics at {}{}", name, place.path.empty() ? "/metrics" : "");
  return {};
}

}  // namespace

Result<std::unique_ptr<ControlPlane>> ControlPlane::start(const Settings& settings) {
  GYRE_ASSIGN(std::unique_ptr<Plane> plane, Plane::make(settings));
  return std::unique_ptr<ControlPlane>(std::move(plane));
}

}  // namespace gyre::control
