// The receiving end: a private fifo whose slots the sender's NIC writes, and the code that makes
// messages of what has come and tells the sender which slots are free.
#pragma once

#include "lib/transport/endpoint.h"
#include "transports/rdma/end.h"
#include "transports/rdma/note.h"
#include "transports/rdma/sender.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace gyre::transport {

class RdmaReceiver final : public RdmaEnd {
 public:
  struct Letters {
    // The sender's answer, once it is there.
    std::function<std::optional<TransportLetters::Bytes>()> take_answer;
    // Tells the sender that nobody will join.
    std::function<void()> refuse;
  };

  // Each rail has its queues.
  static Result<std::unique_ptr<RdmaReceiver>> make(const LinkKey& key,
                                                    std::shared_ptr<FifoMemory> memory,
                                                    std::vector<RdmaRail> rails, RdmaShared shared,
                                                    RdmaWindow window, IssuedTicket ticket,
                                                    Letters letters);
  ~RdmaReceiver() override;
  // Of each rail, with the memory that the sender is to write.
  std::vector<RdmaAddress> addresses(const std::string& host_name) const;

  bool ready() const override { return link_.is_joined(); }
  bool flushed() const override { return true; }
  void arm(WaitSet& set) override;
  bool at_end() const override {
    return link_.is_closed() && !is_short() && head() == arriving_.tail();
  }

 private:
  // What has come of a message that is not whole yet.
  struct MessageArrival {
    bool is_noted = false;
    std::uint16_t pieces = 0;  // on other queue pairs than the note's
  };

  RdmaReceiver(const LinkKey& key, std::shared_ptr<FifoMemory> memory, std::vector<RdmaRail> rails,
               RdmaShared shared, RdmaWindow window, IssuedTicket ticket, Letters letters);
  std::shared_ptr<const void> hold(const void* memory, std::uint64_t bytes) noexcept override;
  void lend(const Loan& loan, std::uint64_t sequence) noexcept override;
  void end_loan() noexcept override { lent_.memory.reset(); }
  void cut_off() noexcept override {
    RdmaEnd::cut_off();
    lent_.memory.reset();
  }
  Status turn() override;
  Status join();
  Status take(const ibv_wc& completion, WorkTag tag, std::size_t rail) override;
  Status on_notice(const ibv_wc& completion, std::size_t rail, std::size_t pair);
  Status on_question(const Notice& notice, std::size_t rail);
  Status note_due(std::uint64_t next);
  bool is_short() const { return static_cast<std::int64_t>(due_ - arriving_.tail()) > 0; }
  Status await_due(std::int64_t now_ns) const;
  Status on_message(const Notice& message, bool is_note);
  // Memory that is to be lent, with what its flushes need; null: it is not to be had.
  std::shared_ptr<const Registration> prepare_loan(const void* memory,
                                                   std::uint64_t bytes) noexcept;
  Status make_flushes(const Registration& memory);
  Status begin_flush();
  Status land_whole();
  Status answer_questions();
  void find_note_rail();
  Status tell_losses();
  Status return_credit();
  Status give_grant();
  ibv_send_wr grant_request(ibv_sge& part) const;
  Status tell(WorkKind kind, const Notice& notice);
  std::uint64_t head() const;

  const RdmaWindow window_;
  const IssuedTicket ticket_;
  const Letters letters_;
  SlotWriter arriving_;
  std::vector<MessageArrival> arrivals_;  // by message in the ring
  std::uint64_t credited_;                // the head that the sender was told last
  bool owes_credit_ = false;              // whatever it was told: that may be lost
  std::uint32_t credits_out_ = 0;         // notices that have not completed
  // What is lent for the call of this sequence, if the memory is there.
  struct WireLoan {
    std::uint64_t sequence = 0;
    Loan loan;
    std::shared_ptr<const Registration> memory;
  };
  WireLoan lent_;
  // Of lent memory that is to be flushed. Messages before `flushed_` may be committed, and those
  // before `flushing_` once the reads that are under way have completed.
  std::uint64_t flushed_, flushing_;
  std::uint32_t flush_reads_ = 0;
  bool owes_grant_ = false;             // the sender is to be told of it
  bool awaits_receipt_ = false;         // of what it was told last
  std::uint8_t attempt_ = 0;            // to tell it of a grant
  std::vector<std::size_t> questions_;  // of the sender, about lost rails
  std::uint8_t asked_round_ = 0;        // the newest one that it has asked in, of the questions
  // The sender knows that all messages below it have come. Completions may be late.
  std::uint64_t due_;
  std::int64_t due_since_ns_ = 0;
  std::uint8_t round_ = 0;         // the last one that was answered: its messages count
  std::vector<bool> asked_about_;  // rails that the sender does not use, or has lost
  std::size_t note_rail_ = 0;      // the first that it has not: notes come there
};

}  // namespace gyre::transport
