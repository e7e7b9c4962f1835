#include "lib/call/collective_call.h"

namespace gyre::comm {

BufferShape BufferShape::of(plan::Collective collective, int size, int rank, bool is_root,
                            std::uint64_t block_bytes) {
  const BlockCounts counts = block_counts(collective, size, is_root);
  BufferShape shape{.send_bytes = counts.input * block_bytes,
                    .receive_bytes = counts.output * block_bytes};
  const std::uint64_t own = static_cast<std::uint64_t>(rank) * block_bytes;
  if (collective == plan::Collective::all_gather || collective == plan::Collective::gather)
    shape.send_ahead = own;
  if (collective == plan::Collective::reduce_scatter || collective == plan::Collective::scatter)
    shape.receive_ahead = own;
  shape.last_send = last_address(shape.send_bytes);
  shape.last_receive = last_address(shape.receive_bytes);
  return shape;
}

}  // namespace gyre::comm
