#include "lib/tune/level.h"

#include <fmt/core.h>

namespace gyre::tune {
namespace {

using topology::Medium;

std::string_view medium_text(Medium medium) {
  switch (medium) {
    case Medium::own_memory:
    case Medium::host_memory:
      return "the host's memory";
    case Medium::gpu_memory:
      return "GPU memory";
    case Medium::verbs:
      return "RDMA";
    case Medium::ucx:
      return "UCX";
    case Medium::sockets:
      break;
  }
  return "TCP";
}

std::string ranks_text(const Level& level) {
  const std::string_view part = level_part_name(level.part);
  if (level.parts == 1) return fmt::format("{} ranks in one {}", level.ranks, part);
  if (level.ranks == 0) return fmt::format("unequal numbers of ranks in {} {}s", level.parts, part);
  return fmt::format("{} ranks in each of {} {}s", level.ranks, level.parts, part);
}

}  // namespace

std::string_view level_part_name(LevelPart part) {
  switch (part) {
    case LevelPart::cache:
      return "cache";
    case LevelPart::numa_node:
      return "NUMA node";
    case LevelPart::package:
      return "package";
    case LevelPart::host:
      return "host";
    case LevelPart::network:
      break;
  }
  return "network";
}

double assumed_microseconds(Medium medium) {
  switch (medium) {
    case Medium::own_memory:
    case Medium::host_memory:
      return 0.3;
    case Medium::gpu_memory:
      return 3.4;
    case Medium::verbs:
    case Medium::ucx:
      return 14;
    case Medium::sockets:
      break;
  }
  return 14;
}

std::string levels_text(std::span<const Level> levels) {
  std::string text;
  for (const Level& level : levels) {
    text += fmt::format("{}{} by {}", text.empty() ? "" : "; ", ranks_text(level),
                        medium_text(level.medium));
    text += level.gigabytes_per_s > 0 ? fmt::format(", {:.3g} GB/s", level.gigabytes_per_s)
                                      : std::string(", no figure");
    text += fmt::format(", {:.2g} us assumed", assumed_microseconds(level.medium));
  }
  return text;
}

}  // namespace gyre::tune
