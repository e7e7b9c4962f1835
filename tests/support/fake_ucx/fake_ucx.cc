#include "tests/support/fake_ucx/fake_ucx.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace gyre::loaded {

struct UcxAsync {};
struct UctWorker {};
struct UctConfig {};
struct UctComponent {
  std::string name;
};
struct UctDomain {
  std::string name;
};
struct UctInterface {
  const tests::FakeUcxTransport* transport = nullptr;
};

}  // namespace gyre::loaded

namespace gyre::tests {

using namespace loaded;

struct FakeUcx::State {
  FakeUcxOptions options;
  std::vector<UctComponent> components;
  int open_objects = 0;
  int calls = 0;
  std::map<std::string, int> calls_of;
};

namespace {

FakeUcx::State* ucx_fake = nullptr;

constexpr UcxStatus io_error = -3, no_device = -6, invalid_parameter = -5;

// Whether a call may go on; each function that can fail asks.
bool goes_on(const char* symbol) {
  ++ucx_fake->calls;
  const int number = ++ucx_fake->calls_of[symbol];
  return ucx_fake->options.failing != symbol || number < ucx_fake->options.failing_from;
}

template <typename Object>
UcxStatus make(const char* symbol, Object** made, Object value) {
  if (!goes_on(symbol)) return io_error;
  *made = new Object(std::move(value));
  ++ucx_fake->open_objects;
  return ucx::ok;
}

template <typename Object>
void destroy(Object* object) {
  delete object;
  --ucx_fake->open_objects;
}

template <std::size_t Bytes>
void copy_text(char (&field)[Bytes], const std::string& text) {
  std::strncpy(field, text.c_str(), Bytes - 1);
}

std::vector<FakeUcxTransport> transports_of(const std::string& component) {
  std::vector<FakeUcxTransport> found = ucx_fake->options.transports;
  std::erase_if(found, [&](const auto& one) { return one.component != component; });
  return found;
}

void version(unsigned* major, unsigned* minor, unsigned* release) {
  *major = ucx_fake->options.major;
  *minor = ucx_fake->options.minor;
  *release = ucx_fake->options.release;
}

const char* status_text(UcxStatus status) {
  return status == io_error ? "Input/output error" : "another error";
}

UcxStatus create_async(int mode, UcxAsync** async) {
  return mode != ucx::async_poll ? invalid_parameter : make("ucs_async_context_create", async, {});
}
UcxStatus create_worker(UcxAsync* async, int thread_mode, UctWorker** worker) {
  if (async == nullptr || thread_mode != ucx::single_thread) return invalid_parameter;
  return make("uct_worker_create", worker, {});
}

UcxStatus query_components(UctComponent*** components, unsigned* count) {
  if (!goes_on("uct_query_components")) return io_error;
  auto& known = ucx_fake->components;
  *components = new UctComponent*[known.size()];
  std::ranges::transform(known, *components, [](UctComponent& one) { return &one; });
  *count = static_cast<unsigned>(known.size());
  ++ucx_fake->open_objects;
  return ucx::ok;
}
void release_components(UctComponent** components) {
  delete[] components;
  --ucx_fake->open_objects;
}

UcxStatus query_component(UctComponent* component, UctComponentAttributes* attributes) {
  if (!goes_on("uct_component_query")) return io_error;
  const bool is_empty = transports_of(component->name).empty();
  if ((attributes->field_mask & ucx::component_name) != 0)
    copy_text(attributes->name, component->name);
  if ((attributes->field_mask & ucx::component_domain_count) != 0)
    attributes->domain_count = is_empty ? 0 : 1;
  if ((attributes->field_mask & ucx::component_domains) != 0 && !is_empty)
    copy_text(attributes->domains[0].name, component->name);
  return ucx::ok;
}

UcxStatus read_domain_config(UctComponent* /*component*/, const char* /*prefix*/,
                             const char* /*file*/, UctConfig** config) {
  return make("uct_md_config_read", config, {});
}
UcxStatus open_domain(UctComponent* component, const char* name, const UctConfig* config,
                      UctDomain** domain) {
  if (config == nullptr || component->name != name) return invalid_parameter;
  return make("uct_md_open", domain, {name});
}

UcxStatus query_resources(UctDomain* domain, UctResource** resources, unsigned* count) {
  if (!goes_on("uct_md_query_tl_resources")) return io_error;
  const std::vector<FakeUcxTransport> known = transports_of(domain->name);
  *resources = new UctResource[known.size()]{};
  for (std::size_t i = 0; i < known.size(); ++i) {
    copy_text((*resources)[i].transport, known[i].transport);
    copy_text((*resources)[i].device, known[i].device);
  }
  *count = static_cast<unsigned>(known.size());
  ++ucx_fake->open_objects;
  return ucx::ok;
}
void release_resources(UctResource* resources) {
  delete[] resources;
  --ucx_fake->open_objects;
}

UcxStatus read_interface_config(UctDomain* /*domain*/, const char* /*transport*/,
                                const char* /*prefix*/, const char* /*file*/, UctConfig** config) {
  return make("uct_md_iface_config_read", config, {});
}
UcxStatus open_interface(UctDomain* domain, UctWorker* worker,
                         const UctInterfaceParameters* parameters, const UctConfig* config,
                         UctInterface** opened) {
  if (worker == nullptr || config == nullptr || parameters->open_mode != ucx::open_device ||
      parameters->field_mask != (ucx::parameter_open_mode | ucx::parameter_device))
    return invalid_parameter;
  for (const FakeUcxTransport& one : ucx_fake->options.transports)
    if (one.component == domain->name && one.transport == parameters->transport &&
        one.device == parameters->device)
      return make("uct_iface_open", opened, {&one});
  return no_device;
}
UcxStatus query_interface(UctInterface* opened, UctInterfaceAttributes* attributes) {
  if (!goes_on("uct_iface_query")) return io_error;
  *attributes = {};
  attributes->overhead_s = opened->transport->overhead;
  attributes->dedicated_bytes_per_s = opened->transport->dedicated;
  attributes->shared_bytes_per_s = opened->transport->shared;
  attributes->latency_s = opened->transport->latency;
  attributes->latency_per_endpoint_s = opened->transport->latency_per_endpoint;
  return ucx::ok;
}

Ucx filled() {
  Ucx table;
  table.version = version;
  table.status_text = status_text;
  table.create_async = create_async;
  table.destroy_async = destroy<UcxAsync>;
  table.query_components = query_components;
  table.release_components = release_components;
  table.query_component = query_component;
  table.read_domain_config = read_domain_config;
  table.release_config = destroy<UctConfig>;
  table.open_domain = open_domain;
  table.close_domain = destroy<UctDomain>;
  table.query_resources = query_resources;
  table.release_resources = release_resources;
  table.create_worker = create_worker;
  table.destroy_worker = destroy<UctWorker>;
  table.read_interface_config = read_interface_config;
  table.open_interface = open_interface;
  table.close_interface = destroy<UctInterface>;
  table.query_interface = query_interface;
  return table;
}

}  // namespace

FakeUcx::FakeUcx(FakeUcxOptions options) : state_(std::make_unique<State>()) {
  for (const FakeUcxTransport& one : options.transports)
    if (std::ranges::find(state_->components, one.component, &UctComponent::name) ==
        state_->components.end())
      state_->components.push_back({one.component});
  state_->components.push_back({"empty"});
  state_->options = std::move(options);
  ucx_fake = state_.get();
}

FakeUcx::~FakeUcx() { ucx_fake = nullptr; }

Result<std::unique_ptr<const Ucx>> FakeUcx::load() const {
  const Ucx known = filled();
  const auto find = [&](const std::string& symbol) -> void* {
    if (symbol == state_->options.absent) return nullptr;
#define GYRE_FAKE_UCX_FIND(result, member, name, parameters) \
  if (symbol == name) return reinterpret_cast<void*>(known.member);
    GYRE_UCX_FUNCTIONS(GYRE_FAKE_UCX_FIND)
#undef GYRE_FAKE_UCX_FIND
    return nullptr;
  };
  auto table = std::make_unique<Ucx>();
  GYRE_TRY(find_ucx(*table, find));
  return std::unique_ptr<const Ucx>(std::move(table));
}

int FakeUcx::open_objects() const { return state_->open_objects; }
int FakeUcx::calls() const { return state_->calls; }

}  // namespace gyre::tests
