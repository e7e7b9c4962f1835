// An RDMA receiver that may lie: its notices, as the sender takes them. Input: u8 queue pairs, then
// steps: u8 kind and
//   0: u8 rail, u32 immediate number, a notice
//   1: u16 bytes, a message that the sending rank commits
#include "tests/fuzz/input.h"
#include "tests/support/fake_verbs/fake_verbs.h"
#include "transports/rdma/sender.h"

#include <array>
#include <memory>
#include <vector>

using namespace gyre;
using namespace gyre::transport;

namespace {

constexpr FifoShape shape = {.slot_count = 4, .line_count = 4, .slot_bytes = 512};

template <typename T>
T must(Result<T> made) {
  GYRE_DEMAND(made.ok());
  return std::move(made).value();
}

class Receiver {
 public:
  explicit Receiver(std::size_t pairs);
  void notify(std::size_t rail, std::uint32_t immediate);
  void commit(std::uint32_t bytes);

 private:
  void settle();

  const tests::FakeVerbs fake_;
  const std::shared_ptr<RdmaFarewell> farewell_ = std::make_shared<RdmaFarewell>();
  std::shared_ptr<RdmaDevice> device_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(8192);
  loaded::VerbsMemory registered_;
  std::array<std::unique_ptr<RdmaQueues>, 2> ours_;  // of each rail
  std::unique_ptr<RdmaSender> sender_;
  SlotWriter writer_;
};

Receiver::Receiver(std::size_t pairs) {
  const RdmaPorts ports = must(find_rdma_ports(fake_.table(), {}));
  device_ = must(RdmaDevice::open(fake_.table(), ports.usable.front(), {}));
  registered_ =
      must(device_->register_memory(memory_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  const RdmaGid gid = ports.usable.front().gids.front();
  const RdmaWindow window = fit_window(shape, {device_, device_}, pairs);
  const auto start = reinterpret_cast<std::uintptr_t>(memory_.data());
  std::vector<RdmaRail> rails(ours_.size());
  std::vector<RdmaAddress> theirs;
  for (std::size_t rail = 0; rail < ours_.size(); ++rail) {
    ours_[rail] = must(RdmaQueues::make(device_, gid, pairs, {64, 64}));
    rails[rail].queues = must(RdmaQueues::make(device_, gid, pairs, window.depth()));
    rails[rail].there = ours_[rail]->address("a liar");
    rails[rail].there.window = window.messages;
    rails[rail].there.slots = {start, registered_.get()->rkey};
    rails[rail].there.notes = {start + 4096, registered_.get()->rkey};
    theirs.push_back(rails[rail].queues->address("here"));
  }
  sender_ = must(RdmaSender::make({.peer = 1}, must(private_fifo(shape)), std::move(rails),
                                  farewell_, window, window.messages, [] { return false; }));
  for (std::size_t rail = 0; rail < ours_.size(); ++rail)
    GYRE_DEMAND(ours_[rail]->join(theirs[rail]).ok());
  writer_ = SlotWriter(sender_->fifo());
}

void Receiver::settle() {
  const Status before = sender_->progress();
  const Status after = sender_->progress();
  GYRE_DEMAND(before.ok() || before.message() == after.message());
  const FifoControl& control = *sender_->fifo().control;
  GYRE_DEMAND(control.tail.value - control.head.value <= shape.slot_count);
  GYRE_DEMAND(after.ok() || after.code() != Code::InternalError);
  for (const auto& rail : ours_) (void)rail->poll();
}

void Receiver::notify(std::size_t rail, std::uint32_t immediate) {
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.send_flags = IBV_SEND_SIGNALED;
  request.imm_data = immediate;
  (void)ours_[rail % ours_.size()]->post(0, request);
  settle();
}

void Receiver::commit(std::uint32_t bytes) {
  if (writer_.has_credit()) writer_.commit(bytes % (shape.slot_bytes + 1), 7, DeliveryMode::staged);
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
