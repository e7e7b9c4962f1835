// Launch: one call of a collective on this rank: a plan bound to buffers, arithmetic and ports. It
// is resumable: `advance` runs every lane as far as possible and never waits. One Launch runs at a
// time on a set of ports, because messages of a link are told apart by their order alone.
#pragma once

#include "kernels/cpu/move.h"
#include "lib/base/wait.h"
#include "lib/exec/call.h"
#include "lib/exec/short_run.h"
#include "lib/plan/cursor.h"

#include <atomic>
#include <cstdint>
#include <vector>

namespace gyre::exec {

class Launch {
 public:
  enum class State { blocked, moved, done, failed };

  // Both outlive the Launch's run.
  void begin(BoundPlan& bound, const Call& call);
  // The same of a call whose short run has begun already, and may have come to any point.
  void take_over(BoundPlan& bound, const Call& call);
  State advance();

  // Why `advance` failed. The culprits are the peers of the link concerned.
  const Status& error() const { return error_; }
  // What the first blocked lane waits for.
  Blocked blocked() const;

  // Whether whom the lanes wait for can still come, see Connection::look_at_peer.
  Status look_at_peers(std::int64_t now_ns, std::int64_t limit_ns) const;
  // Whether all that it waits for is memory that the peer sees as well: nothing of a peer that has
  // left can still be on its way.
  bool waits_on_memory() const;

  // What a peer is in the middle of, at worst, with a buffer that was lent to it. Who reads in
  // another process finds out by itself that what it read is worth nothing (was_lent).
  enum class InUse {
    no,
    written,  // by another process
    shared,   // by a thread of this one, which reaches any memory
  };
  struct RecallResult {
    InUse in_use = InUse::no;
    int by = -1;  // a rank that uses it
  };
  // After a failure: takes back what was lent to peers; to be called again until it is in use no
  // more.
  RecallResult recall();

  // Announces the sleeper on everything that blocks a lane; false if a lane can go on after all.
  bool arm(WaitSet& set);
  void disarm();

 private:
  struct Incoming {
    const std::byte* base = nullptr;  // null: pushed to its place already
    std::uint64_t remote = 0;      // pulled, and not mapped here: the address in the peer's process
    bool in_input_layout = false;  // pulled: pieces lie as in the sender's input
    std::atomic<std::uint64_t>* mark = nullptr;  // set while the sender's buffer is in use
    const transport::Grant* grant = nullptr;     // by which it is lent
  };
  struct Outgoing {
    std::byte* base = nullptr;  // null: nothing to write (pull)
    transport::DeliveryMode delivery = transport::DeliveryMode::staged;
    bool by_wire = false;  // pushed by the wire: at `base` is the message, not the peer's buffer
    std::atomic<std::uint64_t>* mark = nullptr;  // set while the receiver's buffer is in use
  };
  struct LaneRun {
    BoundPlan::LaneEnds* ends = nullptr;
    plan::Cursor cursor;
    plan::Move move;
    bool has_move = false;
    Blocked blocked;
    SendPort* awaited_send = nullptr;
    ReceivePort* awaited_receive = nullptr;
    std::vector<Incoming> incoming;
    std::vector<Outgoing> outgoing;
    std::vector<const void*> sources;
    std::vector<void*> targets;
    std::vector<std::byte> product;  // of the own operand with the pre-op, as peers receive theirs
    bool streams = false;            // the move's one message goes past the cache
    std::vector<std::byte> copied;   // messages that were copied from their senders' memory
    // Of a shared step, see work_stealing.h.
    StealState stealing;
  };

  class PieceAct;

  // What a run has borrowed is given back where this goes, also if something is thrown: a mark that
  // stands keeps its owner waiting.
  class GiveBackGuard {
   public:
    explicit GiveBackGuard(LaneRun& run) : run_(run) {}
    ~GiveBackGuard() { give_back(run_); }
    GiveBackGuard(const GiveBackGuard&) = delete;
    GiveBackGuard& operator=(const GiveBackGuard&) = delete;

   private:
    LaneRun& run_;
  };

  void lend_buffers();
  void lend(transport::Grant& grant, bool same_address_space, std::uint32_t reach,
            const void* buffer, std::uint64_t bytes, const transport::RegionPlace& place) const;
  Result<std::byte*> borrowed(const transport::Loan& loan, bool same_address_space,
                              transport::PeerMemory* memory) const;
  bool borrow(transport::Grant& grant, std::atomic<std::uint64_t>& mark) const;
  bool was_lent(const LaneRun& run);
  static void give_back(LaneRun& run);
  bool stays_within(const LaneRun& run, std::uint64_t bytes, bool in_input) const;
  std::uint64_t lent_place(const LaneRun& run, const plan::Piece& piece, bool in_input) const;
  bool pulls_from_us(SendPort& port, std::uint64_t bytes) const;
  bool copy_incoming(LaneRun& run);
  bool copy_message(LaneRun& run, const ReceivePort& port, Incoming& incoming, std::byte* room);
  void hold_for(SendPort& port) const;
  void lend_by_wire(ReceivePort& port, plan::Stored stored) const;
  bool lands(const LaneRun& run, const SendPort& port) const;
  void open_by_wire(const LaneRun& run, SendPort& port, Outgoing& outgoing) const;
  void end_wire_loans();
  void cut_wires();
  template <typename Port>
  bool progress(const std::vector<Port*>& ports);
  template <typename Visit>
  void for_each_awaited(const Visit& visit) const;
  bool may_go_on();
  void advance_short_run(bool& moved, bool& done);
  void advance_lanes(bool& moved, bool& done);
  bool finish_up();
  bool advance_lane(LaneRun& run);
  void begin_stealing(LaneRun& run) const;
  bool is_open(const transport::Grant& grant) const;
  bool all_have_entered(const LaneRun& run) const;
  bool holds_all(plan::Buffer buffer, std::uint64_t bytes) const;
  void look_up_places(LaneRun& run) const;
  bool reaches_all(LaneRun& run) const;
  bool own_piece_is_settled(LaneRun& run);
  static void own_piece_is_sent(LaneRun& run);
  bool share();
  bool go_ahead(LaneRun& run);
  bool help(LaneRun& run, std::uint32_t link);
  bool open_aside(const LaneRun& run, std::uint32_t chunk, std::uint64_t round);
  bool ready(LaneRun& run);
  bool message_is_here(LaneRun& run, ReceivePort& port);
  bool may_send(LaneRun& run, SendPort& port);
  void block(LaneRun& run, BlockedOn what, SendPort* send, ReceivePort* receive);
  void perform(LaneRun& run);
  void perform_in_loans(LaneRun& run);
  void move_message(LaneRun& run);
  void write_message(LaneRun& run);
  void move_pieces(LaneRun& run);
  bool open_incoming(LaneRun& run);
  bool open_outgoing(LaneRun& run);
  const std::byte* rounded_product(LaneRun& run, const std::byte* own, std::uint64_t bytes) const;
  void close_messages(LaneRun& run);
  // False, each of them.
  bool fail_mismatch(int peer, std::string_view what);
  bool fail_pull(const ReceivePort& port, const transport::Grant& grant);
  bool fail_shortage(int peer, Status why);

  BoundPlan* bound_ = nullptr;
  const Call* call_ = nullptr;
  ShortRun* short_run_ = nullptr;  // that carries the call out; null: the lanes do
  ShortRun own_short_run_;         // of a call by lines that brings none
  std::uint32_t element_bytes_ = 1;
  kernels::MoveFunction reduce_ = nullptr;
  bool lends_ = false;
  bool fresh_ = true;  // nothing is sent yet
  std::vector<LaneRun> lanes_;
  plan::Step aside_step_;  // of a piece that is reduced out of a lane's turn
  LaneRun aside_;
  std::size_t lanes_done_ = 0;
  SendPort* unfinished_ = nullptr;  // after the last move: what is still to flush or drain
  Status error_;
};

}  // namespace gyre::exec
