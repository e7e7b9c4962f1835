// An RDMA receiver that may lie: its notices and grants, as the sender takes them. Input: u8 queue
// pairs, then steps: u8 kind and
//   0: u8 rail, u32 immediate number, a notice
//   1: u16 bytes, a message that the sending rank commits
//   2: u8 attempt, u8 place, u8 value: a grant of the receiver's memory, one byte of it changed
#include "tests/fuzz/lying_receiver.h"

namespace rdma_sender_fuzz {

using namespace gyre;

int take_input(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  fuzz::LyingReceiver receiver(1 + input.take<std::uint8_t>() % 4);
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

GYRE_FUZZ_TARGET(rdma_sender)

}  // namespace rdma_sender_fuzz
