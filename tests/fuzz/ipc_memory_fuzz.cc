// The message by which a process of the host lends memory of a GPU, and the lease in it. The lease
// is looked up among this process's own files: none of them may be taken for a lease, or harmed.
// Input: u8 flags (1: the lease is a true one of this process), the message.
#include "tests/fuzz/input.h"
#include "transports/p2p/memory.h"

#include <fcntl.h>
#include <unistd.h>

namespace ipc_memory_fuzz {

using namespace gyre;

int take_input(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const bool is_true = input.take_flag();
  const auto bytes = input.rest();
  auto message = p2p::decode_ipc_memory(bytes);
  if (!message) return 0;
  GYRE_DEMAND(std::ranges::equal(encode(*message), bytes));
  GYRE_DEMAND(message->bytes > 0 && message->offset < message->allocation_bytes);
  GYRE_DEMAND(message->offset + message->bytes <= message->allocation_bytes);
  auto lease = p2p::Lease::make();
  GYRE_DEMAND(lease.ok());
  if (is_true) message->lease = lease->name();
  const auto pid = static_cast<std::uint32_t>(getpid());
  {
    const auto borrowing = p2p::LeaseBorrower::begin(pid, message->lease);
    GYRE_DEMAND(borrowing.ok() == (message->lease == lease->name()));
    GYRE_DEMAND(lease->end() == !borrowing.ok());
  }
  GYRE_DEMAND(lease->end());
  GYRE_DEMAND(!p2p::LeaseBorrower::begin(pid, lease->name()).ok());
  return 0;
}

GYRE_FUZZ_TARGET(ipc_memory)

}  // namespace ipc_memory_fuzz
