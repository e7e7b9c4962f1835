// An RDMA peer that may lie: its answer, its notices, and what it writes into the receiver's notes.
// Input: u8 queue pairs, block: an answer in place of the good one, if it is not empty; then steps:
// u8 kind and
//   0: u8 pair, u32 immediate number, a notice
//   1: u8 place, u8 value, block: a message beside its note, one byte of the note changed
//   2: u8 messages that the receiving rank takes from the fifo
//   3: u16 offset, block: bytes into the ring of notes
//   4: the receiving rank lends memory for its next call
#include "tests/fuzz/liar_rails.h"
#include "transports/rdma/receiver.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

using namespace gyre;
using namespace gyre::transport;

namespace {

class Peer {
 public:
  Peer(std::size_t pairs, std::span<const std::uint8_t> answer);
  void notify(std::size_t pair, std::uint32_t immediate);
  void send_message(std::span<const std::uint8_t> payload, std::uint8_t place, std::uint8_t change);
  void write(std::uint64_t offset, std::span<const std::uint8_t> bytes);
  void take(unsigned count);
  void lend();

 private:
  // The pairs of the second rail follow those of the first.
  void post(std::size_t pair, ibv_send_wr& request) {
    const std::size_t pairs = rails_.pairs();
    pair %= fuzz::LiarRails::rails * pairs;
    if (receiver_->ready()) rails_.post(pair / pairs, pair % pairs, request);
    (void)rails_.settle(*receiver_);
  }

  fuzz::LiarRails rails_;
  std::vector<std::uint8_t> answer_;
  std::unique_ptr<RdmaReceiver> receiver_;
  RdmaAddress there_;
  SlotReader reader_;
  std::uint64_t sequence_ = 0;
  std::array<std::byte, 4096> memory_{};
  loaded::VerbsMemory registered_;
  std::byte* const lent_ = rails_.allocate(4096);
  std::uint64_t calls_ = 0;
};

Peer::Peer(std::size_t pairs, std::span<const std::uint8_t> answer) : rails_(pairs) {
  registered_ = fuzz::must(
      rails_.device().register_memory(memory_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  RdmaAnswer good{};
  for (std::size_t rail = 0; rail < fuzz::LiarRails::rails; ++rail)
    good.rails.emplace_back(rails_.address(rail)).value().notes = {
        reinterpret_cast<std::uintptr_t>(memory_.data()), registered_.get()->rkey};
  answer_ = answer.empty() ? encode(good) : std::vector(answer.begin(), answer.end());
  receiver_ = fuzz::must(RdmaReceiver::make(
      {.peer = 1, .direction = Direction::receive}, fuzz::must(private_fifo(fuzz::liar_shape)),
      rails_.make_rails(), rails_.shared(), rails_.window(), {},
      {.take_answer = [this] { return std::optional(answer_); }, .refuse = [] {}}));
  const std::vector<RdmaAddress> there = receiver_->addresses("here");
  there_ = there[0];
  rails_.join(there);
  reader_ = SlotReader(receiver_->fifo());
  (void)rails_.settle(*receiver_);
}

void Peer::notify(std::size_t pair, std::uint32_t immediate) {
  ibv_send_wr request = fuzz::LiarRails::notice(immediate);
  post(pair, request);
}

void Peer::write(std::uint64_t offset, std::span<const std::uint8_t> bytes) {
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

void Peer::send_message(std::span<const std::uint8_t> payload, std::uint8_t place,
                        std::uint8_t change) {
  NotePlace out{};
  const std::size_t bytes = std::min(payload.size(), out.payload.size());
  out.note = {.sequence = sequence_,
              .signature = 0x77,
              .bytes = static_cast<std::uint32_t>(bytes),
              .place = PayloadPlace::note};
  if (bytes > 0) std::memcpy(out.payload.data(), payload.data(), bytes);
  reinterpret_cast<std::uint8_t*>(&out)[place % sizeof out.note] ^= change;
  const auto* const from = reinterpret_cast<const std::uint8_t*>(&out);
  write((sequence_ % there_.window) * sizeof out, {from, sizeof out.note + bytes});
  const Notice notice{NoticeKind::message, static_cast<std::uint32_t>(sequence_)};
  ++sequence_;
  notify(0, notice.to_immediate());
}

void Peer::take(unsigned count) {
  for (; count > 0 && reader_.has_message(); --count) {
    GYRE_DEMAND(note_fits(reader_.note(), fuzz::liar_shape));
    reader_.release();
  }
  (void)rails_.settle(*receiver_);
}

void Peer::lend() {
  Connection& end = *receiver_;
  const Loan loan{.region = region_same_process,
                  .offset = reinterpret_cast<std::uintptr_t>(lent_),
                  .bytes = 4096,
                  .stores_all = 1};
  end.carrier()->lend(loan, ++calls_);
  (void)rails_.settle(end);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::size_t pairs = 1 + input.take<std::uint8_t>() % 4;
  Peer peer(pairs, input.take_block());
  for (int step = 0; step < 64 && !input.empty(); ++step) {
    const std::uint8_t kind = input.take<std::uint8_t>() % 5;
    if (kind == 0) {
      const auto pair = input.take<std::uint8_t>();
      peer.notify(pair, input.take<std::uint32_t>());
    } else if (kind == 1) {
      const auto place = input.take<std::uint8_t>();
      const auto change = input.take<std::uint8_t>();
      peer.send_message(input.take_block(), place, change);
    } else if (kind == 2) {
      peer.take(input.take<std::uint8_t>());
    } else if (kind == 4) {
      peer.lend();
    } else {
      const auto offset = input.take<std::uint16_t>();
      peer.write(offset, input.take_block());
    }
  }
  return 0;
}
