#include "tests/support/fake_ucx/fake_ucp.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

namespace gyre::tests {

struct FakeUcpRequest {
  loaded::UcxStatus status = loaded::ucp::in_progress;
  bool is_freed = false;
};

// A message under way. A promised one still lies at the sender.
struct FakeUcpPacket {
  std::vector<std::byte> header, bytes;
  const std::byte* promised = nullptr;
  std::size_t promised_bytes = 0;
  FakeUcpRequest* request = nullptr;
  const void* from = nullptr;  // the connection
};

}  // namespace gyre::tests

namespace gyre::loaded {

struct UcpConfig {};
struct UcpContext {};
struct UcpWorker {
  std::uint64_t number = 0;
  int events = -1;
  UcpMessageHandler handler = nullptr;
  void* handler_user = nullptr;
  std::deque<tests::FakeUcpPacket> inbox;
  std::vector<tests::FakeUcpRequest*> slow;  // done when it moves on
};
struct UcpEndpoint {
  UcpWorker* from = nullptr;
  std::uint64_t to = 0;
  UcpErrorHandler on_error = nullptr;
  void* on_error_user = nullptr;
  UcxStatus failure = ucx::ok;
  bool has_told = false;
};

}  // namespace gyre::loaded

namespace gyre::tests {

using namespace loaded;

struct FakeUcp::State {
  FakeUcpOptions options;
  Ucp table;
  mutable std::recursive_mutex mutex;
  std::map<std::string, int, std::less<>> calls;
  std::set<UcpWorker*> workers;
  std::set<UcpEndpoint*> endpoints;
  std::set<FakeUcpRequest*> requests;
  int contexts = 0;
  std::uint64_t next_worker = 1;
  bool holds_back = false;
  std::list<std::pair<std::uint64_t, FakeUcpPacket>> held;
  std::vector<std::string> changes;
  State* before = nullptr;  // the fake that this one hides
};

namespace {

FakeUcp::State* ucp_fake = nullptr;

constexpr UcxStatus ucp_io_error = -3, ucp_endpoint_timeout = -80;

using Locked = std::lock_guard<std::recursive_mutex>;

bool ucp_goes_on(std::string_view symbol) {
  const int number = ++ucp_fake->calls[std::string(symbol)];
  return ucp_fake->options.failing != symbol || number != ucp_fake->options.failing_at;
}

void* as_pointer(UcxStatus status) {
  return reinterpret_cast<void*>(static_cast<std::intptr_t>(status));
}

FakeUcpRequest* new_request() {
  auto* const request = new FakeUcpRequest;
  ucp_fake->requests.insert(request);
  return request;
}

void complete(FakeUcpRequest* request, UcxStatus status) {
  if (request == nullptr || request->status != ucp::in_progress) return;
  request->status = status;
  if (!request->is_freed) return;
  ucp_fake->requests.erase(request);
  delete request;
}

UcpWorker* worker_of(std::uint64_t number) {
  for (UcpWorker* const one : ucp_fake->workers)
    if (one->number == number) return one;
  return nullptr;
}

void deliver(std::uint64_t to, FakeUcpPacket packet) {
  UcpWorker* const worker = worker_of(to);
  if (worker == nullptr) return complete(packet.request, ucp_endpoint_timeout);
  worker->inbox.push_back(std::move(packet));
  eventfd_write(worker->events, 1);
}

void ucp_version(unsigned* major, unsigned* minor, unsigned* release) {
  *major = ucp_fake->options.major;
  *minor = ucp_fake->options.minor;
  *release = ucp_fake->options.release;
}

const char* ucp_status_text(UcxStatus status) {
  if (status == ucp_io_error) return "Input/output error";
  return status == ucp_endpoint_timeout ? "Endpoint timeout" : "another error";
}

UcxStatus read_config(const char* /*prefix*/, const char* /*file*/, UcpConfig** config) {
  const Locked lock(ucp_fake->mutex);
  if (!ucp_goes_on("ucp_config_read")) return ucp_io_error;
  *config = new UcpConfig;
  return ucx::ok;
}
UcxStatus modify_config(UcpConfig* /*config*/, const char* name, const char* value) {
  const Locked lock(ucp_fake->mutex);
  if (!ucp_goes_on("ucp_config_modify")) return ucp_io_error;
  ucp_fake->changes.push_back(std::string(name) + "=" + value);
  return ucx::ok;
}
void release_config(UcpConfig* config) { delete config; }

UcxStatus make_context(unsigned /*major*/, unsigned /*minor*/, const UcpParameters* parameters,
                       const UcpConfig* /*config*/, UcpContext** context) {
  const Locked lock(ucp_fake->mutex);
  if (!ucp_goes_on("ucp_init_version") || parameters->workers_shared != 1) return ucp_io_error;
  *context = new UcpContext;
  ++ucp_fake->contexts;
  return ucx::ok;
}
void destroy_context(UcpContext* context) {
  const Locked lock(ucp_fake->mutex);
  delete context;
  --ucp_fake->contexts;
}
UcxStatus query_context(UcpContext* /*context*/, UcpContextAttributes* attributes) {
  const Locked lock(ucp_fake->mutex);
  if (!ucp_goes_on("ucp_context_query")) return ucp_io_error;
  attributes->thread_mode =
      ucp_fake->options.is_threaded ? ucp::multiple_threads : ucp::serialized_threads;
  return ucx::ok;
}

UcxStatus make_worker(UcpContext* /*context*/, const UcpWorkerParameters* /*parameters*/,
                      UcpWorker** worker) {
  const Locked lock(ucp_fake->mutex);
  if (!ucp_goes_on("ucp_worker_create")) return ucp_io_error;
  *worker = new UcpWorker;
  (*worker)->number = ucp_fake->next_worker++;
  (*worker)->events = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  ucp_fake->workers.insert(*worker);
  return ucx::ok;
}
void destroy_worker(UcpWorker* worker) {
  const Locked lock(ucp_fake->mutex);
  ucp_fake->workers.erase(worker);
  for (FakeUcpPacket& packet : worker->inbox) complete(packet.request, ucp::canceled);
  for (FakeUcpRequest* const one : worker->slow) complete(one, ucp::canceled);
  ::close(worker->events);
  std::erase_if(ucp_fake->endpoints, [&](UcpEndpoint* one) {
    if (one->from != worker) return false;
    delete one;
    return true;
  });
  delete worker;
}

UcxStatus query_worker(UcpWorker* worker, UcpWorkerAttributes* attributes) {
  const Locked lock(ucp_fake->mutex);
  if (!ucp_goes_on("ucp_worker_query")) return ucp_io_error;
  const std::size_t bytes = std::max<std::size_t>(ucp_fake->options.address_bytes, 8);
  auto* const address = new char[bytes]();
  std::memcpy(address, &worker->number, sizeof worker->number);
  attributes->address = reinterpret_cast<UcpAddress*>(address);
  attributes->address_bytes = bytes;
  return ucx::ok;
}
void release_address(UcpWorker* /*worker*/, UcpAddress* address) {
  delete[] reinterpret_cast<char*>(address);
}

UcxStatus event_descriptor(UcpWorker* worker, int* descriptor) {
  const Locked lock(ucp_fake->mutex);
  if (!ucp_goes_on("ucp_worker_get_efd")) return ucp_io_error;
  *descriptor = worker->events;
  return ucx::ok;
}
UcxStatus arm(UcpWorker* worker) {
  const Locked lock(ucp_fake->mutex);
  if (!ucp_goes_on("ucp_worker_arm")) return ucp_io_error;
  if (!worker->inbox.empty() || !worker->slow.empty()) return ucp::busy;
  eventfd_t count = 0;
  (void)eventfd_read(worker->events, &count);
  return ucx::ok;
}

void tell_failures(UcpWorker* worker) {
  std::vector<UcpEndpoint*> failed;
  for (UcpEndpoint* const one : ucp_fake->endpoints)
    if (one->from == worker && one->failure != ucx::ok && !one->has_told) failed.push_back(one);
  for (UcpEndpoint* const one : failed) {
    one->has_told = true;
    one->on_error(one->on_error_user, one, one->failure);
  }
}

unsigned progress(UcpWorker* worker) {
  const Locked lock(ucp_fake->mutex);
  ++ucp_fake->calls["ucp_worker_progress"];
  unsigned moved = 0;
  for (FakeUcpRequest* const one : std::exchange(worker->slow, {})) {
    complete(one, ucx::ok);
    ++moved;
  }
  tell_failures(worker);
  for (std::size_t count = worker->inbox.size(); count > 0; --count, ++moved) {
    FakeUcpPacket packet = std::move(worker->inbox.front());
    worker->inbox.pop_front();
    const bool is_promise = packet.request != nullptr;
    const UcpArrivalParameters parameters{is_promise ? ucp::arrival_promised : 0, nullptr};
    worker->handler(worker->handler_user, packet.header.data(), packet.header.size(),
                    is_promise ? static_cast<void*>(&packet) : packet.bytes.data(),
                    is_promise ? packet.promised_bytes : packet.bytes.size(), &parameters);
    // What nobody fetched is dropped.
    complete(packet.request, ucx::ok);
  }
  return moved;
}

UcxStatus handle_messages(UcpWorker* worker, const UcpHandlerParameters* parameters) {
  const Locked lock(ucp_fake->mutex);
  if (!ucp_goes_on("ucp_worker_set_am_recv_handler")) return ucp_io_error;
  worker->handler = parameters->handler;
  worker->handler_user = parameters->user;
  return ucx::ok;
}

UcxStatus make_endpoint(UcpWorker* worker, const UcpEndpointParameters* parameters,
                        UcpEndpoint** endpoint) {
  const Locked lock(ucp_fake->mutex);
  if (!ucp_goes_on("ucp_ep_create")) return ucp_io_error;
  *endpoint = new UcpEndpoint;
  (*endpoint)->from = worker;
  std::memcpy(&(*endpoint)->to, parameters->address, sizeof(*endpoint)->to);
  (*endpoint)->on_error = parameters->on_error;
  (*endpoint)->on_error_user = parameters->on_error_user;
  ucp_fake->endpoints.insert(*endpoint);
  return ucx::ok;
}

void* soon(UcpWorker* worker) {
  if (!ucp_fake->options.is_slow) return nullptr;
  FakeUcpRequest* const request = new_request();
  worker->slow.push_back(request);
  eventfd_write(worker->events, 1);
  return request;
}

// By force: what was promised over the connection is taken back.
void* close_endpoint(UcpEndpoint* endpoint, const UcpRequestParameters* parameters) {
  const Locked lock(ucp_fake->mutex);
  if (!ucp_goes_on("ucp_ep_close_nbx")) return as_pointer(ucp_io_error);
  UcpWorker* const worker = endpoint->from;
  if ((parameters->flags & ucp::close_by_force) != 0)
    if (UcpWorker* const there = worker_of(endpoint->to); there != nullptr)
      std::erase_if(there->inbox, [&](const FakeUcpPacket& packet) {
        if (packet.from != endpoint || packet.request == nullptr) return false;
        complete(packet.request, ucp::canceled);
        return true;
      });
  ucp_fake->endpoints.erase(endpoint);
  delete endpoint;
  return soon(worker);
}

void print_endpoint(UcpEndpoint* /*endpoint*/, std::FILE* file) {
  const Locked lock(ucp_fake->mutex);
  std::fputs("#\n# UCP endpoint\n", file);
  std::size_t lane = 0;
  for (const std::string& way : ucp_fake->options.ways) {
    std::fprintf(file, "#   lane[%zu]:  %zu:%s.%zu md[%zu] -> md[1]/fake am\n", lane, lane + 1,
                 way.c_str(), lane, lane + 1);
    ++lane;
  }
}

std::vector<std::byte> copy_of(const void* data, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(data);
  return bytes == 0 ? std::vector<std::byte>() : std::vector<std::byte>(begin, begin + bytes);
}

void* send(UcpEndpoint* endpoint, unsigned /*id*/, const void* header, std::size_t header_bytes,
           const void* data, std::size_t bytes, const UcpRequestParameters* parameters) {
  const Locked lock(ucp_fake->mutex);
  if (!ucp_goes_on("ucp_am_send_nbx")) return as_pointer(ucp_io_error);
  if (endpoint->failure != ucx::ok) return as_pointer(endpoint->failure);
  FakeUcpPacket packet;
  packet.header = copy_of(header, header_bytes);
  packet.from = endpoint;
  void* result = nullptr;
  // Who says nothing leaves it to UCX.
  const bool is_long = (parameters->flags & ucp::send_eager) == 0 && bytes > 16 << 10;
  if (is_long || (parameters->flags & ucp::send_rendezvous) != 0) {
    packet.promised = static_cast<const std::byte*>(data);
    packet.promised_bytes = bytes;
    result = packet.request = new_request();
  } else {
    packet.bytes = copy_of(data, bytes);
    result = soon(endpoint->from);
  }
  if (ucp_fake->holds_back)
    ucp_fake->held.emplace_back(endpoint->to, std::move(packet));
  else
    deliver(endpoint->to, std::move(packet));
  return result;
}

void* fetch(UcpWorker* worker, void* promised, void* place, std::size_t bytes,
            const UcpRequestParameters* /*parameters*/) {
  const Locked lock(ucp_fake->mutex);
  if (!ucp_goes_on("ucp_am_recv_data_nbx")) return as_pointer(ucp_io_error);
  const auto& packet = *static_cast<const FakeUcpPacket*>(promised);
  std::copy_n(packet.promised, std::min(bytes, packet.promised_bytes),
              static_cast<std::byte*>(place));
  return soon(worker);
}

UcxStatus request_status(void* request) {
  const Locked lock(ucp_fake->mutex);
  const UcxStatus status = static_cast<FakeUcpRequest*>(request)->status;
  if (status == ucx::ok && !ucp_goes_on("ucp_request_check_status")) return ucp_io_error;
  return status;
}
void free_request(void* request) {
  const Locked lock(ucp_fake->mutex);
  auto* const one = static_cast<FakeUcpRequest*>(request);
  one->is_freed = true;
  if (one->status == ucp::in_progress) return;
  ucp_fake->requests.erase(one);
  delete one;
}

void push_log_handler(UcxLogHandler /*handler*/) {}

Ucp filled_ucp() {
  Ucp table;
  table.version = ucp_version;
  table.status_text = ucp_status_text;
  table.read_config = read_config;
  table.modify_config = modify_config;
  table.release_config = release_config;
  table.make_context = make_context;
  table.destroy_context = destroy_context;
  table.query_context = query_context;
  table.make_worker = make_worker;
  table.destroy_worker = destroy_worker;
  table.query_worker = query_worker;
  table.release_address = release_address;
  table.event_descriptor = event_descriptor;
  table.arm = arm;
  table.progress = progress;
  table.handle_messages = handle_messages;
  table.make_endpoint = make_endpoint;
  table.close_endpoint = close_endpoint;
  table.print_endpoint = print_endpoint;
  table.send = send;
  table.fetch = fetch;
  table.request_status = request_status;
  table.free_request = free_request;
  table.push_log_handler = push_log_handler;
  return table;
}

}  // namespace

FakeUcp::FakeUcp(FakeUcpOptions options) : state_(std::make_unique<State>()) {
  state_->options = std::move(options);
  state_->table = filled_ucp();
  state_->before = std::exchange(ucp_fake, state_.get());
}

FakeUcp::~FakeUcp() { ucp_fake = state_->before; }

const Ucp& FakeUcp::table() const { return state_->table; }

Result<std::unique_ptr<const Ucp>> FakeUcp::load() const {
  const auto find = [&](const std::string& symbol) -> void* {
    if (symbol == state_->options.absent) return nullptr;
#define GYRE_FAKE_UCP_FIND(result, member, name, parameters) \
  if (symbol == name) return reinterpret_cast<void*>(state_->table.member);
    GYRE_UCP_FUNCTIONS(GYRE_FAKE_UCP_FIND)
#undef GYRE_FAKE_UCP_FIND
    return nullptr;
  };
  auto table = std::make_unique<Ucp>();
  GYRE_TRY(find_ucp(*table, find));
  return std::unique_ptr<const Ucp>(std::move(table));
}

int FakeUcp::open_objects() const {
  const Locked lock(state_->mutex);
  return state_->contexts + static_cast<int>(state_->workers.size() + state_->endpoints.size() +
                                             state_->requests.size());
}

int FakeUcp::calls_of(const std::string& symbol) const {
  const Locked lock(state_->mutex);
  const auto found = state_->calls.find(symbol);
  return found == state_->calls.end() ? 0 : found->second;
}

std::vector<std::string> FakeUcp::changes() const {
  const Locked lock(state_->mutex);
  return state_->changes;
}

void FakeUcp::cut_all() {
  const Locked lock(state_->mutex);
  for (UcpEndpoint* const one : state_->endpoints) {
    one->failure = ucp_endpoint_timeout;
    eventfd_write(one->from->events, 1);
  }
}

void FakeUcp::hold_back(bool held) {
  const Locked lock(state_->mutex);
  state_->holds_back = held;
  if (held) return;
  for (auto& [to, packet] : std::exchange(state_->held, {})) deliver(to, std::move(packet));
}

const std::vector<std::string_view>& fallible_ucp() {
  static const std::vector<std::string_view> names = {
      "ucp_config_read",    "ucp_init_version",        "ucp_context_query",
      "ucp_worker_create",  "ucp_worker_query",        "ucp_worker_set_am_recv_handler",
      "ucp_worker_get_efd", "ucp_worker_arm",          "ucp_ep_create",
      "ucp_ep_close_nbx",   "ucp_am_send_nbx",         "ucp_am_recv_data_nbx",
      "ucp_config_modify",  "ucp_request_check_status"};
  return names;
}

}  // namespace gyre::tests
