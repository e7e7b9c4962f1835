// Whereabouts: where a rank is in its calls on one communicator. Ranks that have waited too long
// ask for it, to find the rank that they wait for in the end. The rank's control thread answers
// from its rank state, so its program need not do anything.
//
//   Witness   answers for one rank as long as its communicator exists
#pragma once

#include "lib/base/state_page.h"
#include "lib/control/control.h"

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace gyre::comm {

// Of a collective, or of sends and receives.
struct Whereabouts {
  enum class Standing : std::uint8_t {
    idle,   // in no call
    works,  // in a call, and waits for nobody, or not for long yet
    waits,
  };
  struct ReportedWait {
    BlockedOn what = BlockedOn::nothing;  // nothing: there is no such wait
    std::int32_t peer = -1;               // below zero: any rank, or none
    std::uint8_t function = 0;
    std::uint64_t sequence = 0;  // of a collective
  };
  Standing standing = Standing::idle;
  std::uint64_t last_collective = 0;  // that it has begun; 0: none
  ReportedWait collective, transfers;
  std::string elsewhere;  // the communicator in whose call its thread waits, if that is another one
};

control::MessageBytes encode(const Whereabouts& whereabouts);
// Nothing if it is malformed, or waits for a rank beyond the communicator's `ranks`.
std::optional<Whereabouts> decode_whereabouts(const control::MessageBytes& message, int ranks);

// What a rank state shows.
Whereabouts read_whereabouts(const RankState& rank_state);

class Witness {
 public:
  explicit Witness(const RankState& rank_state) : rank_state_(&rank_state) {}
  // The rank state goes. Any thread.
  void end();
  // Answers the question of rank `from`: a number of the asker's, by which it knows the answer. Any
  // thread.
  void answer(control::Membership& membership, int from, const control::MessageBytes& question);

 private:
  std::mutex mutex_;
  const RankState* rank_state_;  // null: the communicator has ended
};

}  // namespace gyre::comm
