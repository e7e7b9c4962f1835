#include "transports/rdma/rail_ports.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace gyre::transport {
namespace {

const RdmaPort* find_port(const RdmaPorts& ports, std::string_view name) {
  const auto found = std::ranges::find(ports.usable, name, &RdmaPort::name);
  return found == ports.usable.end() ? nullptr : &*found;
}

// Of a port that is not among the usable ones. A device that cannot be opened is there by its own
// name.
std::string why_unusable(const RdmaPorts& ports, std::string_view name) {
  const std::string_view device = name.substr(0, name.rfind(':'));
  for (const std::string& one : ports.skipped)
    for (const std::string_view start : {name, device})
      if (one.starts_with(fmt::format("{}: ", start))) return one;
  return fmt::format("{}: there is no RDMA port of that name", name);
}

// Why find_ways leaves a planned port out.
std::string why_no_way(const RdmaPorts& ports, std::string_view announced, std::string_view name) {
  const RdmaPort* const port = find_port(ports, name);
  if (port == nullptr) return why_unusable(ports, name);
  return fmt::format("{}: {}", name,
                     find_ways({*port}, announced).empty()
                         ? "it is on no network that the peer is on"
                         : "it has less than a quarter of the fastest one's rate");
}

bool is_near(const IsNearPort& judge, const RdmaPort& port) {
  return judge == nullptr || judge(port.name());
}

RdmaGid gid_of(const RdmaAddress& one) { return {.gid = one.gid, .network = one.network}; }

bool fits(const RdmaPort& port, const RdmaGid& wanted) {
  const RdmaGid* const gid = port.on(wanted.network);
  return gid != nullptr && is_one_fabric(*gid, wanted);
}

class SendingChoice {
 public:
  SendingChoice(const RdmaPorts& ports, std::span<const RdmaAddress> there,
                std::span<const std::string> planned, const IsNearPort& is_near)
      : ports_(ports), there_(there), planned_(planned), is_near_(is_near) {
    chosen_.ways.resize(there.size());
  }

  SendingPorts choose() {
    for (std::size_t place = 0; place < planned_.size(); ++place) take_planned(place);
    // A rail that is planned there, but not here, could join ports that do not reach each other. It
    // is used if there is no other.
    for (std::size_t rail = 0; rail < there_.size(); ++rail)
      if (!is_planned(rail)) take_any(rail);
    const bool has_any =
        std::ranges::any_of(chosen_.ways, [](const RdmaWay& way) { return way.port != nullptr; });
    for (std::size_t rail = 0; rail < there_.size() && !has_any; ++rail) take_any(rail);
    return std::move(chosen_);
  }

 private:
  bool is_planned(std::size_t rail) const {
    return there_[rail].planned > 0 && there_[rail].planned <= planned_.size();
  }

  void take_planned(std::size_t place) {
    const std::string& name = planned_[place];
    const RdmaPort* const port = find_port(ports_, name);
    const auto wanted = static_cast<std::uint8_t>(place + 1);
    const auto there = std::ranges::find(there_, wanted, &RdmaAddress::planned);
    if (port == nullptr) {
      chosen_.unused.push_back(why_unusable(ports_, name));
    } else if (there == there_.end()) {
      chosen_.unused.push_back(fmt::format("{}: the peer does not take its port", name));
    } else if (!fits(*port, gid_of(*there))) {
      chosen_.unused.push_back(fmt::format("{}: it is on another network than the peer's port ({})",
                                           name, there->place));
    } else {
      chosen_.ways[static_cast<std::size_t>(there - there_.begin())] = {port, there->network,
                                                                        wanted};
    }
  }

  // Of the near ones, if there are: the one that fewest rails to the same fabric take, the best of
  // these.
  void take_any(std::size_t rail) {
    const RdmaGid wanted = gid_of(there_[rail]);
    const auto uses = [&](const RdmaPort& port) {
      std::ptrdiff_t count = 0;
      for (std::size_t other = 0; other < there_.size(); ++other)
        count += chosen_.ways[other].port == &port && is_one_fabric(gid_of(there_[other]), wanted);
      return count;
    };
    const RdmaPort* best = nullptr;
    const auto is_better = [&](const RdmaPort& port) {
      const bool near = is_near(is_near_, port), best_is_near = is_near(is_near_, *best);
      return near != best_is_near ? near : uses(port) < uses(*best);
    };
    for (const RdmaPort& port : ports_.usable)
      if (fits(port, wanted) && (best == nullptr || is_better(port))) best = &port;
    chosen_.ways[rail] = {.port = best, .network = wanted.network};
  }

  const RdmaPorts& ports_;
  const std::span<const RdmaAddress> there_;
  const std::span<const std::string> planned_;
  const IsNearPort& is_near_;
  SendingPorts chosen_;
};

}  // namespace

ReceivingPorts receiving_ports(const RdmaPorts& ports, std::string_view announced,
                               std::span<const std::string> planned, const IsNearPort& judge) {
  ReceivingPorts chosen;
  const std::vector<RdmaWay> ways = find_ways(ports.usable, announced);
  const auto named = [](const RdmaWay& way) { return way.port->name(); };
  for (std::size_t place = 0; place < planned.size(); ++place) {
    const auto way = std::ranges::find(ways, planned[place], named);
    if (way == ways.end()) {
      chosen.unused.push_back(why_no_way(ports, announced, planned[place]));
    } else if (chosen.ways.size() == max_rails) {
      chosen.unused.push_back(
          fmt::format("{}: a connection takes {} ports at most", planned[place], max_rails));
    } else {
      chosen.ways.push_back(*way);
      chosen.ways.back().planned = static_cast<std::uint8_t>(place + 1);
    }
  }
  const auto is_near_way = [&](const RdmaWay& way) { return is_near(judge, *way.port); };
  const bool takes_far = std::ranges::none_of(ways, is_near_way);
  for (const RdmaWay& way : ways)
    if (chosen.ways.size() < max_rails && (takes_far || is_near_way(way)) &&
        std::ranges::find(planned, named(way)) == planned.end())
      chosen.ways.push_back(way);
  return chosen;
}

SendingPorts sending_ports(const RdmaPorts& ports, std::span<const RdmaAddress> there,
                           std::span<const std::string> planned, const IsNearPort& judge) {
  return SendingChoice(ports, there, planned, judge).choose();
}

}  // namespace gyre::transport
