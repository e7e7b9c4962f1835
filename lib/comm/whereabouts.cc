#include "lib/comm/whereabouts.h"

#include "lib/links/message_keys.h"
#include "lib/trust/wire.h"

#include <algorithm>
#include <cstring>

namespace gyre::comm {
namespace {

constexpr std::size_t max_name = 64;
// How far back the last collective is looked for among sends and receives.
constexpr std::uint64_t flights_looked_at = 64;

void put(trust::Writer& writer, const Whereabouts::ReportedWait& wait) {
  writer.put(static_cast<std::uint8_t>(wait.what));
  writer.put(wait.function);
  writer.put(wait.peer);
  writer.put(wait.sequence);
}

bool get(trust::Reader& reader, Whereabouts::ReportedWait& wait, int ranks) {
  std::uint8_t what = 0;
  if (!reader.get(what) || what >= blocked_on_count || !reader.get(wait.function) ||
      !reader.get(wait.peer) || wait.peer >= ranks || !reader.get(wait.sequence))
    return false;
  wait.what = static_cast<BlockedOn>(what);
  return true;
}

Whereabouts::ReportedWait read_wait(const RankStateMemory& memory, WaitLane lane) {
  const auto told = memory.waits[static_cast<std::size_t>(lane)].read();
  if (!told || told->phase == WaitPhase::none) return {};
  return {told->what, told->peer, told->function, told->sequence};
}

// In whose call the thread waits that called here last.
std::string find_elsewhere(const RankState& rank_state) {
  const std::uint64_t caller = rank_state.memory().caller.load(std::memory_order_relaxed);
  std::string found;
  rank_state.state_page().look([&](const RankStateMemory& other) {
    if (&other == &rank_state.memory() || other.caller.load(std::memory_order_relaxed) != caller)
      return;
    const auto identity = other.identity.read();
    const bool waits = read_wait(other, WaitLane::collective).what != BlockedOn::nothing ||
                       read_wait(other, WaitLane::transfers).what != BlockedOn::nothing;
    if (waits && identity) found = identity->name.view();
  });
  return found;
}

}  // namespace

control::MessageBytes encode(const Whereabouts& whereabouts) {
  trust::Writer writer;
  writer.put(static_cast<std::uint8_t>(whereabouts.standing));
  writer.put(whereabouts.last_collective);
  put(writer, whereabouts.collective);
  put(writer, whereabouts.transfers);
  writer.put_text(std::string_view(whereabouts.elsewhere).substr(0, max_name));
  return writer.take();
}

std::optional<Whereabouts> decode_whereabouts(const control::MessageBytes& message, int ranks) {
  Whereabouts whereabouts;
  std::uint8_t standing = 0;
  trust::Reader reader(message);
  if (!reader.get(standing) || standing > static_cast<std::uint8_t>(Whereabouts::Standing::waits) ||
      !reader.get(whereabouts.last_collective) || !get(reader, whereabouts.collective, ranks) ||
      !get(reader, whereabouts.transfers, ranks) ||
      !reader.get_words(whereabouts.elsewhere, max_name) || !reader.at_end())
    return std::nullopt;
  whereabouts.standing = static_cast<Whereabouts::Standing>(standing);
  return whereabouts;
}

Whereabouts read_whereabouts(const RankState& rank_state) {
  const RankStateMemory& memory = rank_state.memory();
  Whereabouts seen;
  bool in_call = false;
  const std::uint64_t begun = memory.begun.load(std::memory_order_acquire);
  for (std::uint64_t back = 0; back < std::min(begun, flights_looked_at); ++back) {
    const auto flight = read_flight(memory.flights[(begun - back) % flight_count]);
    if (!flight) continue;
    in_call |= flight->end == FlightEnd::open;
    if (seen.last_collective == 0) seen.last_collective = flight->call.sequence;
  }
  seen.collective = read_wait(memory, WaitLane::collective);
  seen.transfers = read_wait(memory, WaitLane::transfers);
  const bool waits =
      seen.collective.what != BlockedOn::nothing || seen.transfers.what != BlockedOn::nothing;
  using Standing = Whereabouts::Standing;
  seen.standing = waits ? Standing::waits : in_call ? Standing::works : Standing::idle;
  if (seen.standing == Standing::idle) seen.elsewhere = find_elsewhere(rank_state);
  return seen;
}

void Witness::end() {
  const std::lock_guard lock(mutex_);
  rank_state_ = nullptr;
}

void Witness::answer(control::Membership& membership, int from,
                     const control::MessageBytes& question) {
  std::uint64_t number = 0;
  if (question.size() != sizeof number) return;
  std::memcpy(&number, question.data(), sizeof number);
  control::MessageBytes message;
  {
    const std::lock_guard lock(mutex_);
    if (rank_state_ == nullptr) return;
    message = encode(read_whereabouts(*rank_state_));
  }
  (void)membership.send(from, message_key(MessageTopic::answer, number), std::move(message));
}

}  // namespace gyre::comm
