#include "lib/call/binding.h"

#include "lib/base/units.h"

#include <algorithm>

namespace gyre::comm {
namespace {

using plan::Collective;
using plan::Extent;
using plan::Layout;

// One block for every chunk, always at the buffer's beginning: a rank has only its own.
Layout own_block(const Extent& part, std::uint64_t blocks) {
  return {nullptr, part.bytes, part.bytes * blocks, 0, part.offset, 0};
}

std::uint64_t end_of(const std::vector<Extent>& blocks) {
  std::uint64_t end = 0;
  for (const Extent& block : blocks)
    if (block.bytes > 0) end = std::max(end, block.offset + block.bytes);
  return end;
}

}  // namespace

// Whole pairs of cache lines, so that channels never share one.
Extent Stripe::of(std::uint64_t bytes) const {
  if (count == 1) return {0, bytes};
  const std::uint64_t share = round_up(divide_up(bytes, count), 128);
  const std::uint64_t begin = std::min(bytes, index * share);
  return {begin, std::min(share, bytes - begin)};
}

void Binding::bind(const Request& request, const plan::Plan& plan, std::uint64_t max_piece_bytes,
                   Stripe stripe) {
  stripe_ = stripe;
  geometry_.chunk_count = plan.chunk_count();
  geometry_.piece_bytes =
      std::max<std::uint64_t>(64, max_piece_bytes / plan.message_chunks() / 64 * 64);
  if (request.tables != nullptr) return bind_tables(request, plan);
  const bool whole = request.collective == Collective::all_reduce ||
                     request.collective == Collective::broadcast ||
                     request.collective == Collective::reduce;
  if (whole) return bind_whole(request);
  bind_blocks(request, plan);
}

void Binding::bind_whole(const Request& request) {
  const std::uint64_t bytes = request.block_bytes();
  const Extent part = stripe_.of(bytes);
  // Whole cache lines, so that ranks never share one and vector loads stay aligned.
  const std::uint64_t chunk_bytes =
      std::max<std::uint64_t>(64, round_up(divide_up(part.bytes, geometry_.chunk_count), 64));
  geometry_.input =
      geometry_.output = {nullptr, chunk_bytes, part.bytes, chunk_bytes, part.offset, 0};
  input_bytes_ = request.input != nullptr ? bytes : 0;
  output_bytes_ = request.output != nullptr ? bytes : 0;
}

Layout Binding::by_owner(const plan::Plan& plan, std::uint64_t block_bytes) {
  const Extent part = stripe_.of(block_bytes);
  if (plan.parts().owners.empty())
    return {nullptr, part.bytes, part.bytes * plan.chunk_count(), block_bytes, part.offset, 0};
  owned_.resize(plan.chunk_count());
  for (std::uint32_t chunk = 0; chunk < plan.chunk_count(); ++chunk)
    owned_[chunk] = {static_cast<std::uint64_t>(plan.owner(chunk)) * block_bytes + part.offset,
                     part.bytes};
  return Layout::listed(owned_.data());
}

void Binding::bind_blocks(const Request& request, const plan::Plan& plan) {
  const std::uint64_t block = request.block_bytes();
  const Layout spread = by_owner(plan, block);
  const Layout own = own_block(stripe_.of(block), plan.chunk_count());
  geometry_.input = spread;
  geometry_.output = spread;
  if (request.collective == Collective::all_gather || request.collective == Collective::gather)
    geometry_.input = own;
  if (request.collective == Collective::reduce_scatter || request.collective == Collective::scatter)
    geometry_.output = own;
  const BlockCounts counts =
      block_counts(request.collective, plan.rank_count(), plan.rank() == plan.root());
  input_bytes_ = counts.input * block;
  output_bytes_ = counts.output * block;
}

Extent Binding::striped(const Extent& block) const {
  const Extent part = stripe_.of(block.bytes);
  return {block.offset + part.offset, part.bytes};
}

void Binding::bind_tables(const Request& request, const plan::Plan& plan) {
  input_table_.resize(plan.chunk_count());
  output_table_.resize(plan.chunk_count());
  for (std::uint32_t chunk = 0; chunk < plan.chunk_count(); ++chunk) {
    const auto owner = static_cast<std::size_t>(plan.owner(chunk));
    input_table_[chunk] = striped(request.tables->input[owner]);
    output_table_[chunk] = striped(request.tables->output[owner]);
  }
  geometry_.input = Layout::listed(input_table_.data());
  geometry_.output = Layout::listed(output_table_.data());
  // Of what has only the own block, the table's other entries lie elsewhere.
  const auto self = static_cast<std::size_t>(plan.rank());
  input_bytes_ = request.collective == Collective::all_gather ? request.tables->input[self].bytes
                                                              : end_of(request.tables->input);
  output_bytes_ = request.collective == Collective::reduce_scatter
                      ? request.tables->output[self].bytes
                      : end_of(request.tables->output);
}

}  // namespace gyre::comm
