// ShortRun: the moves of one kind of call, ready to run again and again, by the line protocol or by
// messages that lie in slots (Protocol::simple). A cursor finds out once what each move of the plan
// does; a call then takes the list of moves and its buffers. It never waits, and allocates nothing
// while it runs. It sends the same messages as a Launch, so that peers may carry the call out by
// one.
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
#include <cstring>
#include <vector>

namespace gyre::exec {

class ShortRun {
 public:
  enum class State { blocked, moved, done, other_call, failed };

  // For calls of this kind, whatever their buffers. `call` may go; what its layouts refer to, and
  // the ports, stay as long as calls are run.
  void bind(const BoundPlan& bound, const Call& call);
  // Of the calls from now on; it is bound with that of its first one.
  void set_signature(std::uint64_t signature) {
    signature_ = signature;
    flag_signature_ = transport::FlagSignature(signature);
  }
  // Whether one list holds all: `take_turn` is then all that a call needs, from its begin to its
  // end.
  bool is_whole() const { return is_whole_; }

  void begin(const std::byte* input, std::byte* output, const void* pre_scalar) {
    base_[static_cast<std::size_t>(plan::Buffer::input)] = const_cast<std::byte*>(input);
    base_[static_cast<std::size_t>(plan::Buffer::output)] = output;
    pre_scalar_ = pre_scalar;
    stranger_ = -1;
    lanes_done_ = 0;
    if (!is_whole_) [[unlikely]]
      begin_lists();
    for (ShortLane* lane = lanes_.data(); lane != lanes_.data() + lane_count_; ++lane)
      lane->restart();
  }
  // Every lane as far as it comes.
  State advance();
  // The same, and what its connections have to do. `done`: all has left, too. failed: a connection
  // has an error, which it keeps.
  State take_turn();
  // The same as `begin` and the first turn, without a pre-scalar. Whether all is done.
  [[gnu::always_inline]] bool run_at_once(const std::byte* input, std::byte* output) {
    const ShortAct* act = plain_first_;
    const ShortAct* const end = plain_end_;
    if (act == end) [[unlikely]]
      return begin_and_take_turn(input, output);
    base_[static_cast<std::size_t>(plan::Buffer::input)] = const_cast<std::byte*>(input);
    base_[static_cast<std::size_t>(plan::Buffer::output)] = output;
    do {
      if (!carry_out_plain(*act)) [[unlikely]]
        return begin_at(act);
    } while (++act != end);
    return true;
  }

  // The rank that made another call.
  int stranger() const { return stranger_; }
  // What the first blocked lane waits for.
  Blocked blocked() const;
  // The connections that blocked lanes wait for.
  template <typename Visit>
  void for_each_awaited(const Visit& visit) const {
    for (std::size_t i = 0; i < lane_count_; ++i) {
      const ShortLane& lane = lanes_[i];
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
  // What an act of one part does. A plain one does one thing.
  enum class ShortKind : std::uint8_t {
    none,         // it has more ports or parts, or is longer
    tells,        // sends what is its own in a line, and may store it
    tells_lines,  // the same in several lines
    takes,        // stores what has arrived in a line
    takes_lines,  // the same in several lines
    adds_word,    // stores the sum of both, of a word
    adds,         // the same of other lengths in a line
    keeps,        // stores what is its own
    relays,       // not plain: it takes and sends a line
  };
  // Its operands, in their order.
  enum class OperandOrder : std::uint8_t { own, arrived, own_and_arrived, arrived_and_own };
  struct ShortAct {
    // Of a short act all that it needs.
    transport::LineReader* take = nullptr;  // null: it takes nothing
    transport::LineWriter* give = nullptr;  // null: it sends nothing
    std::uint64_t own_offset = 0, store_offset = 0;
    std::uint32_t bytes = 0;  // of the message
    std::uint32_t elements = 0;
    ShortKind kind = ShortKind::none;
    OperandOrder operands = OperandOrder::own;
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
  struct ShortLane {
    const ShortAct* at = nullptr;
    const ShortAct* first = nullptr;
    const ShortAct* end = nullptr;
    bool is_done = false;
    const BoundPlan::LaneEnds* ends = nullptr;
    plan::Cursor cursor;  // of what is not in the list yet
    std::vector<ShortAct> acts;
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
  void fill(ShortLane& lane);
  void add_act(ShortLane& lane, const plan::Move& move);
  void send_early(ShortLane& lane) const;
  std::uint64_t room_taken(const ShortLane& lane, const SendPort& port) const;
  static bool may_swap(const ShortLane& lane, const ShortAct& before, const ShortAct& send);
  void find_copies(ShortLane& lane) const;
  void find_short(ShortLane& lane) const;
  bool is_short(const ShortAct& act) const;
  static ShortKind kind_of(const ShortAct& act);
  bool begin_and_take_turn(const std::byte* input, std::byte* output);
  void find_wires(const BoundPlan& bound);
  State ship(State state);
  bool begin_at(const ShortAct* act);
  bool run_lane(ShortLane& lane);
  bool end_list(ShortLane& lane);
  transport::MessageState look_at(ReceivePort& port, const ShortAct& act) const;
  bool may_send(SendPort& port, const ShortAct& act) const;
  bool is_ready(ShortLane& lane, const ShortAct& act);
  // False: it has to wait.
  bool carry_out_short(const ShortAct& act);
  bool carry_out_plain(const ShortAct& act);
  bool carry_out_rest(const ShortAct& act) const;
  bool carry_out_lines(const ShortAct& act) const;
  void add(const ShortAct& act) const;
  void relay(const ShortAct& act) const;
  std::byte* own_place(const ShortAct& act) const {
    return base_[static_cast<std::size_t>(act.local)] + act.own_offset;
  }
  std::byte* store_place(const ShortAct& act) const {
    return base_[static_cast<std::size_t>(act.store)] + act.store_offset;
  }
  void carry_out(const ShortLane& lane, const ShortAct& act);
  void send_and_release(const ShortLane& lane, const ShortAct& act) const;
  void reduce_part(const ShortLane& lane, const ShortAct& act, const ChunkPart& part);
  std::uint32_t add_sent(const ShortLane& lane, const ShortAct& act, const ChunkPart& part);
  const std::byte* own_operand(const ShortAct& act, const ChunkPart& part,
                               kernels::MoveOperands& move);

  std::vector<ShortLane> lanes_;
  std::size_t lane_count_ = 0;
  plan::Geometry geometry_;
  // The connections that carry nothing by themselves.
  std::vector<transport::Connection*> wires_in_, wires_out_;
  // All acts, if there is one lane of plain acts alone, and they are whole.
  const ShortAct* plain_first_ = nullptr;
  const ShortAct* plain_end_ = nullptr;
  std::array<std::byte*, 4> base_{};  // by plan::Buffer; the input is only read
  const void* pre_scalar_ = nullptr;
  ElementType type_ = ElementType::uint8;
  std::uint32_t element_bytes_ = 1;
  std::uint32_t divisor_ = 1;
  std::uint64_t signature_ = 0;
  transport::FlagSignature flag_signature_;
  std::int32_t rank_ = -1;
  kernels::MoveFunction reduce_ = nullptr;
  kernels::PairFunction reduce_pair_ = nullptr;
  kernels::WordFunction reduce_word_ = nullptr;
  std::size_t lanes_done_ = 0;
  bool by_slots_ = false;    // else by lines
  bool multiplies_ = false;  // pre_mul_sum
  bool is_whole_ = false;
  bool streams_ = false;  // of the act at hand: its message goes past the cache
  int stranger_ = -1;
  std::vector<const std::byte*> arrived_;  // of the act at hand, by receive port
  std::vector<const void*> sources_;
  std::vector<void*> targets_;
  std::vector<std::byte> staging_;   // a message that leaves by lines
  std::vector<std::byte> operands_;  // messages of several lines that came in
  std::vector<std::byte> product_;   // of the own operand with the pre-op, as peers receive theirs
};

[[gnu::always_inline]] inline bool ShortRun::carry_out_plain(const ShortAct& act) {
  using transport::copy_within_line;
  if (act.kind == ShortKind::tells) {
    transport::LineWriter& lines = *act.give;
    if (!lines.has_credit(1)) [[unlikely]]
      return false;
    const std::byte* const own = own_place(act);
    copy_within_line(lines.place(), own, act.bytes);
    if (act.store != plan::Buffer::none && store_place(act) != own)
      copy_within_line(store_place(act), own, act.bytes);
    lines.commit_line(flag_signature_);
    return true;
  }
  if (act.kind != ShortKind::adds_word) return carry_out_rest(act);
  if (!act.take->has_line(flag_signature_)) [[unlikely]]
    return false;
  std::uint64_t own, arrived;
  std::memcpy(&own, own_place(act), sizeof own);
  std::memcpy(&arrived, act.take->place(), sizeof arrived);
  const std::uint64_t sum = reduce_word_(own, arrived);  // the same bits in either order
  std::memcpy(store_place(act), &sum, sizeof sum);
  act.take->release_line();
  return true;
}

}  // namespace gyre::exec
