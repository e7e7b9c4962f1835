// LineRun: the messages of one kind of call by the line protocol, ready to run again and again. A
// cursor finds out once what each move of the plan does; a call then takes the list of moves and
// its buffers. It never waits, and allocates nothing while it runs.
//
//   act   one move: what it takes from which ports, reduces, stores and sends
//   part  what an act does with one chunk
//
// A call that is too long for one list has its acts made in several parts, as it comes to them.
#pragma once

#include "kernels/cpu/move.h"
#include "lib/base/wait.h"
#include "lib/exec/call.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gyre::exec {

class LineRun {
 public:
  enum class State { blocked, moved, done, other_call };

  // For calls of this kind, whatever their buffers. `call` may go; what its layouts refer to, and
  // the ports, stay as long as calls are run.
  void bind(const BoundPlan& bound, const Call& call);
  // Of the calls from now on; it is bound with that of its first one.
  void set_signature(std::uint64_t signature) { signature_ = signature; }
  // Whether one list holds all, and no port needs a turn for its own sake: `advance` is then all
  // that a call needs, from its begin to its end.
  bool is_self_sufficient() const { return is_whole_ && !needs_progress_; }

  void begin(const std::byte* input, std::byte* output, const void* pre_scalar) {
    base_[static_cast<std::size_t>(plan::Buffer::input)] = const_cast<std::byte*>(input);
    base_[static_cast<std::size_t>(plan::Buffer::output)] = output;
    pre_scalar_ = pre_scalar;
    stranger_ = -1;
    lanes_done_ = 0;
    if (!is_whole_) [[unlikely]]
      begin_lists();
    for (LineLane* lane = lanes_.data(); lane != lanes_.data() + lane_count_; ++lane)
      lane->restart();
  }
  // Every lane as far as it comes.
  State advance();

  // The rank that made another call.
  int stranger() const { return stranger_; }
  // What the first blocked lane waits for.
  Blocked blocked() const;
  // The connections that blocked lanes wait for.
  template <typename Visit>
  void for_each_awaited(const Visit& visit) const {
    for (std::size_t i = 0; i < lane_count_; ++i) {
      const LineLane& lane = lanes_[i];
      if (lane.is_done) continue;
      if (lane.awaited_send != nullptr)
        visit(*lane.awaited_send->connection);
      else if (lane.awaited_receive != nullptr)
        visit(*lane.awaited_receive->connection);
    }
  }
  // Whether a blocked lane could go on now.
  bool could_move();

 private:
  static constexpr std::uint32_t no_operand = ~0U;
  // Acts in a list. More than the small calls of 64 ranks have.
  static constexpr std::size_t max_acts = 256;

  struct ChunkPart {
    std::uint32_t chunk = 0;
    std::uint32_t bytes = 0;
    std::uint64_t message_offset = 0, local_offset = 0, store_offset = 0;
  };
  // What an act of one part in one line does: a copy, or the sum of two.
  enum class ShortKind : std::uint8_t { none, own, arrived, own_first, arrived_first };
  struct LineAct {
    // Of a short act all that it needs; others have more ports, parts or lines.
    transport::LineReader* take = nullptr;  // null: it takes nothing
    transport::LineWriter* give = nullptr;  // null: it sends nothing
    std::uint64_t own_offset = 0, store_offset = 0;
    std::uint32_t bytes = 0;  // of the message
    std::uint32_t elements = 0;
    ShortKind kind = ShortKind::none;
    plan::Buffer local = plan::Buffer::none;
    plan::Buffer store = plan::Buffer::none;
    bool finishes = false;
    std::uint32_t lines = 1;
    std::uint32_t receive_first = 0, receive_count = 0;  // in `receive` of the lane
    std::uint32_t send_first = 0, send_count = 0;
    std::uint32_t part_first = 0, part_count = 0;
    std::uint32_t own_place = no_operand;  // of the own operand among the sources, in rank order
    std::uint32_t first_chunk = 0;         // for people
  };
  struct LineLane {
    const LineAct* at = nullptr;
    const LineAct* first = nullptr;
    const LineAct* end = nullptr;
    bool is_done = false;
    const BoundPlan::LaneEnds* ends = nullptr;
    plan::Cursor cursor;  // of what is not in the list yet
    std::vector<LineAct> acts;
    std::vector<ChunkPart> parts;
    std::vector<SendPort*> send;
    std::vector<ReceivePort*> receive;
    // While it is blocked.
    SendPort* awaited_send = nullptr;
    ReceivePort* awaited_receive = nullptr;

    void restart() {
      at = first;
      is_done = false;
      awaited_send = nullptr;
      awaited_receive = nullptr;
    }
  };
  void begin_lists();
  void fill(LineLane& lane);
  void add_act(LineLane& lane, const plan::Move& move);
  void send_early(LineLane& lane) const;
  static bool may_swap(const LineLane& lane, const LineAct& before, const LineAct& send);
  void find_copies(LineLane& lane) const;
  void find_short(LineLane& lane) const;
  bool run_lane(LineLane& lane);
  bool end_list(LineLane& lane);
  bool is_ready(LineLane& lane, const LineAct& act);
  void carry_out_short(const LineAct& act);
  void carry_out(const LineLane& lane, const LineAct& act);
  void reduce_part(const LineAct& act, const ChunkPart& part);
  const std::byte* own_operand(const LineAct& act, const ChunkPart& part,
                               kernels::MoveOperands& move);

  std::vector<LineLane> lanes_;
  std::size_t lane_count_ = 0;
  plan::Geometry geometry_;
  std::array<std::byte*, 4> base_{};  // by plan::Buffer; the input is only read
  const void* pre_scalar_ = nullptr;
  ElementType type_ = ElementType::uint8;
  std::uint32_t element_bytes_ = 1;
  std::uint32_t divisor_ = 1;
  std::uint64_t signature_ = 0;
  std::int32_t rank_ = -1;
  kernels::MoveFunction reduce_ = nullptr;
  kernels::PairFunction reduce_pair_ = nullptr;
  std::size_t lanes_done_ = 0;
  bool multiplies_ = false;  // pre_mul_sum
  bool is_whole_ = false;
  bool needs_progress_ = false;
  int stranger_ = -1;
  std::vector<const std::byte*> arrived_;  // of the act at hand, by receive port
  std::vector<const void*> sources_;
  std::vector<std::byte> staging_;   // a message that leaves
  std::vector<std::byte> operands_;  // messages of several lines that came in
  std::vector<std::byte> product_;   // of the own operand with the pre-op, as peers receive theirs
};

}  // namespace gyre::exec
