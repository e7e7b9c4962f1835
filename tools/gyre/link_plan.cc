#include "tools/gyre/link_plan.h"

#include "lib/api/c_api.h"
#include "lib/topology/speeds.h"
#include "tools/gyre/link_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <unistd.h>
#include <utility>

namespace gyre::tools {
namespace {

// All-reduces of floats that stand for small and large ones.
struct ModelCall {
  std::uint64_t bytes;
  const char* name;
};
constexpr ModelCall model_calls[] = {{8, "8 B"}, {64 << 20, "64 MiB"}};
// One connection of tcp carries as much on a core of these years, whatever the port could.
constexpr double max_tcp_bytes_per_s = 2.5e9;
constexpr std::size_t host_name_bytes = 64;

// By rank: whether a plan of this rank has a link to it. The algorithms' names go to `plans`.
Result<std::vector<std::uint8_t>> find_peers(comm::Backend& backend, int ranks,
                                             std::vector<std::string>& plans) {
  std::vector<std::uint8_t> peers(static_cast<std::size_t>(ranks));
  std::vector<std::pair<std::string, std::string>> sizes;  // by algorithm
  for (const ModelCall& call : model_calls) {
    comm::Request request;
    request.type = ElementType::float32;
    request.count = call.bytes / element_bytes(request.type);
    GYRE_TRY(backend.choose(request));
    const std::string name(backend.choice().algorithm->name);
    const auto known = std::ranges::find(sizes, name, &std::pair<std::string, std::string>::first);
    if (known == sizes.end())
      sizes.emplace_back(name, call.name);
    else
      known->second += std::string(" and ") + call.name;
    for (const plan::Plan& one : backend.chosen_plans())
      for (std::uint32_t lane = 0; lane < one.lane_count(); ++lane)
        for (const bool sends : {true, false}) {
          const std::vector<bool> used = plan::used_links(one.lane(lane), sends);
          for (std::size_t i = 0; i < used.size(); ++i)
            if (used[i]) peers[static_cast<std::size_t>(one.parts().lanes[lane].links[i].peer)] = 1;
        }
  }
  for (const auto& [name, of] : sizes)
    plans.push_back(fmt::format("{} (all-reduce of {})", name, of));
  return peers;
}

OwnLink own_link(const comm::PeerPath& path, bool same_host) {
  if (path.transport.empty()) return {"no transport", 0};
  if (same_host)
    return {path.path.exists ? fmt::format("{}, {}", path.transport, path.path.text)
                             : fmt::format("{} on one host", path.transport),
            0};
  OwnLink link{path.transport + " between hosts", 0};
  const bool is_known = path.path.exists && path.path.source == topology::FigureSource::known;
  if (is_known) link.known_bytes_per_s = path.path.gigabytes_per_s * 1e9;
  if (path.transport == "tcp")
    link.known_bytes_per_s = std::min(link.known_bytes_per_s, max_tcp_bytes_per_s);
  return link;
}

// Every rank's bytes, in the order of the ranks.
Result<std::vector<std::uint8_t>> gather(gyreComm_t comm, int ranks,
                                         const std::vector<std::uint8_t>& own) {
  std::vector<std::uint8_t> all(own.size() * static_cast<std::size_t>(ranks));
  GYRE_TRY(checked_call(gyreAllGather(own.data(), all.data(), own.size(), gyreUint8, comm, nullptr),
                        comm, "gyreAllGather"));
  return all;
}

Status gather_hosts(gyreComm_t comm, const std::vector<comm::PeerPath>& paths,
                    LinkJobFacts& facts) {
  std::vector<std::uint8_t> name(host_name_bytes);
  if (gethostname(reinterpret_cast<char*>(name.data()), name.size() - 1) != 0)
    return Status::from_errno("gethostname", errno);
  GYRE_ASSIGN(const std::vector<std::uint8_t> names, gather(comm, facts.ranks, name));
  for (int rank = 0; rank < facts.ranks; ++rank) {
    const int host = paths[static_cast<std::size_t>(rank)].host;
    facts.host_of_rank.push_back(host);
    if (host < static_cast<int>(facts.host_names.size())) continue;
    const char* const text = reinterpret_cast<const char*>(names.data()) +
                             static_cast<std::size_t>(rank) * host_name_bytes;
    facts.host_names.emplace_back(text, strnlen(text, host_name_bytes));
  }
  return {};
}

}  // namespace

Result<LinkPlan> learn_links(gyreComm_t comm, bool all_pairs) {
  LinkPlan found;
  LinkJobFacts& facts = found.facts;
  std::vector<comm::PeerPath> paths;
  std::vector<std::uint8_t> peers;
  {
    GYRE_ASSIGN(auto communicator, comm::find_communicator(comm));
    found.rank = communicator->rank();
    facts.ranks = communicator->size();
    paths = communicator->backend().peer_paths();
    GYRE_ASSIGN(peers, find_peers(communicator->backend(), facts.ranks, facts.plans));
  }
  facts.all_pairs = all_pairs;
  GYRE_TRY(gather_hosts(comm, paths, facts));
  const auto host = [&](int rank) { return facts.host_of_rank[static_cast<std::size_t>(rank)]; };
  for (int peer = 0; peer < facts.ranks; ++peer)
    found.own.push_back(
        own_link(paths[static_cast<std::size_t>(peer)], host(peer) == host(found.rank)));
  GYRE_ASSIGN(const std::vector<std::uint8_t> all, gather(comm, facts.ranks, peers));
  const auto uses = [&](int rank, int peer) {
    return all[static_cast<std::size_t>(rank * facts.ranks + peer)] != 0;
  };
  for (int low = 0; low < facts.ranks; ++low)
    for (int high = low + 1; high < facts.ranks; ++high)
      if (all_pairs || uses(low, high) || uses(high, low)) found.pairs.push_back({low, high});
  return found;
}

}  // namespace gyre::tools
