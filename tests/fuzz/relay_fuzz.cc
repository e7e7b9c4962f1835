// A peer's relay that sends anything. Accepted messages stay within the link: never more messages
// than free slots, never a release of a message that was not sent, never past a slot's end. A
// refused message changes nothing, and an honest one is never refused. Input: u64 first, then acts:
// u8 kind (0: kernels here send, 1: they release, 2: a message as it comes, 3: one near an honest
// one, 4: a tail that a wire has pushed) and what it needs.
#include "lib/cuda/relay_message.h"
#include "tests/fuzz/input.h"

#include <array>

namespace relay_fuzz {

using namespace gyre;
using namespace gyre::exec;

namespace {

constexpr DeviceShape shape = {.channels = 2, .slot_bytes = 128, .slot_shift = 1};
constexpr std::uint64_t slots = 2;

struct Said {
  RelayMessage header;
  std::vector<std::byte> bytes;  // as it came
  std::size_t payload() const { return bytes.size() - sizeof header; }
};

Said said_by(std::span<const std::uint8_t> bytes) {
  Said said;
  said.bytes.resize(bytes.size());
  if (!bytes.empty()) std::memcpy(said.bytes.data(), bytes.data(), bytes.size());
  if (bytes.size() >= sizeof said.header)
    std::memcpy(&said.header, bytes.data(), sizeof said.header);
  return said;
}

// The honest next word on a channel, then a few changes.
Said near_honest(fuzz::Input& input, const std::array<RelayCounts, 2>& counts) {
  const std::uint32_t channel = input.take<std::uint8_t>() % 2;
  RelayMessage header{.channel = channel, .word = RelayWord{input.take<std::uint8_t>() % 5U}};
  const auto distance = static_cast<std::uint64_t>(std::int64_t{input.take<std::int8_t>()});
  std::size_t payload = 0;
  if (header.word == RelayWord::tail) {
    payload = input.take<std::uint8_t>();
    header.number = counts[channel].landed + 1 + distance;
    header.flag = transport::message_flag(header.number, 5);
    header.bytes = static_cast<std::uint32_t>(payload);
  } else if (header.word == RelayWord::head) {
    header.number = counts[channel].freed + 1 + distance;
  }
  std::vector<std::uint8_t> bytes(sizeof header + payload, 0x5c);
  std::memcpy(bytes.data(), &header, sizeof header);
  const std::uint8_t place = input.take<std::uint8_t>();
  bytes[place % sizeof header] ^= input.take<std::uint8_t>();
  return said_by(bytes);
}

// A second reading of the same bytes: what it does to the counts; false if it is to be refused.
bool judge(const Said& said, std::array<RelayCounts, 2>& counts) {
  const RelayMessage& header = said.header;
  if (said.bytes.size() < sizeof header || header.reserved != 0) return false;
  if (header.word == RelayWord::goodbye)
    return said.payload() == 0 && header.channel == 0 && header.number == 0 && header.flag == 0 &&
           header.bytes == 0;
  if (header.channel > 1) return false;
  RelayCounts& own = counts[header.channel];
  if (header.word == RelayWord::head) {
    if (said.payload() + header.flag + header.bytes != 0) return false;
    for (std::uint64_t number = own.freed + 1; number != own.sent + 1; ++number)
      if (number == header.number) return own.freed = number, true;
    return false;
  }
  if (header.word != RelayWord::tail || said.payload() != header.bytes) return false;
  if (header.bytes > 128 || own.landed + 1 != header.number) return false;
  if (own.landed == own.returned + slots || (header.flag ^ header.number << 24) >> 24 != 0)
    return false;
  own.landed = header.number;
  return true;
}

// The same of a pushed one: the flag has the channel, and the low bits of the honest next number.
bool judge(const transport::SlotHeader& note, std::array<RelayCounts, 2>& counts) {
  if (note.flag >> 49 != 0 || note.bytes > 128) return false;
  RelayCounts& own = counts[note.flag >> 48];
  const std::uint64_t next = own.landed + 1;
  if ((note.flag >> 24 ^ next) << 40 != 0 || own.landed == own.returned + slots) return false;
  own.landed = next;
  return true;
}

void take_pushed(fuzz::Input& input, std::array<RelayCounts, 2>& counts) {
  const std::uint32_t channel = input.take<std::uint8_t>() % 2;
  const auto distance = static_cast<std::uint64_t>(std::int64_t{input.take<std::int8_t>()});
  const RelayMessage near{
      .channel = channel, .number = counts[channel].landed + 1 + distance, .flag = 5};
  const std::uint64_t change = std::uint64_t{input.take<std::uint8_t>()}
                               << input.take<std::uint8_t>() % 64;
  const transport::SlotHeader note{pushed_flag(near) ^ change, input.take<std::uint8_t>(),
                                   transport::DeliveryMode::push, 0};
  std::array<RelayCounts, 2> expected = counts;
  const bool good = judge(note, expected);
  const auto taken = take_pushed_message(note, shape, counts);
  GYRE_DEMAND(taken.ok() == good);
  GYRE_DEMAND(good || fuzz::is_one_line(std::string(taken.status().message())));
  GYRE_DEMAND(!good || (taken->bytes == note.bytes && pushed_flag(*taken) == note.flag &&
                        taken->number == counts[taken->channel].landed &&
                        taken->flag >> 24 == taken->number << 24 >> 24));
  GYRE_DEMAND(counts == expected);
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const auto first = input.take<std::uint64_t>();
  std::array<RelayCounts, 2> counts;
  counts.fill({first, first, first, first});
  while (!input.empty()) {
    const int kind = input.take<std::uint8_t>() % 5;
    if (kind < 2) {
      RelayCounts& own = counts[input.take<std::uint8_t>() % 2];
      if (kind == 0 && own.sent - own.freed < slots) ++own.sent;
      if (kind == 1 && own.returned != own.landed) ++own.returned;
      continue;
    }
    if (kind == 4) {
      take_pushed(input, counts);
      continue;
    }
    const Said said = kind == 2 ? said_by(input.take_block()) : near_honest(input, counts);
    std::array<RelayCounts, 2> expected = counts;
    const bool good = judge(said, expected);
    const auto taken = take_relay_message(said.bytes, shape, counts);
    GYRE_DEMAND(taken.ok() == good);
    GYRE_DEMAND(good || fuzz::is_one_line(std::string(taken.status().message())));
    GYRE_DEMAND(!good || *taken == said.header);
    GYRE_DEMAND(counts == expected);
    for (const RelayCounts& own : counts)
      GYRE_DEMAND(own.landed - own.returned <= slots && own.sent - own.freed <= slots);
  }
  return 0;
}

GYRE_FUZZ_TARGET(relay)

}  // namespace relay_fuzz
