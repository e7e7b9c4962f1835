// An RDMA receiver that may lie: its notices, as the sender takes them. Input: u8 queue pairs, then
// steps: u8 kind and
//   0: u8 rail, u32 immediate number, a notice
//   1: u16 bytes, a message that the sending rank commits
#include "tests/fuzz/liar_rails.h"

#include <memory>
#include <vector>

using namespace gyre;
using namespace gyre::transport;

namespace {

class Receiver {
 public:
  explicit Receiver(std::size_t pairs);
  void notify(std::size_t rail, std::uint32_t immediate);
  void commit(std::uint32_t bytes);

 private:
  void settle() {
    const Status status = rails_.settle(*sender_);
    GYRE_DEMAND(status.ok() || status.code() != Code::InternalError);
  }

  fuzz::LiarRails rails_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(8192);
  loaded::VerbsMemory registered_;
  std::unique_ptr<RdmaSender> sender_;
  SlotWriter writer_;
};

Receiver::Receiver(std::size_t pairs) : rails_(pairs) {
  registered_ = fuzz::must(
      rails_.device().register_memory(memory_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  const auto start = reinterpret_cast<std::uintptr_t>(memory_.data());
  const std::uint32_t window = rails_.window().messages;
  std::vector<RdmaRail> rails = rails_.make_rails();
  std::vector<RdmaAddress> theirs;
  for (std::size_t rail = 0; rail < rails.size(); ++rail) {
    rails[rail].there = rails_.address(rail);
    rails[rail].there.window = window;
    rails[rail].there.slots = {start, registered_.get()->rkey};
    rails[rail].there.notes = {start + 4096, registered_.get()->rkey};
    theirs.push_back(rails[rail].queues->address("here"));
  }
  sender_ = fuzz::must(RdmaSender::make({.peer = 1}, fuzz::must(private_fifo(fuzz::liar_shape)),
                                        std::move(rails), rails_.farewell(), rails_.window(),
                                        window, [] { return false; }));
  rails_.join(theirs);
  writer_ = SlotWriter(sender_->fifo());
}

void Receiver::notify(std::size_t rail, std::uint32_t immediate) {
  ibv_send_wr request = fuzz::LiarRails::notice(immediate);
  rails_.post(rail % fuzz::LiarRails::rails, 0, request);
  settle();
}

void Receiver::commit(std::uint32_t bytes) {
  if (writer_.has_credit())
    writer_.commit(bytes % (fuzz::liar_shape.slot_bytes + 1), 7, DeliveryMode::staged);
  settle();
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  Receiver receiver(1 + input.take<std::uint8_t>() % 4);
  for (int step = 0; step < 64 && !input.empty(); ++step) {
    if (input.take_flag()) {
      receiver.commit(input.take<std::uint16_t>());
    } else {
      const auto rail = input.take<std::uint8_t>();
      receiver.notify(rail, input.take<std::uint32_t>());
    }
  }
  return 0;
}
