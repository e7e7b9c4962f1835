#include "lib/rendezvous/launcher_store.h"

#include "lib/base/clock.h"
#include "lib/loaded/mpi.h"
#include "lib/loaded/pmix.h"
#include "lib/trust/derive.h"
#include "lib/trust/wiped.h"

#include <fmt/core.h>

#include <algorithm>

namespace gyre::rendezvous {
namespace {

constexpr std::int64_t launcher_nap_ns = 10 * ns_per_ms;
// For an answer that needs no other rank.
constexpr std::int64_t max_answer_ns = 10 * ns_per_s;

Wait launcher_wait(std::int64_t limit_ms, std::int64_t max_ns = INT64_MAX) {
  const std::int64_t limit_ns = std::min(limit_ms * ns_per_ms, max_ns);
  return Wait(system_clock, {.spins = 0, .yields = 0, .max_sleep_ns = launcher_nap_ns}, limit_ns);
}

int digit_of(char letter) {
  constexpr std::string_view digits = "0123456789abcdef";
  const std::size_t place = digits.find(letter);
  return place == digits.npos ? -1 : static_cast<int>(place);
}

// Values are words: bytes travel as hexadecimal digits.
Result<std::vector<std::uint8_t>> bytes_of_digits(std::string_view text) {
  std::vector<std::uint8_t> bytes(text.size() / 2);
  bool good = text.size() % 2 == 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
    good = good && high >= 0 && low >= 0;
    bytes[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  if (good) return bytes;
  return Status(Code::RemoteError, "the launcher gave a value that no rank has put");
}

// Open MPI fails to begin once we have, and libpmix ends the process if we begin once MPI has
// ended.
Status check_mpi(loaded::MpiState mpi) {
  if (mpi == loaded::MpiState::absent || mpi == loaded::MpiState::running) return {};
  return invalid_usage(
      fmt::format("this program uses MPI too, which {}: call gyreCommInitEnv between MPI_Init and "
                  "MPI_Finalize, or pass an id of gyreGetUniqueId on by MPI_Bcast",
                  mpi == loaded::MpiState::ended ? "has ended" : "has not begun"));
}

Result<std::unique_ptr<LauncherLine>> open_line(const LaunchPlace& place, std::int64_t limit_ms) {
  GYRE_TRY(check_mpi(loaded::find_mpi()));
  Wait wait = launcher_wait(limit_ms, max_answer_ns);
  if (place.pmi_descriptor >= 0) return open_pmi(place.pmi_descriptor, wait);
  GYRE_ASSIGN(auto library, loaded::load_pmix());
  return open_pmix(std::move(library));
}

}  // namespace

Result<Store> LauncherStore::open(const LaunchPlace& place, std::int64_t limit_ms) {
  const std::lock_guard lock(mutex_);
  GYRE_TRY(broken_);
  if (line_ == nullptr) {
    auto line = open_line(place, limit_ms);
    if (!line.ok()) return note(std::move(line).status());
    line_ = std::move(*line);
  }
  const std::string space = fmt::format("gyre-{}-", exchanges_++);
  Store store;
  store.set = [this, space, limit_ms](const std::string& key,
                                      const std::vector<std::uint8_t>& value) {
    return put(space + key, value, limit_ms);
  };
  store.get = [this, space](const std::string& key, std::int64_t wait_ms) {
    return get(space + key, wait_ms);
  };
  return store;
}

Status LauncherStore::note(Status status) {
  if (!status.ok()) broken_ = status;
  return status;
}

Status LauncherStore::put(const std::string& key, const std::vector<std::uint8_t>& value,
                          std::int64_t limit_ms) {
  const std::lock_guard lock(mutex_);
  std::string digits = trust::hexadecimal(value);
  Wait answer = launcher_wait(limit_ms, max_answer_ns);
  Status done = line_->put(key, digits, answer);
  trust::wipe(digits);
  Wait fence = launcher_wait(limit_ms);
  if (done.ok()) done = line_->fence(fence).while_doing("waiting for all ranks");
  return note(std::move(done));
}

Result<std::vector<std::uint8_t>> LauncherStore::get(const std::string& key,
                                                     std::int64_t limit_ms) {
  const std::lock_guard lock(mutex_);
  Wait fence = launcher_wait(limit_ms);
  GYRE_TRY(note(line_->fence(fence).while_doing("waiting for all ranks")));
  Wait answer = launcher_wait(limit_ms, max_answer_ns);
  auto digits = line_->get(key, answer);
  if (!digits.ok()) return note(std::move(digits).status());
  auto bytes = bytes_of_digits(*digits);
  trust::wipe(*digits);
  return bytes;
}

void LauncherStore::finish() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || line_ == nullptr || !broken_.ok()) return;
  Wait wait = launcher_wait(1000);
  line_->finish(wait);
  broken_ = invalid_usage("this process has ended");
}

}  // namespace gyre::rendezvous
