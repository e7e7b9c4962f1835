// The messages of the control plane, one decoder after the other. An accepted message is encoded
// again and must read the same. Input: u8 which, then the message.
#include "lib/control/cause.h"
#include "lib/control/departures.h"
#include "lib/control/messages.h"
#include "tests/fuzz/input.h"

namespace message_fuzz {

using namespace gyre;
using namespace gyre::control;

namespace {

using Bytes = std::span<const std::uint8_t>;

bool is_same(Bytes a, Bytes b) { return std::ranges::equal(a, b); }

void read_join(Bytes bytes) {
  const auto join = decode_join(bytes);
  if (!join.ok()) return;
  GYRE_DEMAND(join->size >= 1 && join->size <= max_size && join->rank < join->size);
  GYRE_DEMAND(join->note.size() <= max_rank_message_bytes);
  const auto again = encode(*join);
  const auto copy = decode_join(again);
  GYRE_DEMAND(copy.ok() && is_same(encode(*copy), again) && again.size() == bytes.size());
}

void read_hello(Bytes bytes) {
  const auto hello = decode_hello(bytes);
  GYRE_DEMAND(!hello || is_same(encode(*hello), bytes));
}

void read_place(Bytes bytes) {
  const auto place = decode_place(bytes);
  if (!place) return;
  for (const int rank : place->parent_ranks) GYRE_DEMAND(rank >= 0 && rank < max_size);
  const auto again = encode(*place);
  const auto copy = decode_place(again);
  GYRE_DEMAND(copy && is_same(encode(*copy), again) && again.size() == bytes.size());
}

void read_greeting(Bytes bytes) {
  const auto process = decode_greeting(bytes);
  if (!process) return;
  const auto again = encode_greeting(*process);
  const auto copy = decode_greeting(again);
  GYRE_DEMAND(copy && is_same(encode_greeting(*copy), again) && again.size() == bytes.size());
}

void read_open(Bytes bytes) {
  const auto open = decode_open(bytes);
  GYRE_DEMAND(!open || is_same(encode(*open), bytes));
}

void read_opened(Bytes bytes) {
  const auto opened = decode_opened(bytes);
  GYRE_DEMAND(!opened || is_same(encode(*opened), bytes));
}

void read_on_link(Bytes bytes) {
  Bytes body;
  const auto link = decode_on_link(bytes, &body);
  GYRE_DEMAND(!link || is_same(encode_on_link(*link, body), bytes));
}

void read_letter(Bytes bytes) {
  Bytes text;
  const auto head = decode_rank_message(bytes, &text);
  GYRE_DEMAND(!head || is_same(encode(*head, text), bytes));
}

void read_heard(Bytes bytes) {
  const auto message = decode_ack(bytes);
  GYRE_DEMAND(!message || is_same(encode(*message), bytes));
}

// Of 20 ranks in as many processes.
void read_departed(Bytes bytes) {
  Roster roster;
  roster.processes.resize(20);
  for (std::uint32_t rank = 0; rank < 20; ++rank) roster.process_of_rank.push_back(rank);
  Departures departures(roster);
  const auto ranks = departures.decode(bytes);
  if (!ranks) return;
  for (const std::uint32_t rank : *ranks) {
    GYRE_DEMAND(rank < 20 || rank == no_rank);
    (void)departures.note(rank);
  }
  for (std::uint32_t process = 0; process < 20; ++process)
    if (const auto parent = departures.parent(process))
      GYRE_DEMAND(*parent < process && !departures.is_gone(*parent));
  const auto again = departures.decode(departures.encode());
  GYRE_DEMAND(again && again->size() <= ranks->size());
}

void read_leave(Bytes bytes) {
  const auto rank = decode_leave(bytes);
  GYRE_DEMAND(!rank || is_same(encode_leave(*rank), bytes));
}

// Input: u32 number of ranks, then the cause.
void read_cause(Bytes bytes) {
  fuzz::Input input(bytes);
  const int size = static_cast<int>(input.take<std::uint32_t>() & INT32_MAX);
  const auto cause = decode_cause(input.rest(), size);
  if (!cause) return;
  GYRE_DEMAND(!cause->ok());
  GYRE_DEMAND(std::ranges::is_sorted(cause->culprits()));
  for (const int rank : cause->culprits()) GYRE_DEMAND(rank >= 0 && (size == 0 || rank < size));
  GYRE_DEMAND(fuzz::is_one_line(cause->message()));
  if (!cause->culprits().empty()) GYRE_DEMAND(rank_text(cause->culprits()).size() < 512);
  GYRE_DEMAND(cause->full_text().size() >= cause->message().size());
  const auto copy = decode_cause(encode_cause(*cause), size);
  GYRE_DEMAND(copy && copy->code() == cause->code() && copy->message() == cause->message() &&
              copy->culprits() == cause->culprits());
}

void check_roster(const RosterMessage& message, std::uint32_t size) {
  const Roster& roster = message.roster;
  GYRE_DEMAND(message.liveness_ms > 0);
  GYRE_DEMAND(roster.process_of_rank.size() == size && roster.notes.size() == size);
  GYRE_DEMAND(!roster.processes.empty() && roster.processes.size() <= std::size_t{size} + 1);
  for (const std::uint32_t process : roster.process_of_rank)
    GYRE_DEMAND(process < roster.processes.size());
  RosterAssembly intake;
  bool whole = false;
  for (const auto& part : encode_parts(message)) {
    const auto taken = intake.take(part);
    GYRE_DEMAND(taken.ok());
    whole = *taken;
  }
  GYRE_DEMAND(whole && intake.decode(size).ok());
}

// Input: u32 number of ranks, then the parts as blocks.
void read_roster(Bytes bytes) {
  fuzz::Input input(bytes);
  const auto size = input.take<std::uint32_t>();
  RosterAssembly intake;
  std::size_t taken_bytes = 0;
  std::uint32_t first_total = 0;
  for (bool first = true; !input.empty(); first = false) {
    const auto part = input.take_block();
    const auto taken = intake.take(part);
    if (!taken.ok()) return;
    taken_bytes += part.size() - 8;
    const auto total = fuzz::Input(part).take<std::uint32_t>();
    if (first) first_total = total;
    // Whatever later parts say, what is kept never outgrows what the first announced.
    GYRE_DEMAND(total == first_total && taken_bytes <= first_total);
    GYRE_DEMAND(*taken == (taken_bytes == first_total));
    if (!*taken) continue;
    const auto message = intake.decode(size);
    if (message.ok()) check_roster(*message, size);
    return;
  }
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Bytes bytes(data + 1, size - 1);
  constexpr void (*readers[])(Bytes) = {
      read_join, read_hello,  read_letter,  read_cause, read_leave,    read_roster, read_greeting,
      read_open, read_opened, read_on_link, read_heard, read_departed, read_place};
  readers[data[0] % std::size(readers)](bytes);
  return 0;
}

GYRE_FUZZ_TARGET(message)

}  // namespace message_fuzz
