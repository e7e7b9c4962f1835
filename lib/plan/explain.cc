#include "lib/plan/explain.h"

#include "lib/plan/print.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace gyre::plan {

namespace {

constexpr std::size_t listed_links = 24;  // more are summed up

struct Growth {
  std::uint64_t max_messages = 0;  // that one rank sends
  std::uint64_t max_bytes = 0;
  std::uint64_t messages = 0;  // of all ranks
  std::uint64_t chain = 0;     // that wait for each other
};

Result<Growth> growth(const Algorithm& algorithm, PlanRequest request, std::uint64_t bytes) {
  GYRE_ASSIGN(const std::vector<Plan> plans, build_plans(algorithm, request));
  GYRE_ASSIGN(const Timeline flights, timeline(plans, bytes, 0));
  std::map<std::int32_t, Growth> by_rank;
  Growth all;
  for (const MessageInTransit& flight : flights.flights) {
    if (flight.from == flight.to) continue;
    Growth& sender = by_rank[flight.from];
    ++sender.messages;
    sender.max_bytes += flight.bytes;
    ++all.messages;
  }
  for (const auto& [rank, sent] : by_rank) {
    all.max_messages = std::max(all.max_messages, sent.messages);
    all.max_bytes = std::max(all.max_bytes, sent.max_bytes);
  }
  all.chain = flights.end;
  return all;
}

std::string describe_steps(std::span<const Plan> plans) {
  std::size_t steps = 0;
  std::size_t links = 0;
  std::uint32_t lanes = 0;
  for (const Plan& plan : plans) {
    lanes = std::max(lanes, plan.lane_count());
    for (const LaneSteps& lane : plan.parts().lanes) {
      steps = std::max(steps, lane.steps.size());
      links = std::max(links, lane.links.size());
    }
  }
  const Plan& first = plans.front();
  return fmt::format(
      "  chunks        {} ({} of scratch)\n"
      "  a rank has    at most {} lane(s), of {} step(s) and {} link(s) each\n"
      "  fifo depth    at least {}\n"
      "  in place of slots, where memory is shared: {}\n",
      first.chunk_count(), first.scratch_chunks(), lanes, steps, links, first.min_depth(),
      first.direct_in_place() ? "always"
      : first.direct()        ? "unless input and output are the same buffer"
                              : "never");
}

std::string describe_loads(const Timeline& flights, std::uint64_t total_bytes) {
  const std::vector<LinkLoad> loads = link_loads(flights);
  std::string text = fmt::format("\nWith {} bytes:\n", total_bytes);
  if (loads.size() <= listed_links) {
    text += "  from   to  channel  messages         bytes\n";
    for (const LinkLoad& load : loads) {
      text += fmt::format("  {:4} {:4}  {:7}  {:8}  {:12}\n", load.from, load.to, load.channel,
                          load.messages, load.bytes);
    }
    return text;
  }
  const auto by_bytes = [](const LinkLoad& a, const LinkLoad& b) { return a.bytes < b.bytes; };
  const auto [least, most] = std::minmax_element(loads.begin(), loads.end(), by_bytes);
  return text + fmt::format("  {} links carry {} to {} bytes each\n", loads.size(), least->bytes,
                            most->bytes);
}

// The same table for links of pairs and for a switch.
std::string describe_wires(const Timeline& flights, std::int32_t rank_count) {
  const std::vector<WireLoad> pairs = wire_loads(flights, rank_count, false);
  const std::vector<WireLoad> group = wire_loads(flights, rank_count, true);
  std::string text =
      "\nOver a rank's wires, delivered directly, and by multicast (NVLS):\n"
      "  rank          sent      received  sent by multicast      received  moves of the switch\n";
  for (std::size_t rank = 0; rank < pairs.size(); ++rank) {
    if (rank == listed_links) {
      text += fmt::format("  and {} more ranks\n", pairs.size() - rank);
      break;
    }
    text += fmt::format("  {:4}  {:12}  {:12}  {:17}  {:12}  {:19}\n", rank, pairs[rank].sent,
                        pairs[rank].received, group[rank].sent, group[rank].received,
                        group[rank].switch_moves);
  }
  return text;
}

}  // namespace

std::vector<LinkLoad> link_loads(const Timeline& timeline) {
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, LinkLoad> by_link;
  for (const MessageInTransit& flight : timeline.flights) {
    LinkLoad& load = by_link[{flight.from, flight.to, flight.channel}];
    load.from = flight.from;
    load.to = flight.to;
    load.channel = flight.channel;
    ++load.messages;
    load.bytes += flight.bytes;
  }
  std::vector<LinkLoad> loads;
  for (const auto& [link, load] : by_link) loads.push_back(load);
  return loads;
}

std::vector<WireLoad> wire_loads(const Timeline& timeline, std::int32_t rank_count,
                                 bool multicast) {
  std::vector<WireLoad> loads(static_cast<std::size_t>(rank_count));
  for (const MessageInTransit& flight : timeline.flights) {
    if (flight.from == flight.to) continue;
    WireLoad& from = loads[static_cast<std::size_t>(flight.from)];
    WireLoad& to = loads[static_cast<std::size_t>(flight.to)];
    const bool summed = multicast && flight.summed, spread = multicast && flight.spread;
    if (!spread || flight.first_sent) from.sent += flight.bytes;
    if (!summed || flight.first_received) to.received += flight.bytes;
    // The own part, to the switch and back.
    if (spread && flight.first_sent) from.received += flight.bytes, ++from.switch_moves;
    if (summed && flight.first_received) to.sent += flight.bytes, ++to.switch_moves;
  }
  return loads;
}

Result<std::string> explain(const Algorithm& algorithm, const PlanRequest& request,
                            std::uint64_t total_bytes, bool multicast) {
  GYRE_ASSIGN(const std::vector<Plan> plans, build_plans(algorithm, request));
  GYRE_ASSIGN(const Timeline flights, timeline(plans, total_bytes, 0));
  std::string text =
      fmt::format("{} {}, {} ranks\n  {}\n", algorithm.name, collective_name(request.collective),
                  request.rank_count, algorithm.idea);
  text += describe_steps(plans);
  if (sums(request.collective)) {
    text += fmt::format("  roundings     {} of a sum, made in {}\n",
                        roundings_text(algorithm.roundings),
                        algorithm.order == SumOrder::rank ? "rank order" : "a fixed order");
  }
  text += describe_loads(flights, total_bytes);
  if (multicast) text += describe_wires(flights, request.rank_count);
  text +=
      "\nAs the number of ranks grows, in a round:\n"
      "  ranks  messages of a rank     of all  longest chain  a rank sends, in units of data\n";
  PlanRequest grown = request;
  grown.order.clear();
  for (const std::int32_t n : {2, 3, 4, 8, 16, 32, 64}) {
    grown.rank_count = n;
    grown.root = std::min(request.root, n - 1);
    grown.hosts = n % request.hosts == 0 ? request.hosts : 1;
    const std::uint64_t unit = 1U << 20;
    GYRE_ASSIGN(const Growth count, growth(algorithm, grown, unit));
    text +=
        fmt::format("  {:5}  {:18}  {:9}  {:13}  {:.3f}\n", n, count.max_messages, count.messages,
                    count.chain, static_cast<double>(count.max_bytes) / static_cast<double>(unit));
  }
  return text;
}

}  // namespace gyre::plan
