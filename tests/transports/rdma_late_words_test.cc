// What a rail that is lost brings last: older grants and credits, after newer ones by other rails.
// The test plays the receiver.
#include "tests/fuzz/liar_rails.h"
#include "tests/support/catch.h"

#include <cstring>
#include <memory>
#include <vector>

using namespace gyre;
using namespace gyre::transport;
using fuzz::LiarRails;

namespace {

class LateReceiver {
 public:
  LateReceiver() {
    const std::uint32_t window = rails_.window().messages;
    std::vector<RdmaRail> rails = rails_.make_rails();
    for (std::size_t rail = 0; rail < rails.size(); ++rail) {
      rails[rail].there = rails_.address(rail);
      rails[rail].there.window = window;
      rails[rail].there.slots = {start(), registered_.get()->rkey};
      rails[rail].there.notes = {start() + 4096, registered_.get()->rkey};
    }
    sender_ = fuzz::must(RdmaSender::make({.peer = 1}, fuzz::must(private_fifo(fuzz::liar_shape)),
                                          std::move(rails), rails_.shared(), rails_.window(),
                                          window, [] { return false; }));
    std::vector<RdmaAddress> theirs;
    for (const auto& address : sender_->addresses("here")) theirs.push_back(*address);
    notes_ = theirs[0].notes;
    rails_.join(theirs);
    writer_ = SlotWriter(sender_->fifo());
  }
  Status progress() { return rails_.settle(*sender_); }
  std::uint64_t granted() const {
    return sender_->fifo().control->receiver_grant.sequence.load(std::memory_order_acquire);
  }
  void notify(std::size_t rail, const Notice& notice) {
    ibv_send_wr request = LiarRails::notice(notice.to_immediate());
    rails_.post(rail, 0, request);
  }
  void grant(std::uint64_t sequence, std::uint8_t attempt) {
    const RdmaGrant grant{.sequence = sequence};
    std::byte* const from = memory_.data() + 12288;
    std::memcpy(from, &grant, sizeof grant);
    ibv_sge part{reinterpret_cast<std::uintptr_t>(from), sizeof grant, registered_.get()->lkey};
    const Notice notice{NoticeKind::grant, static_cast<std::uint32_t>(sequence), attempt};
    ibv_send_wr request = LiarRails::notice(notice.to_immediate());
    request.sg_list = &part;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.wr.rdma.remote_addr = notes_.address + attempt % max_rails * sizeof(NotePlace);
    request.wr.rdma.rkey = notes_.key;
    rails_.post(0, 0, request);
  }
  void send() {
    writer_.commit(8, 7, DeliveryMode::staged);
    REQUIRE(progress().ok());
  }

 private:
  std::uintptr_t start() const { return reinterpret_cast<std::uintptr_t>(memory_.data()); }

  LiarRails rails_{1};
  std::vector<std::byte> memory_ = std::vector<std::byte>(16384);
  loaded::VerbsMemory registered_ = fuzz::must(
      rails_.device().register_memory(memory_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  std::unique_ptr<RdmaSender> sender_;
  RemoteMemory notes_;
  SlotWriter writer_;
};

}  // namespace

TEST_CASE("a grant that comes after a newer one is not taken", "[rdma]") {
  LateReceiver receiver;
  receiver.notify(0, {NoticeKind::credit, 0});
  receiver.grant(5, 1);
  REQUIRE(receiver.progress().ok());
  CHECK(receiver.granted() == 5);
  // Both are there before the sender looks, the older one last.
  receiver.grant(7, 3);
  receiver.grant(6, 2);
  CHECK(receiver.progress().ok());
  CHECK(receiver.granted() == 7);
  // Attempts are counted in eight bits.
  for (int i = 1; i <= 8; ++i) {
    const int attempt = 3 + 90 * i;
    receiver.grant(static_cast<std::uint64_t>(attempt), static_cast<std::uint8_t>(attempt));
    REQUIRE(receiver.progress().ok());
    CHECK(receiver.granted() == static_cast<std::uint64_t>(attempt));
  }
}

TEST_CASE("a credit that comes after a newer one blames nobody", "[rdma]") {
  LateReceiver receiver;
  receiver.notify(0, {NoticeKind::credit, 0});
  REQUIRE(receiver.progress().ok());
  for (int i = 0; i < 3; ++i) receiver.send();
  receiver.notify(0, {NoticeKind::credit, 3});
  receiver.notify(1, {NoticeKind::credit, 1});
  CHECK(receiver.progress().ok());
  receiver.send();
  receiver.notify(0, {NoticeKind::credit, 5});
  CHECK_FALSE(receiver.progress().ok());  // it was not sent
}
