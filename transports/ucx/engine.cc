#include "transports/ucx/engine.h"

#include "lib/base/clock.h"
#include "lib/base/descriptor_mark.h"
#include "lib/base/log.h"
#include "transports/ucx/window.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <poll.h>
#include <string_view>
#include <sys/random.h>
#include <time.h>

namespace gyre::transport {
namespace {

namespace ucp = loaded::ucp;
using loaded::ucp_failure;
using loaded::UcxStatus;
using loaded::ucx::ok;

constexpr unsigned message_id = 1;
// How long an engine that goes waits until what it has sent has left.
constexpr std::int64_t farewell_ns = 200 * ns_per_ms;

loaded::UcpRequestParameters request_parameters(std::uint32_t flags) {
  loaded::UcpRequestParameters parameters{};
  parameters.field_mask = ucp::request_flags | ucp::request_memory_type;
  parameters.flags = flags;
  parameters.memory_type = ucp::host_memory;
  return parameters;
}

bool is_memory(std::string_view transport) {
  return transport == "posix" || transport == "sysv" || transport == "cma" || transport == "self";
}

// What one packet of these ways has room for, beside UCX's headers and a notice; 0: they do more
// than copy, and UCX knows best. By TCP and shared memory, packets that come at once take less time
// than promised messages (bench/results/ucx.jsonl). Of what is longer than a packet UCX makes
// several, and puts them together in memory of its own. TCP has 64 KiB (UCX_TCP_RX_SEG_SIZE),
// memory 8256 bytes (UCX_POSIX_SEG_SIZE).
std::uint64_t packet_bytes_of(const std::vector<std::string>& ways) {
  std::uint64_t bytes = 63 << 10;
  for (const std::string_view way : ways) {
    const std::string_view transport = way.substr(0, way.find('/'));
    if (is_memory(transport))
      bytes = 8000;
    else if (transport != "tcp")
      return 0;
  }
  return ways.empty() ? 0 : bytes;
}

}  // namespace

UcpEngine::UcpEngine(std::shared_ptr<loaded::UcpSharedContext> context)
    : context_(std::move(context)),
      mutex_(context_->workers_mutex() != nullptr ? *context_->workers_mutex() : own_mutex_) {}

Result<std::shared_ptr<UcpEngine>> UcpEngine::make(
    std::shared_ptr<loaded::UcpSharedContext> context) {
  std::shared_ptr<UcpEngine> engine(new UcpEngine(std::move(context)));
  const auto held = engine->hold();
  GYRE_TRY(engine->open());
  return engine;
}

Status UcpEngine::open() {
  loaded::UcpWorkerParameters parameters{};
  parameters.field_mask = ucp::worker_thread_mode | ucp::worker_flags;
  parameters.thread_mode = ucp::serialized_threads;
  // Those of a peer that has ended never complete, and are nothing to warn of.
  parameters.flags = ucp::worker_may_leave_requests;
  loaded::UcpWorker* made = nullptr;
  if (const UcxStatus status = table().make_worker(context_->get(), &parameters, &made);
      status != ok)
    return ucp_failure(table(), "ucp_worker_create", status);
  worker_ = loaded::UcpWorkerHandle({&table(), made});
  loaded::UcpHandlerParameters handler{};
  handler.field_mask =
      ucp::handler_id | ucp::handler_flags | ucp::handler_function | ucp::handler_user;
  handler.id = message_id;
  handler.flags = ucp::handler_whole_message;
  handler.handler = on_message;
  handler.user = this;
  if (const UcxStatus status = table().handle_messages(made, &handler); status != ok)
    return ucp_failure(table(), "ucp_worker_set_am_recv_handler", status);
  if (const UcxStatus status = table().event_descriptor(made, &descriptor_); status != ok)
    return ucp_failure(table(), "ucp_worker_get_efd", status);
  return {};
}

bool UcpEngine::may_touch_worker() const {
  return context_->is_of_this_process() && descriptor_mark_stands();
}

UcpEngine::~UcpEngine() {
  const auto held = hold();
  if (!may_touch_worker()) {
    (void)worker_.release();
    for (Kept& one : kept_) (void)one.request.release();
    return;
  }
  if (worker_.has_value()) close_all();
  for (Kept& one : kept_) one.request.reset();
  worker_.reset();
}

void UcpEngine::close_all() {
  std::vector<UcpRequest> closing;
  for (auto& [address, peer] : peers_) closing.push_back(close(*peer, peer->failure != ok));
  for (const auto& peer : failed_) closing.push_back(close(*peer, true));
  const std::int64_t end_ns = SystemClock::read() + farewell_ns;
  const auto has_left = [&](const UcpRequest& one) {
    return !one.has_value() || status_of(one) != ucp::in_progress;
  };
  while (!std::ranges::all_of(closing, has_left) && SystemClock::read() < end_ns) {
    if (table().progress(worker_.get().object) != 0) continue;
    const timespec pause = {0, 50'000};
    nanosleep(&pause, nullptr);
  }
}

void UcpEngine::cut(UcpPeer& peer) noexcept {
  if (peer.endpoint == nullptr) return;
  loaded::UcpRequestParameters parameters{};
  parameters.field_mask = ucp::request_flags;
  parameters.flags = ucp::close_by_force;
  void* const closing = table().close_endpoint(std::exchange(peer.endpoint, nullptr), &parameters);
  peer.failure = ucp::canceled;
  if (!ucp::is_request(closing)) return;
  constexpr int max_turns = 1000;
  for (int i = 0; i < max_turns && table().request_status(closing) == ucp::in_progress; ++i)
    (void)table().progress(worker_.get().object);
  table().free_request(closing);
}

UcpRequest UcpEngine::close(UcpPeer& peer, bool by_force) {
  if (peer.endpoint == nullptr) return {};
  loaded::UcpRequestParameters parameters{};
  parameters.field_mask = ucp::request_flags;
  parameters.flags = by_force ? ucp::close_by_force : 0;
  loaded::UcpEndpoint* const endpoint = std::exchange(peer.endpoint, nullptr);
  auto closing = begun("ucp_ep_close_nbx", table().close_endpoint(endpoint, &parameters));
  return closing.ok() ? std::move(*closing) : UcpRequest();
}

Result<std::string> UcpEngine::address(Distance distance) const {
  loaded::UcpWorkerAttributes attributes{};
  attributes.field_mask = ucp::worker_address;
  if (distance == Distance::another_host) {
    attributes.field_mask |= ucp::worker_address_flags;
    attributes.address_flags = ucp::address_of_network_only;
  }
  loaded::UcpWorker* const worker = worker_.get().object;
  if (const UcxStatus status = table().query_worker(worker, &attributes); status != ok)
    return ucp_failure(table(), "ucp_worker_query", status);
  std::string text(reinterpret_cast<const char*>(attributes.address), attributes.address_bytes);
  table().release_address(worker, attributes.address);
  if (text.size() <= max_ucp_address) return text;
  return Status(Code::SystemError,
                fmt::format("UCX's address of this process has {} bytes, of which {} can be told: "
                            "leave out devices by UCX_NET_DEVICES, or transports by UCX_TLS",
                            text.size(), max_ucp_address));
}

Result<std::shared_ptr<UcpPeer>> UcpEngine::reach(const std::string& address, Distance distance) {
  std::shared_ptr<UcpPeer>& known = peers_[address];
  if (known != nullptr && known->failure == ok) return known;
  auto peer = std::make_shared<UcpPeer>();
  loaded::UcpEndpointParameters parameters{};
  parameters.field_mask =
      ucp::endpoint_address | ucp::endpoint_error_mode | ucp::endpoint_error_handler;
  parameters.address = reinterpret_cast<const loaded::UcpAddress*>(address.data());
  parameters.error_mode =
      distance == Distance::this_host ? ucp::errors_unhandled : ucp::errors_of_peer;
  parameters.on_error = on_error;
  parameters.on_error_user = peer.get();
  const UcxStatus status =
      table().make_endpoint(worker_.get().object, &parameters, &peer->endpoint);
  if (status != ok) {
    if (known == nullptr) peers_.erase(address);
    return ucp_failure(table(), "ucp_ep_create", status);
  }
  const std::vector<std::string> ways = ways_of(peer->endpoint);
  peer->way = ways.empty() ? "?" : fmt::format("{}", fmt::join(ways, ", "));
  peer->packet_bytes = packet_bytes_of(ways);
  if (known != nullptr) failed_.push_back(std::move(known));
  known = peer;
  return peer;
}

// Of the lines "lane[0]:  3:tcp/eth0.0 md[2] ..." that UCX prints of a connection.
std::vector<std::string> UcpEngine::ways_of(loaded::UcpEndpoint* endpoint) const {
  char* text = nullptr;
  std::size_t bytes = 0;
  std::FILE* const file = open_memstream(&text, &bytes);
  if (file == nullptr) return {};
  table().print_endpoint(endpoint, file);
  std::fclose(file);
  const std::string printed(text, bytes);
  std::free(text);
  std::vector<std::string> ways;
  std::string_view rest = printed;
  constexpr std::string_view lane = "lane[";
  for (std::size_t at = 0; (at = rest.find(lane)) != rest.npos;) {
    rest.remove_prefix(at + lane.size());
    std::string_view line = rest.substr(0, rest.find('\n'));
    line.remove_prefix(std::min(line.find("]:"), line.size()));
    line.remove_prefix(std::min(line.find(':', 2) + 1, line.size()));
    std::string name(line.substr(0, line.find(' ')));
    if (const std::size_t path = name.rfind('.'); path != name.npos) name.resize(path);
    if (!name.empty() && std::ranges::count(ways, name) == 0) ways.push_back(std::move(name));
  }
  return ways;
}

Result<std::uint64_t> UcpEngine::join(UcpSink& sink) {
  std::uint64_t link = 0;
  while (link == 0 || sinks_.contains(link))
    if (getrandom(&link, sizeof link, 0) != sizeof link)
      return Status::from_errno("getrandom", errno);
  sinks_[link] = &sink;
  return link;
}

void UcpEngine::progress() {
  ++turns_;
  (void)table().progress(worker_.get().object);
  if (!kept_.empty())
    std::erase_if(kept_,
                  [&](const Kept& one) { return status_of(one.request) != ucp::in_progress; });
}

bool UcpEngine::arm(WaitSet& set) {
  if (table().arm(worker_.get().object) != ok) return false;
  set.add_descriptor(descriptor_, POLLIN);
  return true;
}

Result<UcpRequest> UcpEngine::begun(std::string_view call, void* pointer) const {
  const UcxStatus status = ucp::status_of(pointer);
  if (status == ok) return UcpRequest();
  if (status != ucp::in_progress) return ucp_failure(table(), call, status);
  return UcpRequest({&table(), pointer});
}

// What is short the receiver expects whole. Of the rest UCX decides whether it is promised.
Result<UcpRequest> UcpEngine::send(const UcpPeer& peer, const UcpNotice& notice,
                                   std::span<const std::byte> bytes) {
  if (peer.endpoint == nullptr) return ucp_failure(table(), "ucp_am_send_nbx", ucp::canceled);
  const bool is_whole = peer.packet_bytes > 0 || bytes.size() <= UcpWindow::max_short_bytes;
  const loaded::UcpRequestParameters parameters =
      request_parameters(is_whole ? ucp::send_eager : 0);
  return begun("ucp_am_send_nbx", table().send(peer.endpoint, message_id, &notice, sizeof notice,
                                               bytes.data(), bytes.size(), &parameters));
}

Result<bool> UcpEngine::has_completed(UcpRequest& request, std::string_view failed) const {
  if (!request.has_value()) return true;
  const UcxStatus status = status_of(request);
  if (status == ucp::in_progress) return false;
  request.reset();
  if (status != ok) return ucp_failure(table(), failed, status);
  return true;
}

Status UcpEngine::tell(const UcpPeer& peer, const UcpNotice& notice,
                       std::vector<std::uint8_t> bytes) {
  if (peer.failure != ok) return {};  // whoever depends on it looks there
  struct Told {
    UcpNotice notice;
    std::vector<std::uint8_t> bytes;
  };
  const auto told = std::make_shared<const Told>(Told{notice, std::move(bytes)});
  GYRE_ASSIGN(UcpRequest request, send(peer, told->notice, std::as_bytes(std::span(told->bytes))));
  if (request.has_value()) keep(std::move(request), told);
  return {};
}

Result<UcpRequest> UcpEngine::fetch(const UcpArrival& arrival, std::byte* place) {
  const loaded::UcpRequestParameters parameters = request_parameters(0);
  return begun("ucp_am_recv_data_nbx", table().fetch(worker_.get().object, arrival.promise, place,
                                                     arrival.promised, &parameters));
}

void UcpEngine::keep(UcpRequest request, std::shared_ptr<const void> memory) {
  kept_.push_back({std::move(memory), std::move(request)});
}

UcxStatus UcpEngine::on_message(void* engine, const void* header, std::size_t header_bytes,
                                void* data, std::size_t bytes,
                                const loaded::UcpArrivalParameters* parameters) {
  UcpArrival arrival;
  if ((parameters->attributes & ucp::arrival_promised) != 0) {
    arrival.promise = data;
    arrival.promised = bytes;
  } else {
    arrival.bytes = {static_cast<const std::byte*>(data), bytes};
  }
  static_cast<UcpEngine*>(engine)->take({static_cast<const std::byte*>(header), header_bytes},
                                        arrival);
  return ok;
}

// Notices for links that are not there come late, or from strangers: both are dropped.
void UcpEngine::take(std::span<const std::byte> header, const UcpArrival& arrival) noexcept {
  const std::optional<UcpNotice> notice = read_ucp_notice(header);
  if (!notice) return;
  const auto sink = sinks_.find(notice->link);
  if (sink != sinks_.end()) sink->second->take(*notice, arrival);
}

void UcpEngine::on_error(void* peer, loaded::UcpEndpoint* /*endpoint*/, UcxStatus status) {
  static_cast<UcpPeer*>(peer)->failure = status;
}

}  // namespace gyre::transport
