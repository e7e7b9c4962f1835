// The data that a communicator writes into its rank state (lib/base/state_page.h) for tools: its
// identity, each operation as a flight, and the wait of the current operation.
#pragma once

#include "lib/base/state_page.h"
#include "lib/call/request.h"
#include "lib/control/control.h"
#include "lib/plan/protocol.h"
#include "lib/tune/choice.h"

#include <span>
#include <string>
#include <string_view>

namespace gyre::comm {

// Takes a rank state for one rank of a communicator.
Result<RankState> claim_rank_state(StatePage& state_page, const trust::ProcessIdentity& self,
                                   const RankIdentity& identity);
// For as long as a rank looks for the others of `job` (gyreCommInitEnv): that it waits for them. It
// knows no communicator yet, so ranks with one name of the job are shown as one.
Result<RankState> claim_meeting(StatePage& state_page, const trust::ProcessIdentity& self,
                                const std::string& job, int size, int rank);
// Once the ranks have met.
void show_peers(RankState& rank_state, const control::Roster& roster);
// The communicator broke: says so, and writes the flights to the file that GYRE_FLIGHT_FILE names.
void note_failure(RankState& rank_state, const Status& why, const std::string& file_pattern);

// In place of an algorithm: none was chosen (yet), or none is needed.
inline constexpr std::uint8_t no_algorithm = NameTable::max_names - 1;
// Functions that the API does not have alone: sends and receives of one group.
inline constexpr std::uint8_t exchange_function = function_count;

inline FlightCall flight_call(const Request& request, std::uint64_t sequence) {
  FlightCall call;
  call.sequence = sequence;
  call.count = request.count;
  call.bytes = request.block_bytes();
  call.root = request.root;
  call.function = static_cast<std::uint8_t>(request.function);
  call.type = static_cast<std::uint8_t>(request.type);
  call.op = static_cast<std::uint8_t>(request.op);
  call.algorithm = no_algorithm;
  return call;
}
inline std::uint8_t function_code(const Transfer& transfer) {
  return static_cast<std::uint8_t>(transfer.sends ? Function::send : Function::receive);
}
inline ShortFlight short_flight(const Transfer& transfer, std::uint64_t count) {
  return ShortFlight::of({.sequence = 0,
                          .count = count,
                          .bytes = transfer.bytes,
                          .root = transfer.peer,
                          .function = function_code(transfer),
                          .type = static_cast<std::uint8_t>(transfer.type),
                          .op = 0,
                          .algorithm = no_algorithm,
                          .protocol = static_cast<std::uint8_t>(plan::Protocol::simple)});
}
// They have no number on the communicator: 0. Bytes are counted where types differ.
FlightCall flight_call(std::span<const Transfer> transfers);

// One operation's part, again and again.
class OperationRecord {
 public:
  OperationRecord(RankState& rank_state, WaitLane lane)
      : rank_state_(rank_state), lane_(lane), first_algorithm_(plan::algorithms().data()) {}

  void begin(const FlightCall& call) { (void)rank_state_.begin(flight_, call); }
  [[gnu::always_inline]] void begin(std::uint64_t sequence, const ShortFlight& call) {
    rank_state_.begin(flight_, sequence, call);
  }
  void choose(const tune::Choice& choice) {
    flight_.choose(algorithm_code(choice), static_cast<std::uint8_t>(choice.protocol));
    moved();
  }
  std::uint8_t algorithm_code(const tune::Choice& choice) const {
    return static_cast<std::uint8_t>(choice.algorithm - first_algorithm_);
  }
  // Nothing can go on without a peer.
  void blocked() { rank_state_.stamp(flight_); }
  // It does go on.
  void moved() {
    if (rank_state_.tells_wait(lane_)) [[unlikely]]
      rank_state_.end_wait(lane_);
  }
  void tell(WaitPhase phase, const Blocked& on);
  // Goes on with what another record has begun.
  void take_over(const OperationRecord& begun) { flight_ = begun.flight_; }
  // Of one that has told nobody of a wait, by what it began with and its function's counters.
  [[gnu::always_inline]] void end_well(const ShortFlight& call, DoneCounters& done) {
    rank_state_.end_well(flight_, done, call.bytes);
  }
  void end_well() { rank_state_.end(flight_, 0); }
  DoneCounters& done(Function function) {
    return rank_state_.done(static_cast<std::uint8_t>(function));
  }
  void end(const Status& outcome) {
    moved();
    rank_state_.end(flight_, static_cast<std::uint8_t>(outcome.code()));
  }

 private:
  RankState& rank_state_;
  const WaitLane lane_;
  const plan::Algorithm* const first_algorithm_;
  OpenFlightEntry flight_;
};

}  // namespace gyre::comm
