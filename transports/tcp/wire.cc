#include "transports/tcp/wire.h"

#include <fmt/core.h>

namespace gyre::transport {

WireHeader common_header(const LinkKey& key, const TransportEnvironment& environment) {
  WireHeader header;
  header.magic = wire_magic;
  header.version = wire_version;
  header.traffic = key.traffic;
  header.communicator_hash = environment.communicator_hash;
  header.epoch = environment.epoch;
  header.channel = key.channel;
  return header;
}

std::string wire_fault(const WireHeader& header, const WireHeader& common,
                       std::uint64_t expected_sequence, std::uint64_t max_bytes) {
  if (header.magic != common.magic) return fmt::format("magic {:#x}", header.magic);
  if (header.version != common.version)
    return fmt::format("wire version {}; here it is {}", header.version, common.version);
  if (header.communicator_hash != common.communicator_hash || header.epoch != common.epoch)
    return fmt::format("communicator {:x} of epoch {}; here it is {:x} of epoch {}",
                       header.communicator_hash, header.epoch, common.communicator_hash,
                       common.epoch);
  if (header.channel != common.channel || header.traffic != common.traffic)
    return fmt::format("channel {} of class {}; here it is {} of class {}", header.channel,
                       static_cast<int>(header.traffic), common.channel,
                       static_cast<int>(common.traffic));
  if ((header.flags & ~wire_flag::final) != 0)
    return fmt::format("unknown flags {:#x}", header.flags);
  if (header.call == 0 && (header.flags != 0 || header.place != 0))
    return fmt::format("place {} in no call, with flags {:#x}", header.place, header.flags);
  if (header.sequence != expected_sequence)
    return fmt::format("message number {}; expected {}", header.sequence, expected_sequence);
  if (header.bytes > max_bytes)
    return fmt::format("{} bytes of payload; a slot has {}", header.bytes, max_bytes);
  return {};
}

}  // namespace gyre::transport
