// LyingSender: an RDMA peer that may lie to a receiving end: by its answer, its notices, and what
// it writes into the receiver's notes.
#pragma once

#include "tests/fuzz/liar_rails.h"
#include "transports/rdma/receiver.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace gyre::fuzz {

class LyingSender {
 public:
  LyingSender(std::size_t pairs, std::span<const std::uint8_t> answer);
  void notify(std::size_t pair, std::uint32_t immediate);
  void send_message(std::span<const std::uint8_t> payload, std::uint8_t place, std::uint8_t change);
  void write(std::uint64_t offset, std::span<const std::uint8_t> bytes);
  void take(unsigned count);
  void lend();
  Status status() const { return status_; }  // of the receiving end

 private:
  // The pairs of the second rail follow those of the first.
  void post(std::size_t pair, ibv_send_wr& request) {
    const std::size_t pairs = rails_.pairs();
    pair %= LiarRails::rails * pairs;
    if (receiver_->ready()) rails_.post(pair / pairs, pair % pairs, request);
    status_ = rails_.settle(*receiver_);
  }

  LiarRails rails_;
  std::vector<std::uint8_t> answer_;
  std::unique_ptr<transport::RdmaReceiver> receiver_;
  transport::RdmaAddress there_;
  transport::SlotReader reader_;
  std::uint64_t sequence_ = 0;
  std::uint8_t round_ = 0;  // of the last question about a lost rail
  std::array<std::byte, 4096> memory_{};
  loaded::VerbsMemory registered_;
  std::byte* const lent_ = rails_.allocate(4096);
  std::uint64_t calls_ = 0;
  Status status_;
};

inline LyingSender::LyingSender(std::size_t pairs, std::span<const std::uint8_t> answer)
    : rails_(pairs) {
  registered_ = must(
      rails_.device().register_memory(memory_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  transport::RdmaAnswer good{};
  for (std::size_t rail = 0; rail < LiarRails::rails; ++rail)
    good.rails.emplace_back(rails_.address(rail)).value().notes = {
        reinterpret_cast<std::uintptr_t>(memory_.data()), registered_.get()->rkey};
  answer_ = answer.empty() ? transport::encode(good) : std::vector(answer.begin(), answer.end());
  receiver_ = must(transport::RdmaReceiver::make(
      {.peer = 1, .direction = transport::Direction::receive},
      must(transport::private_fifo(liar_shape)), rails_.make_rails(), rails_.shared(),
      rails_.window(), {},
      {.take_answer = [this] { return std::optional(answer_); }, .refuse = [] {}}));
  const std::vector<transport::RdmaAddress> there = receiver_->addresses("here");
  there_ = there[0];
  rails_.join(there);
  reader_ = transport::SlotReader(receiver_->fifo());
  status_ = rails_.settle(*receiver_);
}

inline void LyingSender::notify(std::size_t pair, std::uint32_t immediate) {
  if (const auto notice = transport::Notice::of(immediate);
      notice && notice->kind == transport::NoticeKind::lost)
    round_ = notice->round;
  ibv_send_wr request = LiarRails::notice(immediate);
  post(pair, request);
}

inline void LyingSender::write(std::uint64_t offset, std::span<const std::uint8_t> bytes) {
  const std::size_t count = std::min(bytes.size(), memory_.size());
  if (count > 0) std::memcpy(memory_.data(), bytes.data(), count);
  ibv_sge part{reinterpret_cast<std::uintptr_t>(memory_.data()), static_cast<std::uint32_t>(count),
               registered_.get()->lkey};
  ibv_send_wr request{};
  request.sg_list = &part;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = there_.notes.address + offset;
  request.wr.rdma.rkey = there_.notes.key;
  post(0, request);
}

inline void LyingSender::send_message(std::span<const std::uint8_t> payload, std::uint8_t place,
                                      std::uint8_t change) {
  transport::NotePlace out{};
  const std::size_t bytes = std::min(payload.size(), out.payload.size());
  out.note = {.sequence = sequence_,
              .signature = 0x77,
              .bytes = static_cast<std::uint32_t>(bytes),
              .place = transport::PayloadPlace::note};
  if (bytes > 0) std::memcpy(out.payload.data(), payload.data(), bytes);
  reinterpret_cast<std::uint8_t*>(&out)[place % sizeof out.note] ^= change;
  const auto* const from = reinterpret_cast<const std::uint8_t*>(&out);
  write((sequence_ % there_.window) * sizeof out, {from, sizeof out.note + bytes});
  const transport::Notice notice{transport::NoticeKind::message,
                                 static_cast<std::uint32_t>(sequence_), round_};
  ++sequence_;
  notify(0, notice.to_immediate());
}

inline void LyingSender::take(unsigned count) {
  for (; count > 0 && reader_.has_message(); --count) {
    GYRE_DEMAND(transport::note_fits(reader_.note(), liar_shape));
    reader_.release();
  }
  status_ = rails_.settle(*receiver_);
}

inline void LyingSender::lend() {
  transport::Connection& end = *receiver_;
  const transport::Loan loan{.region = transport::region_same_process,
                             .offset = reinterpret_cast<std::uintptr_t>(lent_),
                             .bytes = 4096,
                             .stores_all = 1};
  end.carrier()->lend(loan, ++calls_);
  status_ = rails_.settle(end);
}

}  // namespace gyre::fuzz
