#include "tools/pytorch/src/store_communicator.h"

#include <algorithm>
#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

namespace gyre_torch {
namespace {

int to_ms(std::chrono::milliseconds time) {
  return static_cast<int>(std::min<std::chrono::milliseconds::rep>(time.count(), INT_MAX));
}

// gyreStore_t over a c10d store. Exceptions do not cross C: the last one is kept.
struct StoreAdapter {
  const c10::intrusive_ptr<c10d::Store>& store;
  std::string failure;
  bool has_set_id = false;

  static int set(void* user, const char* key, const void* value, size_t bytes) {
    const auto* first = static_cast<const std::uint8_t*>(value);
    // In place of an id a rank 0 that could make none says why.
    constexpr std::string_view excuse = "rank 0 failed: ";
    const std::string_view text(static_cast<const char*>(value), bytes);
    static_cast<StoreAdapter*>(user)->has_set_id = !text.starts_with(excuse);
    return static_cast<StoreAdapter*>(user)->guarded([&](c10d::Store& store) {
      store.set(key, std::vector<std::uint8_t>(first, first + bytes));
      return 0;
    });
  }
  static int get(void* user, const char* key, void* value, size_t* bytes, int timeout_ms) {
    return static_cast<StoreAdapter*>(user)->guarded([&](c10d::Store& store) {
      store.wait({key}, std::chrono::milliseconds(timeout_ms));
      const std::vector<std::uint8_t> found = store.get(key);
      if (found.size() > *bytes) return 1;
      std::memcpy(value, found.data(), found.size());
      *bytes = found.size();
      return 0;
    });
  }

 private:
  template <typename Act>
  int guarded(const Act& act) {
    try {
      return act(*store);
    } catch (const std::exception& error) {
      failure = error.what();
      return 1;
    }
  }
};

std::string counter_of(const std::string& key) { return key + "/meetings"; }

// Who meets later under the same prefix of the store, or tries again, must not find it: it would
// meet at a listener that is gone.
void forget_key(c10d::Store& store, const std::string& key) {
  try {
    (void)store.deleteKey(key);
  } catch (const std::exception& error) {
    TORCH_WARN_ONCE("gyre: the store did not delete the key ", key, ": ", error.what());
  }
}

}  // namespace

std::chrono::milliseconds timeout_in_force(const char* variable, std::chrono::milliseconds given) {
  const char* said = std::getenv(variable);
  std::int64_t seconds = 0;
  if (said == nullptr) return given;
  const char* const end = said + std::strlen(said);
  const auto [stop, error] = std::from_chars(said, end, seconds);
  // What is no number is refused when the group is made.
  if (error != std::errc() || stop != end || seconds <= 0) return given;
  constexpr std::int64_t max_s = INT_MAX / 1000;
  return std::chrono::seconds(std::min(seconds, max_s));
}

void throw_error(const GroupMembership& in, gyreResult_t result, const std::string& doing,
                 const std::string& story) {
  const std::string text =
      c10::str("gyre: rank ", in.rank, " of ", in.size,
               in.group.empty() ? std::string() : c10::str(" in group ", in.group), ": ", doing,
               result == gyreTimeout
                   ? c10::str(" timed out (its timeout is ", in.timeout->load().count(), " ms): ")
                   : " failed: ",
               story);
  if (result == gyreInvalidArgument) C10_THROW_ERROR(ValueError, text);
  C10_THROW_ERROR(DistBackendError, text);
}

std::unique_ptr<StoreCommunicator> StoreCommunicator::join(
    const c10::intrusive_ptr<c10d::Store>& store, const std::string& key,
    const GroupMembership& membership, int device) {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.device = device;
  config.timeoutMs = config.initTimeoutMs = to_ms(*membership.timeout);  // if no variable says it
  std::unique_ptr<StoreCommunicator> made(new StoreCommunicator(membership, config));
  made->config_.commName = made->membership_.group.c_str();
  if (membership.rank == 0) made->meeting_ = store->add(counter_of(key), 1);
  StoreAdapter adapter{store, {}};
  const gyreStore_t callbacks{&adapter, StoreAdapter::set, StoreAdapter::get};
  const gyreResult_t result = gyreCommInitStore(&made->comm_, membership.size, membership.rank,
                                                &callbacks, key.c_str(), &made->config_);
  if (result != gyreSuccess) {
    if (adapter.has_set_id) forget_key(*store, key);
    std::string story = gyreGetLastError(nullptr);
    if (!adapter.failure.empty()) story += "; the store says: " + adapter.failure;
    GroupMembership meeting = membership;
    meeting.timeout =
        std::make_shared<GroupTimeout>(timeout_in_force("GYRE_INIT_TIMEOUT", *membership.timeout));
    const std::string where =
        device == GYRE_DEVICE_HOST ? "" : c10::str("'s communicators of device ", device);
    throw_error(meeting, result, "making the process group" + where, story);
  }
  return made;
}

// All have read the key and the counter once all have come, and the second communicator takes all
// of them.
std::pair<std::unique_ptr<StoreCommunicator>, std::unique_ptr<StoreCommunicator>>
StoreCommunicator::join_two(const c10::intrusive_ptr<c10d::Store>& store, const std::string& key,
                            const GroupMembership& membership, int device) {
  auto first = join(store, key, membership, device);
  if (membership.rank != 0) first->meeting_ = store->add(counter_of(key), 0);
  const auto forgets = c10::make_scope_exit([&] {
    if (membership.rank == 0) forget_key(*store, key);
  });
  auto second = first->twin();
  return {std::move(first), std::move(second)};
}

std::unique_ptr<StoreCommunicator> StoreCommunicator::twin() const {
  std::unique_ptr<StoreCommunicator> made(new StoreCommunicator(membership_, config_));
  made->config_.commName = made->membership_.group.c_str();
  made->config_.timeoutMs = to_ms(*membership_.timeout);
  check(gyreCommSplit(comm_, 0, membership_.rank, &made->comm_, &made->config_),
        "making the process group");
  return made;
}

void StoreCommunicator::set_timeout(std::chrono::milliseconds timeout) {
  if (config_.device == GYRE_DEVICE_HOST)
    return check(gyreCommSetTimeout(comm_, to_ms(timeout)), "changing the timeout");
  TORCH_WARN("gyre: a group's communicators of device ", config_.device,
             " keep the timeout with which they were made, ", config_.timeoutMs,
             " ms: for another one make a new group");
}

void StoreCommunicator::abort() {
  aborted_.store(true, std::memory_order_relaxed);
  (void)gyreCommAbort(comm_);
}

void StoreCommunicator::fail_here(gyreResult_t result, const std::string& doing) const {
  const std::string story = gyreGetLastError(nullptr);  // hooks may call Gyre
  const bool is_users = result == gyreInvalidArgument || result == gyreInvalidUsage;
  if (!is_users && !aborted_.load(std::memory_order_relaxed)) membership_.hooks->call();
  fail(result, doing, story);
}

void StoreCommunicator::fail(gyreResult_t result, const std::string& doing,
                             const std::string& story) const {
  if (aborted_.load(std::memory_order_relaxed))
    throw_error(membership_, gyreAborted, doing, "the process group was aborted");
  throw_error(membership_, result, doing, story);
}

StoreCommunicator::~StoreCommunicator() {
  if (comm_ != nullptr && birth_.is_this()) (void)gyreCommDestroy(comm_);
}

}  // namespace gyre_torch
