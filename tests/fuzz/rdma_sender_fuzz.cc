// An RDMA receiver that may lie: its notices and grants, as the sender takes them. Input: u8 queue
// pairs, then steps: u8 kind and
//   0: u8 rail, u32 immediate number, a notice
//   1: u16 bytes, a message that the sending rank commits
//   2: u8 attempt, u8 place, u8 value: a grant of the receiver's memory, one byte of it changed
#include "tests/fuzz/liar_rails.h"

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

using namespace gyre;
using namespace gyre::transport;

namespace {

class Receiver {
 public:
  explicit Receiver(std::size_t pairs);
  void notify(std::size_t rail, std::uint32_t immediate);
  void commit(std::uint32_t bytes);
  void grant(std::uint8_t attempt, std::uint8_t place, std::uint8_t change);

 private:
  void settle() {
    const Status status = rails_.settle(*sender_);
    GYRE_DEMAND(status.ok() || status.code() != Code::InternalError);
  }

  fuzz::LiarRails rails_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(16384);
  std::uint64_t calls_ = 0;
  loaded::VerbsMemory registered_;
  std::unique_ptr<RdmaSender> sender_;
  std::vector<RdmaAddress> theirs_;
  SlotWriter writer_;
};

Receiver::Receiver(std::size_t pairs) : rails_(pairs) {
  registered_ = fuzz::must(
      rails_.device().register_memory(memory_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  const auto start = reinterpret_cast<std::uintptr_t>(memory_.data());
  const std::uint32_t window = rails_.window().messages;
  std::vector<RdmaRail> rails = rails_.make_rails();
  for (std::size_t rail = 0; rail < rails.size(); ++rail) {
    rails[rail].there = rails_.address(rail);
    rails[rail].there.window = window;
    rails[rail].there.slots = {start, registered_.get()->rkey};
    rails[rail].there.notes = {start + 4096, registered_.get()->rkey};
  }
  sender_ = fuzz::must(RdmaSender::make({.peer = 1}, fuzz::must(private_fifo(fuzz::liar_shape)),
                                        std::move(rails), rails_.shared(), rails_.window(), window,
                                        [] { return false; }));
  for (const std::optional<RdmaAddress>& address : sender_->addresses("here"))
    theirs_.push_back(*address);
  rails_.join(theirs_);
  writer_ = SlotWriter(sender_->fifo());
}

void Receiver::notify(std::size_t rail, std::uint32_t immediate) {
  ibv_send_wr request = fuzz::LiarRails::notice(immediate);
  rails_.post(rail % fuzz::LiarRails::rails, 0, request);
  settle();
}

void Receiver::commit(std::uint32_t bytes) {
  if (!writer_.has_credit()) return settle();
  bytes %= fuzz::liar_shape.slot_bytes + 1;
  // As the executor does: into what is lent, where it has room.
  const Loan loan = sender_->fifo().control->receiver_grant.read();
  const bool lands = loan.region != region_staged && bytes > 0 && bytes <= loan.bytes;
  LentParts& parts = lent_parts(sender_->fifo(), writer_.tail());
  parts = {};
  (void)parts.add({writer_.place(), loan.bytes - bytes, bytes});
  writer_.commit(bytes, 7, lands ? DeliveryMode::push : DeliveryMode::staged);
  settle();
}

// By a write over the first rail, as an honest receiver's.
void Receiver::grant(std::uint8_t attempt, std::uint8_t place, std::uint8_t change) {
  RdmaGrant grant{.sequence = ++calls_,
                  .address = reinterpret_cast<std::uintptr_t>(memory_.data()) + 8192,
                  .bytes = 4096,
                  .stores_all = 1};
  grant.keys.fill(registered_.get()->rkey);
  reinterpret_cast<std::uint8_t*>(&grant)[place % sizeof grant] ^= change;
  std::byte* const from = memory_.data() + 12288;
  std::memcpy(from, &grant, sizeof grant);
  ibv_sge part{reinterpret_cast<std::uintptr_t>(from), sizeof grant, registered_.get()->lkey};
  const Notice notice{NoticeKind::grant, static_cast<std::uint32_t>(calls_), attempt};
  ibv_send_wr request = fuzz::LiarRails::notice(notice.to_immediate());
  request.sg_list = &part;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.wr.rdma.remote_addr = theirs_[0].notes.address + attempt % max_rails * sizeof(NotePlace);
  request.wr.rdma.rkey = theirs_[0].notes.key;
  rails_.post(0, 0, request);
  settle();
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  Receiver receiver(1 + input.take<std::uint8_t>() % 4);
  for (int step = 0; step < 64 && !input.empty(); ++step) {
    const std::uint8_t kind = input.take<std::uint8_t>() % 3;
    if (kind == 1) {
      receiver.commit(input.take<std::uint16_t>());
    } else if (kind == 2) {
      const auto attempt = input.take<std::uint8_t>();
      const auto place = input.take<std::uint8_t>();
      receiver.grant(attempt, place, input.take<std::uint8_t>());
    } else {
      const auto rail = input.take<std::uint8_t>();
      receiver.notify(rail, input.take<std::uint32_t>());
    }
  }
  return 0;
}
