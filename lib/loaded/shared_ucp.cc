#include "lib/loaded/shared_ucp.h"

#include "lib/base/clock.h"

#include <fmt/core.h>

#include <cstdlib>
#include <string_view>
#include <unistd.h>
#include <utility>

namespace gyre::loaded {
namespace {

// What ucp_config_modify calls a setting of one of UCX's transports. Releases before 1.17 leave out
// the transport's name: they warn of the whole name and ignore it. (Tried with 1.13 to 1.19.)
std::string name_for(const Ucp& table, std::string_view name) {
  constexpr std::string_view tcp = "TCP_";
  constexpr unsigned first_with_prefix = 17;
  unsigned major = 0, minor = 0, release = 0;
  table.version(&major, &minor, &release);
  if (minor < first_with_prefix && name.starts_with(tcp)) name.remove_prefix(tcp.size());
  return std::string(name);
}

// Best effort: a release may not have it.
void set_unless_user_did(const Ucp& table, UcpConfig& config, const std::string& name,
                         const std::string& value) {
  if (std::getenv(("UCX_" + name).c_str()) == nullptr)
    (void)table.modify_config(&config, name_for(table, name).c_str(), value.c_str());
}

// UCX warns of a setting of a transport that the user's choice leaves out.
bool may_use_tcp() {
  const char* const chosen = std::getenv("UCX_TLS");
  if (chosen == nullptr) return true;
  const std::string_view names = chosen;
  const bool names_tcp = names.find("tcp") != names.npos;
  const bool names_all = names.find("all") != names.npos;
  return names.starts_with('^') ? !names_tcp : names_tcp || names_all;
}

}  // namespace

UcpSharedContext::UcpSharedContext(const Ucp& table, UcpContextHandle context, bool is_threaded)
    : table_(table), context_(std::move(context)), is_threaded_(is_threaded), process_(getpid()) {}

// A forked process has copies of UCX's objects, and may not touch them.
UcpSharedContext::~UcpSharedContext() {
  if (!is_of_this_process()) (void)context_.release();
}

bool UcpSharedContext::is_of_this_process() const { return process_ == getpid(); }

Result<std::shared_ptr<UcpSharedContext>> UcpSharedContext::make(const Ucp& table,
                                                                 std::int64_t liveness_ns) {
  UcpConfig* read = nullptr;
  if (const UcxStatus status = table.read_config(nullptr, nullptr, &read); status != ucx::ok)
    return ucp_failure(table, "ucp_config_read", status);
  const UcpConfigHandle config({&table, read});
  // By default UCX asks a silent peer every 20 s. Over TCP it waits inside a call until a
  // connection stands, which takes two minutes where the network is cut.
  const std::string interval = fmt::format("{}ms", liveness_ns / 2 / ns_per_ms);
  set_unless_user_did(table, *read, "KEEPALIVE_INTERVAL", interval);
  if (may_use_tcp()) set_unless_user_did(table, *read, "TCP_CONN_NB", "y");
  // UCX 1.22 would cut what is longer than 16 KiB into packets of 8, and copy each of them first.
  // So a message of 64 KiB over TCP took three times as long.
  set_unless_user_did(table, *read, "ZCOPY_THRESH", "8k");
  UcpParameters parameters{};
  parameters.field_mask = ucp::parameter_features | ucp::parameter_workers_shared;
  parameters.features = ucp::feature_active_messages | ucp::feature_wakeup;
  parameters.workers_shared = 1;
  UcpContext* made = nullptr;
  if (const UcxStatus status =
          table.make_context(ucp::major, ucp::oldest_minor, &parameters, read, &made);
      status != ucx::ok)
    return ucp_failure(table, "ucp_init", status);
  UcpContextHandle context({&table, made});
  UcpContextAttributes attributes{};
  attributes.field_mask = ucp::context_thread_mode;
  if (const UcxStatus status = table.query_context(made, &attributes); status != ucx::ok)
    return ucp_failure(table, "ucp_context_query", status);
  const bool is_threaded = attributes.thread_mode == ucp::multiple_threads;
  return std::shared_ptr<UcpSharedContext>(
      new UcpSharedContext(table, std::move(context), is_threaded));
}

Result<const Ucp*> SharedUcp::table() {
  const std::lock_guard lock(mutex_);
  if (table_ != nullptr) return table_;
  GYRE_ASSIGN(loaded_, load_ucp());
  table_ = loaded_.get();
  return table_;
}

Result<std::shared_ptr<UcpSharedContext>> SharedUcp::context(std::int64_t liveness_ns) {
  GYRE_ASSIGN(const Ucp* const known, table());
  const std::lock_guard lock(mutex_);
  std::shared_ptr<UcpSharedContext> shared = context_.lock();
  if (shared != nullptr && shared->is_of_this_process()) return shared;
  GYRE_ASSIGN(shared, UcpSharedContext::make(*known, liveness_ns));
  context_ = shared;
  return shared;
}

void SharedUcp::use(const Ucp* table) {
  const std::lock_guard lock(mutex_);
  table_ = table;
  context_.reset();
}

}  // namespace gyre::loaded
