// What a rank on a GPU tells of its host: a note when it joins, and the outline of the machine.
// Input: either. An accepted outline is sound. It is told on as it is, or less of it, and rings are
// found over it in few steps, or refused.
#include "lib/comm/machine_message.h"
#include "lib/topology/channels.h"
#include "lib/topology/outline.h"
#include "tests/fuzz/input.h"

namespace outline_fuzz {

using namespace gyre;
using namespace gyre::topology;

namespace {

void look_for_rings(const Topology& machine) {
  std::vector<int> gpus = machine.all(NodeKind::gpu);
  if (gpus.size() > 12) gpus.resize(12);
  if (gpus.empty()) return;
  for (const int hosts : {1, 2}) {
    const auto found =
        find_rings(equal_hosts(machine, hosts, gpus), {.max_steps = 20'000, .max_channels = 8});
    if (!found.ok()) {
      GYRE_DEMAND(fuzz::is_one_line(found.status().message()));
      continue;
    }
    GYRE_DEMAND(!found->channels.empty() && found->channels.size() <= 8);
    GYRE_DEMAND(fuzz::is_one_line(reason_text(*found)));
    for (const FoundChannel& channel : found->channels)
      GYRE_DEMAND(channel.order.size() == static_cast<std::size_t>(hosts) * gpus.size());
  }
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto note = comm::read_machine_note(text)) GYRE_DEMAND(encode(*note) == text);
  const Result<Topology> machine = comm::decode_outline(std::span(data, size));
  if (!machine.ok()) {
    GYRE_DEMAND(fuzz::is_one_line(machine.status().message()));
    return 0;
  }
  GYRE_DEMAND(check(*machine).ok());
  const Result<comm::OutlinedMachine> again = comm::outline_machine(*machine);
  GYRE_DEMAND(again.ok());
  GYRE_DEMAND(again->message.size() <= size && again->outline == outline(*machine));
  GYRE_DEMAND(*comm::decode_outline(again->message) == again->outline);
  GYRE_DEMAND(*comm::is_announced(again->message, again->note));
  look_for_rings(*machine);
  return 0;
}

GYRE_FUZZ_TARGET(outline)

}  // namespace outline_fuzz
