// Ranks on GPUs tell each other of their hosts' machines, so that all can search for the same
// rings. A rank joins with a MachineNote. A rank that lacks the machine of a note gets its outline
// in a message. A peer's bytes are never trusted.
#pragma once

#include "lib/control/control.h"
#include "lib/topology/topology.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace gyre::comm {

struct MachineNote {
  std::array<std::uint8_t, 16> fingerprint{};  // of the outline's message
  bool has_several_ways = false;               // see topology::has_several_ways
  friend bool operator==(const MachineNote&, const MachineNote&) = default;
};

std::string encode(const MachineNote& note);  // 32 digits and "+" or "-"
// Nothing if it is malformed, as an empty text is.
std::optional<MachineNote> read_machine_note(std::string_view text);

// An outline with all that this process tells of it.
struct OutlinedMachine {
  topology::Topology outline;
  control::MessageBytes message;
  MachineNote note;
};

// An error if the machine is larger than peers would take.
Result<OutlinedMachine> outline_machine(const topology::Topology& machine);

// Whether a message is the one that the note announces.
Result<bool> is_announced(std::span<const std::uint8_t> message, const MachineNote& note);
// Of a peer's message; the error says what is wrong with it.
Result<topology::Topology> decode_outline(std::span<const std::uint8_t> message);

}  // namespace gyre::comm
