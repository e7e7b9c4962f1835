// LyingReceiver: an RDMA peer that may lie to a sending end: by its notices and grants.
#pragma once

#include "tests/fuzz/liar_rails.h"

#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace gyre::fuzz {

class LyingReceiver {
 public:
  explicit LyingReceiver(std::size_t pairs);
  void notify(std::size_t rail, std::uint32_t immediate);
  void commit(std::uint32_t bytes);
  void grant(std::uint8_t attempt, std::uint8_t place, std::uint8_t change);
  Status status() const { return status_; }  // of the sending end
  // The call whose grant it has taken last.
  std::uint64_t granted() const {
    return sender_->fifo().control->receiver_grant.sequence.load(std::memory_order_acquire);
  }

 private:
  void settle() {
    status_ = rails_.settle(*sender_);
    GYRE_DEMAND(status_.code() != Code::InternalError);
  }

  LiarRails rails_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(16384);
  std::uint64_t calls_ = 0;
  loaded::VerbsMemory registered_;
  std::unique_ptr<transport::RdmaSender> sender_;
  std::vector<transport::RdmaAddress> theirs_;
  transport::SlotWriter writer_;
  Status status_;
};

inline LyingReceiver::LyingReceiver(std::size_t pairs) : rails_(pairs) {
  registered_ = must(
      rails_.device().register_memory(memory_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  const auto start = reinterpret_cast<std::uintptr_t>(memory_.data());
  const std::uint32_t window = rails_.window().messages;
  std::vector<transport::RdmaRail> rails = rails_.make_rails();
  for (std::size_t rail = 0; rail < rails.size(); ++rail) {
    rails[rail].there = rails_.address(rail);
    rails[rail].there.window = window;
    rails[rail].there.slots = {start, registered_.get()->rkey};
    rails[rail].there.notes = {start + 4096, registered_.get()->rkey};
  }
  sender_ = must(transport::RdmaSender::make({.peer = 1}, must(transport::private_fifo(liar_shape)),
                                             std::move(rails), rails_.shared(), rails_.window(),
                                             window, [] { return false; }));
  for (const std::optional<transport::RdmaAddress>& address : sender_->addresses("here"))
    theirs_.push_back(*address);
  rails_.join(theirs_);
  writer_ = transport::SlotWriter(sender_->fifo());
}

inline void LyingReceiver::notify(std::size_t rail, std::uint32_t immediate) {
  ibv_send_wr request = LiarRails::notice(immediate);
  rails_.post(rail % LiarRails::rails, 0, request);
  settle();
}

inline void LyingReceiver::commit(std::uint32_t bytes) {
  if (!writer_.has_credit()) return settle();
  bytes %= liar_shape.slot_bytes + 1;
  // As the executor does: into what is lent, where it has room.
  const transport::Loan loan = sender_->fifo().control->receiver_grant.read();
  const bool lands = loan.region != transport::region_staged && bytes > 0 && bytes <= loan.bytes;
  transport::LentParts& parts = transport::lent_parts(sender_->fifo(), writer_.tail());
  parts = {};
  (void)parts.add({writer_.place(), loan.bytes - bytes, bytes});
  writer_.commit(bytes, 7, lands ? transport::DeliveryMode::push : transport::DeliveryMode::staged);
  settle();
}

// By a write over the first rail, as an honest receiver's.
inline void LyingReceiver::grant(std::uint8_t attempt, std::uint8_t place, std::uint8_t change) {
  transport::RdmaGrant grant{.sequence = ++calls_,
                             .address = reinterpret_cast<std::uintptr_t>(memory_.data()) + 8192,
                             .bytes = 4096,
                             .stores_all = 1};
  grant.keys.fill(registered_.get()->rkey);
  reinterpret_cast<std::uint8_t*>(&grant)[place % sizeof grant] ^= change;
  std::byte* const from = memory_.data() + 12288;
  std::memcpy(from, &grant, sizeof grant);
  ibv_sge part{reinterpret_cast<std::uintptr_t>(from), sizeof grant, registered_.get()->lkey};
  const transport::Notice notice{transport::NoticeKind::grant, static_cast<std::uint32_t>(calls_),
                                 attempt};
  ibv_send_wr request = LiarRails::notice(notice.to_immediate());
  request.sg_list = &part;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.wr.rdma.remote_addr =
      theirs_[0].notes.address + attempt % transport::max_rails * sizeof(transport::NotePlace);
  request.wr.rdma.rkey = theirs_[0].notes.key;
  rails_.post(0, 0, request);
  settle();
}

}  // namespace gyre::fuzz
