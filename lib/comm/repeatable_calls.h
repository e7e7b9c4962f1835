// RepeatableCalls: the last kinds of small collectives of a communicator. One that comes again is
// carried out by the run that is bound to it; see CollectiveOp::repeat.
#pragma once

#include "lib/base/flight.h"
#include "lib/call/call_history.h"
#include "lib/call/collective_call.h"
#include "lib/exec/short_run.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace gyre::comm {

struct RepeatableCall {
  exec::ShortRun* run = nullptr;  // null: none is of this kind
  std::uint64_t count = 0;
  Function function = Function::all_reduce;
  int type = 0, op = 0, root = 0;
  std::byte* own_buffer = nullptr;  // of a function that has no buffers
  BufferShape buffers;
  ShortFlight flight;
  CallRecord record;            // its sequence is another call's
  std::uint64_t signature = 0;  // without the history
  std::uint64_t used = 0;       // when: a number that grows

  bool is_like(const CollectiveCall& call) const {
    return run != nullptr && function == call.function && count == call.count &&
           type == call.type && op == call.op && root == call.root;
  }
};

class RepeatableCalls {
 public:
  // Steps of a solver or a model call a few kinds in turn.
  static constexpr std::size_t max_kinds = 8;

  // Null: it is not here.
  [[gnu::always_inline]] RepeatableCall* find(const CollectiveCall& call) {
    if (last_ != nullptr && last_->is_like(call)) [[likely]]
      return last_;
    for (RepeatableCall& one : calls_)
      if (one.is_like(call)) return &one;
    return nullptr;
  }
  // The one that was called last. Null: that was none of these.
  RepeatableCall* last() const { return last_; }
  void set_last(RepeatableCall* call) {
    last_ = call;
    if (call != nullptr) note_use(*call);
  }
  void note_use(RepeatableCall& call) { call.used = ++uses_; }
  RepeatableCall& at(std::size_t place) { return calls_[place]; }
  std::size_t last_place() const { return static_cast<std::size_t>(last_ - calls_.data()); }

 private:
  std::array<RepeatableCall, max_kinds> calls_;
  RepeatableCall* last_ = nullptr;
  std::uint64_t uses_ = 0;
};

}  // namespace gyre::comm
