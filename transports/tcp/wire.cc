#include "transports/tcp/wire.h"

#include <fmt/core.h>

#include <span>

namespace gyre::transport {
namespace {

// More than a sender can have on its way: numbers only grow, so what is beyond is an earlier one.
constexpr std::uint64_t max_messages_ahead = std::uint64_t{1} << 40;

}  // namespace

WireHeader common_header(const LinkKey& key, const TransportEnvironment& environment) {
  WireHeader header;
  header.version = wire_version;
  header.traffic = key.traffic;
  header.communicator_hash = environment.communicator_hash;
  header.epoch = environment.epoch;
  header.channel = key.channel;
  return header;
}

Checksum begin_checksum(WireHeader header) {
  header.checksum = 0;
  Checksum sum;
  sum.add(std::as_bytes(std::span(&header, 1)));
  return sum;
}

std::string wire_fault(const WireHeader& header, const WireHeader& common,
                       const ExpectedMessage& expected, std::uint64_t max_bytes) {
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
  if ((header.flags & ~(wire_flag::final | wire_flag::more)) != 0)
    return fmt::format("unknown flags {:#x}", header.flags);
  if (header.call == 0 && ((header.flags & wire_flag::final) != 0 || header.place != 0))
    return fmt::format("place {} in no call, with flags {:#x}", header.place, header.flags);
  const std::uint64_t later = header.sequence - expected.first;
  if (later != 0 && (expected.is_exact || later >= max_messages_ahead))
    return fmt::format("message number {}; expected {}{}", header.sequence, expected.first,
                       expected.is_exact ? "" : " or a later one");
  const std::uint64_t end = std::uint64_t{header.offset} + header.bytes;
  if (end > max_bytes) return fmt::format("payload up to byte {}; a slot has {}", end, max_bytes);
  const bool is_part = header.offset != 0 || (header.flags & wire_flag::more) != 0;
  if (is_part && (expected.is_exact || header.bytes == 0))
    return fmt::format("{} bytes at {} of a message that comes in one part", header.bytes,
                       header.offset);
  return {};
}

}  // namespace gyre::transport
