#include "lib/cuda/relay_message.h"

#include "kernels/cuda/launch.h"

#include <fmt/core.h>

namespace gyre::exec {
namespace {

// Of the bits of a pushed tail's flag: 16 of the channel above those of the number, and these.
constexpr int signature_bits = 24, number_bits = 24;
constexpr std::uint64_t low_bits = (1 << 24) - 1;
static_assert(cuda::max_channels <= 1 << 16);

Status refuse(std::string what) { return Status(Code::RemoteError, std::move(what)); }

Status check_tail(const RelayMessage& said, std::size_t payload, const DeviceShape& shape,
                  const RelayCounts& counts) {
  if (said.bytes != payload || said.bytes > shape.slot_bytes)
    return refuse(
        fmt::format("its message {} on channel {} has {} bytes and says {}; a slot has "
                    "{}",
                    said.number, said.channel, payload, said.bytes, shape.slot_bytes));
  if (said.number != counts.landed + 1)
    return refuse(fmt::format("its message {} on channel {} is out of order: {} is next",
                              said.number, said.channel, counts.landed + 1));
  // It was told how far kernels here have come; what they have not read is not written over.
  const std::uint64_t slots = 1ULL << shape.slot_shift;
  if (counts.landed - counts.returned >= slots)
    return refuse(fmt::format("its message {} on channel {} finds no free slot of {}", said.number,
                              said.channel, slots));
  constexpr std::uint64_t kept = transport::flag_sequence(~0ULL);
  if (transport::flag_sequence(said.flag) != (said.number & kept))
    return refuse(fmt::format("its message {} on channel {} is numbered {} in its note",
                              said.number, said.channel, transport::flag_sequence(said.flag)));
  return {};
}

// Several releases may come as one.
Status check_head(const RelayMessage& said, std::size_t payload, const RelayCounts& counts) {
  if (payload != 0 || said.flag != 0 || said.bytes != 0)
    return refuse(fmt::format("its release of messages carries {} bytes", payload));
  if (said.number == counts.freed || said.number - counts.freed > counts.sent - counts.freed)
    return refuse(fmt::format("on channel {} it has released {}, after {}; sent were {}",
                              said.channel, said.number, counts.freed, counts.sent));
  return {};
}

}  // namespace

std::uint64_t pushed_flag(const RelayMessage& tail) {
  return std::uint64_t{tail.channel} << (number_bits + signature_bits) |
         (tail.number & low_bits) << signature_bits | (tail.flag & low_bits);
}

Result<RelayMessage> take_pushed_message(const transport::SlotHeader& note,
                                         const DeviceShape& shape, std::span<RelayCounts> counts) {
  const auto channel = static_cast<std::uint32_t>(note.flag >> (number_bits + signature_bits));
  if (channel >= counts.size())
    return refuse(fmt::format("it names channel {} of {}", channel, counts.size()));
  RelayCounts& own = counts[channel];
  // The one that is next, if the bits are its.
  const std::uint64_t told = note.flag >> signature_bits & low_bits;
  const std::uint64_t number = own.landed + 1 + ((told - own.landed - 1) & low_bits);
  const RelayMessage said{.channel = channel,
                          .word = RelayWord::tail,
                          .number = number,
                          .flag = transport::message_flag(number, note.flag),
                          .bytes = note.bytes};
  GYRE_TRY(check_tail(said, note.bytes, shape, own));
  own.landed = number;
  return said;
}

Result<RelayMessage> take_relay_message(std::span<const std::byte> message,
                                        const DeviceShape& shape, std::span<RelayCounts> counts) {
  RelayMessage said;
  if (message.size() < sizeof said)
    return refuse(fmt::format("it sends {} bytes, less than a header", message.size()));
  said = transport::copied<RelayMessage>(message.data());
  const std::size_t payload = message.size() - sizeof said;
  if (said.reserved != 0) return refuse("its header has unknown bits");
  if (said.word == RelayWord::goodbye) {
    if (said != RelayMessage{.word = RelayWord::goodbye} || payload != 0)
      return refuse("its goodbye has other contents");
    return said;
  }
  if (said.channel >= counts.size())
    return refuse(fmt::format("it names channel {} of {}", said.channel, counts.size()));
  RelayCounts& own = counts[said.channel];
  switch (said.word) {
    case RelayWord::tail:
      GYRE_TRY(check_tail(said, payload, shape, own));
      own.landed = said.number;
      return said;
    case RelayWord::head:
      GYRE_TRY(check_head(said, payload, own));
      own.freed = said.number;
      return said;
    default:
      return refuse(
          fmt::format("it sends the unknown word {}", static_cast<std::uint32_t>(said.word)));
  }
}

}  // namespace gyre::exec
