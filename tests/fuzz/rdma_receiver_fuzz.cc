// An RDMA peer that may lie: its answer, its notices, and what it writes into the receiver's notes.
// Input: u8 queue pairs, block: an answer in place of the good one, if it is not empty; then steps:
// u8 kind and
//   0: u8 pair, u32 immediate number, a notice
//   1: u8 place, u8 value, block: a message beside its note, one byte of the note changed
//   2: u8 messages that the receiving rank takes from the fifo
//   3: u16 offset, block: bytes into the ring of notes
//   4: the receiving rank lends memory for its next call
#include "tests/fuzz/lying_sender.h"

namespace rdma_receiver_fuzz {

using namespace gyre;

int take_input(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::size_t pairs = 1 + input.take<std::uint8_t>() % 4;
  fuzz::LyingSender peer(pairs, input.take_block());
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

GYRE_FUZZ_TARGET(rdma_receiver)

}  // namespace rdma_receiver_fuzz
