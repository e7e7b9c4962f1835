#include "lib/api/arguments.h"

#include "kernels/cpu/move.h"
#include "lib/base/units.h"
#include <gyre/gyre.h>

#include <fmt/core.h>

namespace gyre::comm {
namespace {

bool takes_root(plan::Collective collective) {
  return collective == plan::Collective::broadcast || collective == plan::Collective::reduce ||
         collective == plan::Collective::gather || collective == plan::Collective::scatter;
}

}  // namespace

Status refuse_buffer(std::string_view name, const void* buffer, std::uint64_t bytes) {
  if (buffer == nullptr) return invalid_argument(fmt::format("{} is NULL", name));
  return invalid_argument(
      fmt::format("{} = {} with {} bytes does not fit the address space", name, buffer, bytes));
}

Result<std::uint64_t> check_count(std::size_t count, int type, std::uint64_t blocks) {
  if (type < 0 || type >= gyreNumTypes)
    return invalid_argument(fmt::format("datatype {} is not known", type));
  const auto block = checked_multiply(count, element_bytes(static_cast<ElementType>(type)));
  const auto bytes = block ? checked_multiply(*block, blocks) : block;
  if (!bytes || *bytes > address_end)
    return invalid_argument(fmt::format("count {} of {}{} is more than any memory", count,
                                        element_name(static_cast<ElementType>(type)),
                                        blocks > 1 ? fmt::format(" in {} blocks", blocks) : ""));
  return *bytes;
}

Status check_op(const Communicator& communicator, int op, Request& request) {
  if (op < 0) return invalid_argument(fmt::format("op {} is not known", op));
  if (op >= gyreNumOps) {
    GYRE_ASSIGN(request.op, communicator.find_made_op(op, request.type, request.pre_scalar));
    return {};
  }
  request.op = static_cast<ReduceOp>(op);
  if (!kernels::supported(request.type, request.op))
    return invalid_argument(fmt::format("{} is for integers, not for {}", op_name(request.op),
                                        element_name(request.type)));
  return {};
}

Status check_root(int root, int size) {
  if (root >= 0 && root < size) return {};
  return invalid_argument(fmt::format("root {} is not from 0 to {}", root, size - 1));
}

// A byte that everybody needs from everybody.
void make_barrier(Communicator& communicator, Request& request) {
  request.function = Function::barrier;
  request.count = 1;
  request.input = request.output = communicator.backend().barrier_byte();
  request.in_place = true;
}

Status make_request(Communicator& communicator, const CollectiveCall& call, Request& request) {
  if (call.function == Function::barrier) {
    make_barrier(communicator, request);
    return {};
  }
  const bool rooted = takes_root(call.collective);
  if (rooted) GYRE_TRY(check_root(call.root, communicator.size()));
  const int rank = communicator.rank();
  const BlockCounts counts =
      block_counts(call.collective, communicator.size(), !rooted || rank == call.root);
  const std::uint64_t most = std::max<std::uint64_t>(std::max(counts.input, counts.output), 1);
  if (Result<std::uint64_t> bytes = check_count(call.count, call.type, most); !bytes.ok())
    return std::move(bytes).status();
  request.function = call.function;
  request.collective = call.collective;
  request.type = static_cast<ElementType>(call.type);
  request.count = call.count;
  request.root = rooted ? call.root : 0;
  if (plan::sums(call.collective)) GYRE_TRY(check_op(communicator, call.op, request));
  const auto shape = BufferShape::of(call.collective, communicator.size(), rank,
                                     !rooted || rank == call.root, request.block_bytes());
  const std::uint64_t send_bytes = shape.send_bytes, receive_bytes = shape.receive_bytes;
  GYRE_TRY(check_buffer(communicator, "sendbuff", call.send, send_bytes));
  GYRE_TRY(check_buffer(communicator, "recvbuff", call.receive, receive_bytes));
  if (send_bytes > 0) request.input = static_cast<const std::byte*>(call.send);
  if (receive_bytes > 0) request.output = static_cast<std::byte*>(call.receive);
  if (send_bytes == 0 || receive_bytes == 0) return {};

  request.in_place = shape.is_in_place(call.send, call.receive);
  if (shape.fits(call.send, call.receive)) return {};
  return invalid_argument(
      fmt::format("sendbuff {} ({} bytes) and recvbuff {} ({} bytes) overlap: they must be apart, "
                  "or in place as gyre.h says",
                  call.send, send_bytes, call.receive, receive_bytes));
}

Result<std::vector<plan::Extent>> checked_blocks(const UnevenSide& side, int type, int size) {
  if (side.counts == nullptr) return invalid_argument(fmt::format("{} is NULL", side.counts_name));
  std::vector<plan::Extent> blocks(static_cast<std::size_t>(size));
  std::uint64_t next = 0;
  for (std::size_t rank = 0; rank < blocks.size(); ++rank) {
    const auto bytes = check_count(side.counts[rank], type);
    if (!bytes.ok())
      return std::move(bytes).status().while_doing(fmt::format("{}[{}]", side.counts_name, rank));
    blocks[rank] = {next, *bytes};
    if (side.displacements != nullptr) {
      const auto offset = check_count(side.displacements[rank], type);
      if (!offset.ok())
        return std::move(offset).status().while_doing(
            fmt::format("{}[{}]", side.displacements_name, rank));
      blocks[rank].offset = *offset;
    }
    next += *bytes;
    if (next > address_end)
      return invalid_argument(fmt::format("{} add up to more than any memory", side.counts_name));
  }
  return blocks;
}

}  // namespace gyre::comm
