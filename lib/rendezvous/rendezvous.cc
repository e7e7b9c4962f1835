#include "lib/rendezvous/rendezvous.h"

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/owned.h"
#include "lib/base/wait.h"
#include "lib/rendezvous/id_file.h"
#include "lib/rendezvous/id_server.h"
#include "lib/rendezvous/launcher_store.h"
#include "lib/rendezvous/rendezvous_address.h"
#include "lib/rendezvous/run_secret.h"
#include "lib/rendezvous/store_value.h"
#include "lib/trust/derive.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <sys/timerfd.h>

namespace gyre::rendezvous {
namespace {

// How long a rank sleeps between two looks: others' processors, servers of files and networks pay
// for each.
constexpr std::int64_t local_nap_ns = 5 * ns_per_ms;
constexpr std::int64_t far_nap_ns = 50 * ns_per_ms;
constexpr std::size_t min_secret_file = 32;

const SystemClock system_clock;

struct Deadline {
  std::int64_t at_ns;
  std::int64_t seconds;

  static Deadline of(const Settings& settings) {
    return {SystemClock::read() + settings.init_timeout_s * ns_per_s, settings.init_timeout_s};
  }
  Wait wait(std::int64_t nap_ns) const {
    return Wait(system_clock, {.spins = 0, .yields = 0, .max_sleep_ns = nap_ns},
                at_ns - SystemClock::read());
  }
};

Result<trust::Secret> secret_of_this_meeting(const trust::Secret& secret, int earlier_exchanges) {
  trust::Secret own{};
  GYRE_TRY(trust::derive(secret, fmt::format("meeting {}", earlier_exchanges), own));
  return own;
}

// None where no file is set.
Result<std::optional<trust::Secret>> read_secret(const Settings& settings) {
  if (settings.rendezvous_secret_file.empty()) return std::optional<trust::Secret>();
  GYRE_ASSIGN(std::vector<std::uint8_t> bytes,
              read_secret_file(settings.rendezvous_secret_file, min_secret_file));
  trust::Secret secret{};
  const Status derived = trust::derive(bytes, "secret file", secret);
  trust::wipe(bytes);
  if (!derived.ok()) return derived;
  return std::optional(secret);
}

Result<trust::Secret> read_network_secret(const Settings& settings) {
  GYRE_ASSIGN(const auto secret, read_secret(settings));
  if (!secret)
    return invalid_usage(
        "GYRE_RENDEZVOUS_ADDRESS needs GYRE_RENDEZVOUS_SECRET_FILE: a file of mode 0600 with at "
        "least 32 random bytes, the same on all hosts (head -c 32 /dev/urandom > FILE; chmod 600 "
        "FILE)");
  return *secret;
}

control::Audience audience_of(const LaunchPlace& place) {
  return place.one_host ? control::Audience::this_host : control::Audience::any_host;
}

Result<trust::UniqueId> meet_at(control::ControlPlane& plane, const Settings& settings,
                                const RendezvousAddress& point, const LaunchPlace& place,
                                const Deadline& deadline, Wait& wait) {
  const auto size = static_cast<std::uint32_t>(place.size);
  const auto number = static_cast<std::uint32_t>(place.earlier_exchanges);
  if (place.rank != 0) {
    const IdRequest request{static_cast<std::uint32_t>(place.rank), size, number,
                            plane.identity().process};
    return ask_for_id(point, request, place.tried, deadline.seconds, wait);
  }
  GYRE_ASSIGN(FileDescriptor listener, listen_at_address(point, wait));
  // Where the kernel vouches for the user, nobody comes from another host.
  const control::Audience audience =
      point.network ? audience_of(place) : control::Audience::this_host;
  GYRE_ASSIGN(const trust::UniqueId id, plane.create_unique_id(audience, settings));
  GYRE_ASSIGN(auto server,
              IdServer::start(std::move(listener), point, {id, size, number, deadline.at_ns}));
  const int descriptor = server->descriptor();
  GYRE_TRY(plane.watch(id, descriptor, [server] { return server->serve(); }));
  return id;
}

Result<trust::UniqueId> meet_on_network(control::ControlPlane& plane, const Settings& settings,
                                        const LaunchPlace& place, const trust::Secret& secret,
                                        const Deadline& deadline) {
  Wait wait = deadline.wait(far_nap_ns);
  GYRE_ASSIGN(const RendezvousAddress point, network_rendezvous(settings, secret, wait));
  return meet_at(plane, settings, point, place, deadline, wait);
}

Result<trust::UniqueId> meet_by_run(control::ControlPlane& plane, const Settings& settings,
                                    const LaunchPlace& place, const Deadline& deadline) {
  GYRE_ASSIGN(const trust::Secret run, read_run_secret(static_cast<int>(settings.rendezvous_fd)));
  if (!settings.rendezvous_address.empty())
    return meet_on_network(plane, settings, place, run, deadline);
  if (place.several_hosts)
    return invalid_usage(
        "the ranks are on several hosts, but GYRE_RENDEZVOUS_FD alone serves one: set "
        "GYRE_RENDEZVOUS_ADDRESS=host:port of rank 0 as well");
  GYRE_ASSIGN(const trust::Secret secret, secret_of_this_meeting(run, place.earlier_exchanges));
  return place.rank == 0 ? plane.create_root(secret) : trust::id_on_this_host(secret);
}

// The control thread keeps the file until nobody can still be waiting for it.
Status keep_until(control::ControlPlane& plane, const trust::UniqueId& id,
                  std::shared_ptr<IdFile> file, const Deadline& deadline) {
  struct Kept {
    FileDescriptor timer;
    std::shared_ptr<IdFile> file;
  };
  auto kept = std::make_shared<Kept>();
  kept->file = std::move(file);
  kept->timer = FileDescriptor(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  const itimerspec once = {{0, 0}, {deadline.seconds, 0}};
  if (!kept->timer.has_value() || timerfd_settime(kept->timer.get(), 0, &once, nullptr) != 0)
    return Status::from_errno("a timer for the meeting file", errno);
  const int timer = kept->timer.get();
  return plane.watch(id, timer, [kept] { return false; });
}

Result<trust::UniqueId> meet_by_file(control::ControlPlane& plane, const Settings& settings,
                                     const LaunchPlace& place, const Deadline& deadline) {
  std::string path = settings.rendezvous_file;
  if (place.earlier_exchanges > 0) path += fmt::format(".{}", place.earlier_exchanges);
  const trust::Token& this_host = plane.identity().host;
  Wait wait = deadline.wait(far_nap_ns);
  if (place.rank != 0) {
    auto id = read_id_file(path, this_host, place.tried, deadline.seconds, wait);
    if (id.ok()) return id;
    return std::move(id).status().while_doing("GYRE_RENDEZVOUS_FILE");
  }
  GYRE_ASSIGN(const trust::UniqueId id, plane.create_unique_id(audience_of(place), settings));
  auto file = IdFile::publish(path, id, this_host, wait);
  if (!file.ok()) return std::move(file).status().while_doing("GYRE_RENDEZVOUS_FILE");
  GYRE_TRY(keep_until(plane, id, *file, deadline));
  return id;
}

constexpr std::string_view ways_between_hosts =
    "GYRE_RENDEZVOUS_FILE=a file that all hosts see, or GYRE_RENDEZVOUS_ADDRESS=host:port of rank "
    "0 "
    "with GYRE_RENDEZVOUS_SECRET_FILE";

Result<trust::UniqueId> meet_by_launcher(control::ControlPlane& plane, const Settings& settings,
                                         const LaunchPlace& place, LauncherStore* launcher) {
  if (launcher == nullptr || (place.pmi_descriptor < 0 && !place.has_pmix))
    return invalid_usage(fmt::format(
        "the ranks are on several hosts ({} of {} on this one), and nothing says how they meet: "
        "set "
        "{}. Or let the launcher carry the id: mpirun does, and srun --mpi=pmi2",
        place.local_size == place.size ? std::string("some") : std::to_string(place.local_size),
        place.size, ways_between_hosts));
  auto store = launcher->open(place, settings.init_timeout_s * 1000);
  auto id = store.ok() ? exchange_id_through_store(plane, *store, "id", place.rank,
                                                   control::Audience::any_host, settings)
                       : Result<trust::UniqueId>(std::move(store).status());
  if (id.ok()) return id;
  const Status& why = id.status();
  return Status(why.code(),
                fmt::format("{} (through the launcher, by {}; instead of it, set {})",
                            why.message(), place.has_pmix ? "PMIx" : "PMI", ways_between_hosts))
      .blame(why.culprits());
}

Result<trust::UniqueId> meet_on_this_host(control::ControlPlane& plane, const Settings& settings,
                                          const LaunchPlace& place, const Deadline& deadline) {
  Wait wait = deadline.wait(local_nap_ns);
  GYRE_ASSIGN(const RendezvousAddress point,
              local_rendezvous(fmt::format("{}:{}", place.earlier_exchanges, place.job_id)));
  auto id = meet_at(plane, settings, point, place, deadline, wait);
  if (id.ok() || id.status().code() != Code::Timeout || place.one_host) return id;
  const Status& why = id.status();
  return Status(why.code(),
                fmt::format("{} Nothing says how many ranks share this host, so all {} were taken "
                            "for ranks of it. On several hosts set GYRE_LOCAL_RANK and "
                            "GYRE_LOCAL_SIZE, and how the ranks meet: GYRE_RENDEZVOUS_ADDRESS with "
                            "GYRE_RENDEZVOUS_SECRET_FILE, or GYRE_RENDEZVOUS_FILE",
                            why.message(), place.size))
      .blame(why.culprits());
}

Result<trust::UniqueId> meet_as_set(control::ControlPlane& plane, const Settings& settings,
                                    const LaunchPlace& place, LauncherStore* launcher) {
  const Deadline deadline = Deadline::of(settings);
  if (settings.rendezvous_fd >= 0) return meet_by_run(plane, settings, place, deadline);
  if (!settings.rendezvous_file.empty()) return meet_by_file(plane, settings, place, deadline);
  if (!settings.rendezvous_address.empty()) {
    auto secret = read_network_secret(settings);
    if (!secret.ok()) return std::move(secret).status().while_doing("GYRE_RENDEZVOUS_SECRET_FILE");
    return meet_on_network(plane, settings, place, *secret, deadline);
  }
  if (place.several_hosts) return meet_by_launcher(plane, settings, place, launcher);
  return meet_on_this_host(plane, settings, place, deadline);
}

constexpr std::string_view store_excuse = "rank 0 failed: ";

// What a store holds under the key: the id that rank 0 put there, or why there is none.
Result<trust::UniqueId> id_of_store(const std::vector<std::uint8_t>& value,
                                    const std::optional<trust::Secret>& secret) {
  const std::string_view text(reinterpret_cast<const char*>(value.data()), value.size());
  if (text.starts_with(store_excuse))
    return Status(Code::RemoteError, std::string(text)).blame({0});
  return id_of_store_value(value, secret);
}

}  // namespace

Result<trust::UniqueId> meet(control::ControlPlane& plane, const Settings& settings,
                             const LaunchPlace& place, LauncherStore* launcher) {
  if (place.size == 1) return plane.create_unique_id(control::Audience::this_host, settings);
  if (place.rank == 0) GYRE_TRY(plane.end_failed_meetings());
  auto id = meet_as_set(plane, settings, place, launcher);
  if (id.ok()) return id;
  return std::move(id).status().while_doing(
      fmt::format("rank {} of {} meeting the others", place.rank, place.size));
}

control::Audience audience_of_launch(const Settings& settings,
                                     const std::map<std::string, std::string>& environment,
                                     int ranks) {
  if (settings.says("GYRE_SOCKET_IFNAME")) return control::Audience::any_host;
  // What contradicts itself is gyreCommInitEnv's to report.
  const auto place = read_launch_place(settings, environment, nullptr);
  const bool believed = place.ok() && place->one_host && place->size > 1 && ranks <= place->size;
  return believed ? control::Audience::this_host : control::Audience::any_host;
}

Result<trust::UniqueId> exchange_id_through_store(control::ControlPlane& plane, const Store& store,
                                                  const std::string& key, int rank,
                                                  control::Audience audience,
                                                  const Settings& settings) {
  const std::int64_t timeout_ms = settings.init_timeout_s * 1000;
  const std::string doing = fmt::format("meeting through the store's key \"{}\"", key);
  auto secret = read_secret(settings);
  if (!secret.ok() && rank != 0)
    return std::move(secret).status().while_doing("GYRE_RENDEZVOUS_SECRET_FILE");
  if (rank == 0) {
    auto id = secret.ok() ? plane.create_unique_id(audience, settings)
                          : std::move(secret).status().while_doing("GYRE_RENDEZVOUS_SECRET_FILE");
    if (!id.ok()) {
      // The others should not wait for what will not come.
      const std::string excuse = std::string(store_excuse) + std::string(id.status().message());
      (void)store.set(key, {excuse.begin(), excuse.end()}).ok();
      return std::move(id).status().while_doing(doing);
    }
    GYRE_ASSIGN(std::vector<std::uint8_t> value, store_value_of(*id, *secret));
    Status set = store.set(key, value).while_doing(doing);
    trust::wipe(value);
    if (!set.ok()) return set;
    return id;
  }
  auto value = store.get(key, timeout_ms);
  if (!value.ok())
    return std::move(value)
        .status()
        .while_doing(fmt::format("{}, which rank 0 sets (waited up to {} ms)", doing, timeout_ms))
        .blame({0});
  auto id = id_of_store(*value, *secret);
  trust::wipe(*value);
  return id.ok() ? std::move(id) : std::move(id).status().while_doing(doing);
}

}  // namespace gyre::rendezvous
