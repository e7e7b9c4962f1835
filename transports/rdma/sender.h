// The sending end: a private fifo that the executor commits into, and the code that writes its
// messages into the receiver's memory. A slot is free again when the peer's NIC has acknowledged
// all of its message. If a rail is lost, the sender waits until nothing is on its way over the
// others, asks the receiver where it stands, and sends again from there. Messages may lie in memory
// that callers lend, here, there or at both ends.
#pragma once

#include "lib/transport/endpoint.h"
#include "transports/rdma/end.h"
#include "transports/rdma/note.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace gyre::transport {

// How many messages may be on their way, and how many requests that takes on one queue pair.
struct RdmaWindow {
  std::uint32_t messages = 0;  // a power of two; 0: the devices can do too little
  std::uint32_t writes = 0;    // of one message
  QueueDepth depth() const;
};
RdmaWindow fit_window(const FifoShape& shape,
                      const std::vector<std::shared_ptr<RdmaDevice>>& devices, std::size_t pairs);

class RdmaSender final : public RdmaEnd {
 public:
  // Whether the receiver has said that it will not join.
  using IsRefused = std::function<bool()>;

  // Each rail has its queues and where it leads.
  static Result<std::unique_ptr<RdmaSender>> make(const LinkKey& key,
                                                  std::shared_ptr<FifoMemory> memory,
                                                  std::vector<RdmaRail> rails, RdmaShared shared,
                                                  RdmaWindow window, std::uint32_t ring,
                                                  IsRefused is_refused);
  ~RdmaSender() override;
  // Of each rail in use, with the memory that the receiver is to write.
  std::vector<std::optional<RdmaAddress>> addresses(const std::string& host_name) const;

  bool ready() const override { return is_ready_; }
  bool flushed() const override { return leaving_.head() == committed(); }
  bool flushed_to(std::uint64_t tail) const override { return leaving_.head() >= tail; }

 private:
  // A part of a message that one queue pair writes.
  struct RdmaPiece {
    std::size_t rail = 0, pair = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };
  // Where pieces may go, and how much of a message that takes beside the others.
  struct RdmaPath {
    std::size_t rail = 0, pair = 0;
    double weight = 1;
  };

  RdmaSender(const LinkKey& key, std::shared_ptr<FifoMemory> memory, std::vector<RdmaRail> rails,
             RdmaShared shared, RdmaWindow window, std::uint32_t ring, IsRefused is_refused);
  std::shared_ptr<const void> hold(const void* memory, std::uint64_t bytes) noexcept override;
  Status prepare();
  Status turn() override;
  Status take(const ibv_wc& completion, WorkTag tag, std::size_t rail) override;
  Status on_notice(const ibv_wc& completion);
  Status on_resume(const Notice& notice);
  Status take_grant();
  void release_finished();
  void note_losses();
  Status ask();
  void find_paths();
  Status ship();
  Status ship_message(std::uint64_t index);
  Status find_parts(std::uint64_t index, const SlotHeader& said);
  void cut(std::uint64_t bytes);
  Status write_note(std::uint64_t index, std::size_t note_bytes);
  // Posts the writes of one piece, and behind them `last`, if it is there.
  Status write_piece(std::uint64_t index, const RdmaPiece& piece, ibv_send_wr* last);
  Status add_write(std::uint64_t index, const RdmaPiece& piece, const LentPart& part,
                   std::uint64_t skipped, std::uint64_t bytes);
  Result<std::uint32_t> local_key(std::size_t rail, const LentPart& part) const;
  std::uint32_t immediate_of(std::uint64_t index) const {
    return Notice{NoticeKind::message, static_cast<std::uint32_t>(index), round_}.to_immediate();
  }
  ibv_send_wr note_request(std::uint64_t index, ibv_sge& part) const;
  Status post(std::size_t rail, std::size_t pair, ibv_send_wr& first);
  std::uint64_t committed() const;

  const RdmaWindow window_;
  const std::uint32_t ring_;  // places for notes
  const IsRefused is_refused_;
  SlotReader leaving_;                     // the messages that the peer's NIC has not acknowledged
  std::uint64_t posted_;                   // messages below it are on their way
  std::uint64_t credited_;                 // messages below it have left the receiver's slots
  std::vector<std::uint32_t> unfinished_;  // requests, by message in the ring
  std::vector<RdmaPath> paths_;            // the note's first
  // Of the message at hand: its pieces; where it lies; the start of what that is told from at the
  // other end, with the keys of each rail.
  std::vector<RdmaPiece> pieces_;
  LentParts parts_;
  std::array<RemoteMemory, max_rails> targets_{};
  std::vector<ibv_send_wr> requests_;  // of one piece
  std::vector<ibv_sge> spans_;
  std::size_t request_count_ = 0;
  bool is_ready_ = false;
  std::vector<LentParts> lent_;                          // by slot; the executor writes it
  std::vector<std::weak_ptr<const Registration>> held_;  // each once, the newest last
  std::optional<Notice> told_grant_;                     // that was not taken yet
  std::uint8_t newest_grant_ = 0;                        // attempt, told or taken
  RdmaGrant grant_;                                      // the last one taken
  std::uint64_t lent_from_ = 0;  // messages before it were made for an earlier one
  // After a loss: rails that the receiver is to be asked about, and how many answers are due.
  bool is_switching_ = false;
  bool has_asked_ = false;
  std::uint8_t round_ = 0;  // of questions, and of the messages behind them
  std::vector<std::size_t> lost_;
  std::vector<std::size_t> told_lost_;  // by the receiver
  std::size_t answers_due_ = 0;
};

}  // namespace gyre::transport
