#include "lib/bootstrap/control.h"

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/bootstrap/control_thread.h"
#include "lib/bootstrap/door.h"
#include "lib/bootstrap/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <thread>

namespace gyre::bootstrap {
namespace {

// At most this long does the end of a process wait for its last words to leave.
constexpr std::int64_t farewell_ns = 200 * ns_per_ms;

class Plane final : public ControlPlane {
 public:
  static Result<std::unique_ptr<Plane>> make(const Settings& settings);
  ~Plane() override;

  const trust::ProcessIdentity& identity() const override { return self_; }
  trust::TicketBook& tickets() override { return tickets_; }
  Result<trust::UniqueId> create_unique_id() override;
  Result<trust::UniqueId> create_root(const trust::Secret& secret) override;
  Result<std::shared_ptr<Membership>> join(const trust::UniqueId& id, int size, int rank,
                                           Letter note, const Settings& settings) override;
  Status watch(int descriptor, std::function<bool()> on_readable) override;

 private:
  Plane() = default;
  Result<std::string> open_job(const trust::UniqueId& id, bool is_root);
  Job* find(const std::string& identity);
  bool knows(std::string_view hello);
  void welcome(Door::Guest guest);
  void tick(std::int64_t now_ns);

  trust::ProcessIdentity self_;
  trust::TicketBook tickets_;
  std::unique_ptr<trust::Tls> tls_;
  std::unique_ptr<ControlThread> thread_;
  // Control thread only:
  std::unique_ptr<Door> door_;
  std::map<std::string, std::unique_ptr<Job>> jobs_;  // by identity
  struct Watched {
    FileDescriptor descriptor;
    ControlThread::WatchId id;
  };
  std::map<int, Watched> watched_;
};

Result<std::unique_ptr<Plane>> Plane::make(const Settings& settings) {
  std::unique_ptr<Plane> plane(new Plane);
  GYRE_ASSIGN(plane->self_, trust::describe_this_process());
  GYRE_ASSIGN(plane->tls_, trust::Tls::create());
  GYRE_ASSIGN(plane->thread_, ControlThread::start());
  plane->door_ = std::make_unique<Door>(*plane->thread_, plane->tickets_);
  GYRE_TRY(plane->door_->open(settings).while_doing("opening this process's door"));
  plane->self_.door_name = plane->door_->name();
  plane->self_.addresses = plane->door_->addresses();
  plane->thread_->call([made = plane.get()] {
    made->door_->serve([made](std::string_view hello) { return made->knows(hello); },
                       [made](Door::Guest guest) { made->welcome(std::move(guest)); });
    made->thread_->on_tick([made](std::int64_t now) { made->tick(now); });
  });
  return plane;
}

Plane::~Plane() {
  if (thread_ == nullptr) return;
  const std::int64_t until = SystemClock::read() + farewell_ns;
  bool unsent = true;
  while (unsent && SystemClock::read() < until) {
    thread_->call([&] {
      unsent = std::ranges::any_of(jobs_, [](const auto& job) { return job.second->has_unsent(); });
    });
    if (unsent) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  thread_->call([&] {
    jobs_.clear();
    for (auto& [descriptor, watched] : watched_) thread_->unwatch(watched.id);
    watched_.clear();
    door_.reset();
    thread_->on_tick(nullptr);
  });
}

Result<std::string> Plane::open_job(const trust::UniqueId& id, bool is_root) {
  GYRE_ASSIGN(auto key, trust::derive_control_key(id));
  const std::string identity = key->identity;
  thread_->call([&] {
    auto& job = jobs_[identity];
    if (job == nullptr)
      job = std::make_unique<Job>(*thread_, *tls_, self_, id, std::move(key), is_root);
  });
  return identity;
}

Result<trust::UniqueId> Plane::create_unique_id() {
  trust::UniqueId id;
  GYRE_ASSIGN(id.secret, trust::random_secret());
  id.root_host = self_.host;
  id.root_door = self_.door_name;
  if (!self_.addresses.empty()) id.root_address = self_.addresses[0];
  GYRE_TRY(open_job(id, true).status());
  return id;
}

Result<trust::UniqueId> Plane::create_root(const trust::Secret& secret) {
  GYRE_ASSIGN(const trust::UniqueId id, trust::id_on_this_host(secret));
  GYRE_ASSIGN(const std::string name, trust::door_name_of(secret));
  Status opened;
  thread_->call([&] { opened = door_->add_name(name); });
  GYRE_TRY(std::move(opened));
  GYRE_TRY(open_job(id, true).status());
  return id;
}

Result<std::shared_ptr<Membership>> Plane::join(const trust::UniqueId& id, int size, int rank,
                                                Letter note, const Settings& settings) {
  // If this process made the id, the job is there and is the root's.
  GYRE_ASSIGN(const std::string identity, open_job(id, false));
  const auto on_job = [this, identity](std::function<void(Job&)> act) {
    thread_->post([this, identity, act = std::move(act)] {
      if (Job* job = find(identity)) act(*job);
    });
  };
  Member::Wishes wishes;
  wishes.send = [on_job](int from, int to, std::uint64_t key, Letter letter) {
    on_job([=, letter = std::move(letter)](Job& job) { job.send_letter(from, to, key, letter); });
  };
  wishes.abort = [on_job](int who, Status why) { on_job([=](Job& job) { job.abort(who, why); }); };
  wishes.leave = [on_job](int who) { on_job([=](Job& job) { job.leave(who); }); };
  auto member = std::make_shared<Member>(rank, size, std::move(wishes));
  on_job([=, note = std::move(note)](Job& job) { job.add_local(member, size, note, settings); });
  return std::shared_ptr<Membership>(std::move(member));
}

Status Plane::watch(int descriptor, std::function<bool()> on_readable) {
  Status status;
  thread_->call([&] {
    const auto end = [this, descriptor] {
      const auto found = watched_.find(descriptor);
      thread_->unwatch(found->second.id);
      watched_.erase(found);
    };
    auto id = thread_->watch(descriptor, EPOLLIN, [on_readable, end](std::uint32_t) {
      if (!on_readable()) end();
    });
    if (id.ok())
      watched_[descriptor] = {FileDescriptor(descriptor), *id};
    else
      status = id.status();
  });
  return status;
}

Job* Plane::find(const std::string& identity) {
  const auto found = jobs_.find(identity);
  return found == jobs_.end() ? nullptr : found->second.get();
}

bool Plane::knows(std::string_view hello) {
  const std::size_t place = hello.find(trust::identity_prefix);
  if (place == hello.npos || hello.size() - place < trust::identity_length) return false;
  const Job* job = find(std::string(hello.substr(place, trust::identity_length)));
  return job != nullptr && job->is_root();
}

void Plane::welcome(Door::Guest guest) {
  // knows() has found it a moment ago; the hello is still unread, so look again for which job it
  // was.
  char hello[2048];
  const ssize_t length = ::recv(guest.socket.get(), hello, sizeof hello, MSG_PEEK | MSG_DONTWAIT);
  if (length <= 0) return;
  const std::string_view text(hello, static_cast<std::size_t>(length));
  const std::size_t place = text.find(trust::identity_prefix);
  if (place == text.npos) return;
  if (Job* job = find(std::string(text.substr(place, trust::identity_length))))
    job->add_guest(std::move(guest));
}

void Plane::tick(std::int64_t now_ns) {
  door_->tick(now_ns);
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    job->second->tick(now_ns);
    const bool done = job->second->finished() && !job->second->has_unsent();
    job = done ? jobs_.erase(job) : std::next(job);
  }
}

}  // namespace

Result<std::unique_ptr<ControlPlane>> ControlPlane::start(const Settings& settings) {
  GYRE_ASSIGN(std::unique_ptr<Plane> plane, Plane::make(settings));
  return std::unique_ptr<ControlPlane>(std::move(plane));
}

}  // namespace gyre::bootstrap
