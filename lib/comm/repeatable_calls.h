// RepeatableCalls: the last kinds of small collectives of a communicator. One that comes again is
// carried out by the run that is bound to it; see CollectiveOp::repeat.
#pragma once

#include "lib/base/flight.h"
#include "lib/base/state_page_memory.h"
#include "lib/call/call_history.h"
#include "lib/call/collective_call.h"
#include "lib/exec/short_run.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace gyre::comm {

struct RepeatableCall {
  exec::ShortRun* run = nullptr;  // null: none is of this kind
  CallShape shape;
  BufferShape buffers;
  // Those of the last call.
  const void* last_send = no_buffer();
  const void* last_receive = nullptr;
  ShortFlight flight;
  DoneCounters* done = nullptr;    // of its function
  CallHistory* history = nullptr;  // null: calls are not compared
  CallRecord record;               // its sequence is another call's
  std::uint64_t signature = 0;     // without the history
  std::uint64_t used = 0;          // when: a number that grows

  bool is_like(const CallShape& call) const { return run != nullptr && shape == call; }
  // No caller's.
  static const void* no_buffer() { return reinterpret_cast<const void*>(UINTPTR_MAX); }
  // Whether its buffers may be those. Mostly they are those of the last call.
  bool takes(const void* send, const void* receive) {
    if (send == last_send && receive == last_receive) [[likely]]
      return true;
    if (!buffers.fits(send, receive)) return false;
    last_send = send;
    last_receive = receive;
    return true;
  }
};

class RepeatableCalls {
 public:
  // Steps of a solver or a model call a few kinds in turn.
  static constexpr std::size_t max_kinds = 8;

  // Null: it is not here.
  [[gnu::always_inline]] RepeatableCall* find(const CallShape& call) {
    if (last_ != nullptr && last_->shape == call) [[likely]]
      return last_;
    return find_other(call);
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
  [[gnu::noinline]] RepeatableCall* find_other(const CallShape& call) {
    for (RepeatableCall& one : calls_)
      if (one.is_like(call)) return &one;
    return nullptr;
  }

  std::array<RepeatableCall, max_kinds> calls_;
  RepeatableCall* last_ = nullptr;
  std::uint64_t uses_ = 0;
};

}  // namespace gyre::comm
