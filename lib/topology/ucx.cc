// UCX's transports, as it describes them itself. A description needs a transport's interface to be
// open on the device: each is opened, asked and closed again. No connection is made.
#include "lib/topology/discover.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

namespace gyre::topology {
namespace {

using loaded::UctComponent;
using loaded::UctDomain;
using loaded::UctResource;
using loaded::Ucx;
namespace ucx = loaded::ucx;

// What UCX takes for the speed of an interface that it does not know, in 10^9 bytes per second. It
// takes off the headers of packets, so that less is seen (UCX 1.9 to 1.22, src/uct/tcp/tcp_net.c).
constexpr double assumed_gigabytes_per_s = 0.0125;

template <std::size_t Bytes>
std::string text_of(const char (&field)[Bytes]) {
  return std::string(field, std::find(field, field + Bytes, '\0'));
}

// In other units; 0 for what is no figure.
double figure_of(double value, double factor) {
  const double figure = value * factor;
  return std::isfinite(figure) && figure > 0 && figure < 1e9 ? figure : 0;
}

// The port that is a device of UCX, by its name; the host if it is none.
TopologyNode& owner_of(Topology& topology, std::string_view device) {
  const auto is_it = [&](const TopologyNode& node) {
    return node.kind == NodeKind::port && device == port_name(node);
  };
  const auto found = std::ranges::find_if(topology.nodes, is_it);
  return found == topology.nodes.end() ? topology.nodes.front() : *found;
}

class UcxReader {
 public:
  UcxReader(Topology& topology, const Ucx& library) : topology_(topology), ucx_(library) {}

  void read() {
    const Status done = read_components();
    if (!done.ok()) miss("UCX's transports", done);
  }

 private:
  Status failed(std::string_view call, loaded::UcxStatus status) const {
    return invalid_usage(fmt::format("{} failed ({})", call, ucx_.status_text(status)));
  }

  void miss(std::string_view what, const Status& why) {
    topology_.missed.push_back(fmt::format("{}: {}", what, why.message()));
  }

  // An object that `make` makes; `call` is the library's name for that.
  template <typename Owner, typename Make>
  Status own(Owner& owner, std::string_view call, Make make) {
    typename Owner::Handle made{&ucx_, nullptr};
    const loaded::UcxStatus status = make(&made.object);
    if (status != ucx::ok) return failed(call, status);
    owner = Owner(made);
    return {};
  }

  Status read_components() {
    GYRE_TRY(own(async_, "ucs_async_context_create",
                 [&](auto** made) { return ucx_.create_async(ucx::async_poll, made); }));
    GYRE_TRY(own(worker_, "uct_worker_create", [&](auto** made) {
      return ucx_.create_worker(async_.get().object, ucx::single_thread, made);
    }));
    loaded::UcxComponents components;
    unsigned count = 0;
    GYRE_TRY(own(components, "uct_query_components",
                 [&](auto** made) { return ucx_.query_components(made, &count); }));
    for (UctComponent* const component : std::span(components.get().object, count)) {
      std::string name = "a component";
      const Status done = read_component(component, name);
      if (!done.ok()) miss(fmt::format("UCX's transports of {}", name), done);
    }
    return {};
  }

  // A component has memory domains, as "mlx5_0" of "ib", and each of these its transports.
  Status read_component(UctComponent* component, std::string& name) {
    loaded::UctComponentAttributes attributes{};
    attributes.field_mask = ucx::component_name | ucx::component_domain_count;
    if (const auto status = ucx_.query_component(component, &attributes); status != ucx::ok)
      return failed("uct_component_query", status);
    name = text_of(attributes.name);
    std::vector<loaded::UctDomainName> domains(attributes.domain_count);
    if (domains.empty()) return {};
    attributes.field_mask = ucx::component_domains;
    attributes.domains = domains.data();
    if (const auto status = ucx_.query_component(component, &attributes); status != ucx::ok)
      return failed("uct_component_query", status);
    for (const loaded::UctDomainName& domain : domains) {
      const std::string domain_name = text_of(domain.name);
      const Status done = read_domain(component, domain_name);
      if (!done.ok()) miss(fmt::format("UCX's transports of {} {}", name, domain_name), done);
    }
    return {};
  }

  Status read_domain(UctComponent* component, const std::string& name) {
    loaded::UcxConfig config;
    GYRE_TRY(own(config, "uct_md_config_read", [&](auto** made) {
      return ucx_.read_domain_config(component, nullptr, nullptr, made);
    }));
    loaded::UcxDomain domain;
    GYRE_TRY(own(domain, "uct_md_open", [&](auto** made) {
      return ucx_.open_domain(component, name.c_str(), config.get().object, made);
    }));
    loaded::UcxResources resources;
    unsigned count = 0;
    GYRE_TRY(own(resources, "uct_md_query_tl_resources", [&](auto** made) {
      return ucx_.query_resources(domain.get().object, made, &count);
    }));
    for (const UctResource& resource : std::span(resources.get().object, count)) {
      const Status done = read_transport(domain.get().object, resource);
      if (!done.ok())
        miss(fmt::format("UCX's {} on {}", text_of(resource.transport), text_of(resource.device)),
             done);
    }
    return {};
  }

  Status read_transport(UctDomain* domain, const UctResource& resource) {
    UcxTransport transport;
    transport.transport = text_of(resource.transport);
    transport.device = text_of(resource.device);
    loaded::UcxConfig config;
    GYRE_TRY(own(config, "uct_md_iface_config_read", [&](auto** made) {
      return ucx_.read_interface_config(domain, transport.transport.c_str(), nullptr, nullptr,
                                        made);
    }));
    loaded::UctInterfaceParameters parameters{};
    parameters.field_mask = ucx::parameter_open_mode | ucx::parameter_device;
    parameters.open_mode = ucx::open_device;
    parameters.transport = transport.transport.c_str();
    parameters.device = transport.device.c_str();
    loaded::UcxInterface opened;
    GYRE_TRY(own(opened, "uct_iface_open", [&](auto** made) {
      return ucx_.open_interface(domain, worker_.get().object, &parameters, config.get().object,
                                 made);
    }));
    loaded::UctInterfaceAttributes attributes{};
    if (const auto status = ucx_.query_interface(opened.get().object, &attributes);
        status != ucx::ok)
      return failed("uct_iface_query", status);
    return place(std::move(transport), attributes);
  }

  Status place(UcxTransport transport, const loaded::UctInterfaceAttributes& attributes) {
    TopologyNode& owner = owner_of(topology_, transport.device);
    const auto is_same = [&](const UcxTransport& one) {
      return one.transport == transport.transport && one.device == transport.device;
    };
    if (std::ranges::any_of(owner.ucx, is_same)) return invalid_usage("UCX has it twice");
    transport.dedicated_gigabytes_per_s = figure_of(attributes.dedicated_bytes_per_s, 1e-9);
    transport.shared_gigabytes_per_s = figure_of(attributes.shared_bytes_per_s, 1e-9);
    transport.latency_us = figure_of(attributes.latency_s, 1e6);
    transport.latency_per_endpoint_us = figure_of(attributes.latency_per_endpoint_s, 1e6);
    transport.overhead_us = figure_of(attributes.overhead_s, 1e6);
    const bool is_assumed = transport.transport == "tcp" && owner.gigabytes_per_s <= 0 &&
                            transport.gigabytes_per_s() <= assumed_gigabytes_per_s;
    if (is_assumed)
      transport.dedicated_gigabytes_per_s = transport.shared_gigabytes_per_s =
          transport.latency_us = 0;
    owner.ucx.push_back(std::move(transport));
    return {};
  }

  Topology& topology_;
  const Ucx& ucx_;
  loaded::UcxAsyncContext async_;  // outlives the worker
  loaded::UcxWorker worker_;
};

}  // namespace

void add_ucx(Topology& topology, const Ucx& ucx) { UcxReader(topology, ucx).read(); }

}  // namespace gyre::topology
