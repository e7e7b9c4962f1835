#include "lib/comm/rank_layout.h"

#include "lib/comm/join_info.h"
#include "lib/device/gpu_info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>

namespace gyre::comm {

RankLayout::RankLayout(const control::Roster& roster) {
  std::map<trust::Token, int> hosts;
  for (std::size_t rank = 0; rank < roster.process_of_rank.size(); ++rank) {
    const trust::ProcessIdentity& process = roster.processes[roster.process_of_rank[rank]];
    const int host = hosts.try_emplace(process.host, static_cast<int>(hosts.size())).first->second;
    const JoinInfo note = read_join_info(roster.notes[rank]);
    const std::optional<GpuInfo> gpu = read_gpu_info(note.device);
    ranks_.push_back(
        {host, topology::decode_locality(note.locality), gpu ? gpu->bus_id : std::string()});
  }
  order_ = topology::near_order(ranks_);
  if (std::ranges::is_sorted(order_)) order_.clear();
  count_hosts();
}

void RankLayout::count_hosts() {
  for (const topology::HostedLocality& rank : ranks_) {
    const auto host = static_cast<std::size_t>(rank.host);
    ranks_on_host_.resize(std::max(ranks_on_host_.size(), host + 1));
    ++ranks_on_host_[host];
  }
  const auto [least, most] = std::ranges::minmax(ranks_on_host_);
  if (least == most) equal_hosts_ = static_cast<std::int32_t>(ranks_on_host_.size());
}

std::string RankLayout::text() const {
  constexpr std::size_t max_shown = 32;
  const std::string hosts =
      ranks_on_host_.size() == 1
          ? fmt::format("one host of {} ranks", ranks_.size())
          : fmt::format("{} hosts of {} ranks", ranks_on_host_.size(),
                        fmt::join(ranks_on_host_.begin(),
                                  ranks_on_host_.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                               max_shown, ranks_on_host_.size())),
                                  ", "));
  if (order_.empty()) return hosts + ", rings in rank order";
  const std::span<const std::int32_t> shown(order_.data(), std::min(max_shown, order_.size()));
  return fmt::format("{}, rings in the order {}{}", hosts, fmt::join(shown, " "),
                     shown.size() < order_.size() ? " ..." : "");
}

}  // namespace gyre::comm
