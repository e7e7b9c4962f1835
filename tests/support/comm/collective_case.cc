#include "tests/support/comm/collective_case.h"

#include "kernels/cpu/move.h"
#include "tests/support/comm/elements.h"

#include <algorithm>
#include <cstring>

namespace gyre::tests {
namespace {

constexpr std::byte untouched{0xA5};
constexpr double pre_scale = 0.75;
constexpr std::uint64_t integer_scale = 2;
constexpr std::size_t gap = 2;  // elements between the blocks of gyreAllGatherv

constexpr const char* names[] = {"reduce-scatter", "all-gather",       "broadcast", "reduce",
                                 "all-to-all",     "gather",           "scatter",   "all-to-all-v",
                                 "all-gather-v",   "reduce-scatter-v", "all-reduce"};

double scale_of(ElementType type) { return is_float(type) ? pre_scale : double{integer_scale}; }

}  // namespace

bool CollectiveCase::sums() const {
  return function == Function::reduce || function == Function::reduce_scatter ||
         function == Function::reduce_scatter_v || function == Function::all_reduce;
}

bool CollectiveCase::is_legal() const {
  if (function == Function::all_to_all_v && in_place) return false;
  const bool bitwise = op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
  return !sums() || !bitwise || !is_float(type);
}

const char* CollectiveCase::name() const { return names[static_cast<int>(function)]; }

std::string CollectiveCase::shown() const {
  return std::string(name()) + " n=" + std::to_string(ranks) + " " +
         std::string(element_name(type)) + " " + (sums() ? std::string(op_name(op)) : "") +
         (in_place ? " in place" : "") + " count=" + std::to_string(count) +
         " shift=" + std::to_string(shift) + " root=" + std::to_string(root);
}

std::size_t CaseBuffers::Side::end() const {
  std::size_t end = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) end = std::max(end, displacements[i] + counts[i]);
  return end;
}

// What `from` has for `to` in an uneven all-to-all; in the others `to` alone says how long a block
// is. Some are empty.
std::size_t CaseBuffers::uneven(int from, int to) const {
  if (case_.function == Function::all_to_all_v)
    return (from * 5 + to * 3) % 4 == 0 ? 0 : case_.count * at(1 + (from + 2 * to) % 3) / 2;
  return to % 3 == 1 ? 0 : case_.count + at(to);
}

CaseBuffers::Side CaseBuffers::side(int rank, bool output) const {
  Side side;
  std::size_t next = 0;
  for (int other = 0; other < case_.ranks; ++other) {
    side.counts.push_back(output && case_.function == Function::all_to_all_v ? uneven(other, rank)
                                                                             : uneven(rank, other));
    side.displacements.push_back(next);
    next += side.counts.back() + (case_.function == Function::all_gather_v ? gap : 0);
  }
  return side;
}

std::size_t CaseBuffers::input_count(int rank) const {
  const std::size_t all = at(case_.ranks) * case_.count;
  switch (case_.function) {
    case Function::reduce_scatter:
    case Function::all_to_all:
      return all;
    case Function::scatter:
      return rank == case_.root ? all : 0;
    case Function::broadcast:
      return rank == case_.root ? case_.count : 0;
    case Function::all_to_all_v:
    case Function::reduce_scatter_v:
      return side(rank, false).end();
    case Function::all_gather_v:
      return uneven(0, rank);
    default:
      return case_.count;
  }
}

std::size_t CaseBuffers::output_count(int rank) const {
  const std::size_t all = at(case_.ranks) * case_.count;
  switch (case_.function) {
    case Function::all_gather:
    case Function::all_to_all:
      return all;
    case Function::gather:
      return rank == case_.root ? all : 0;
    case Function::reduce:
      return rank == case_.root ? case_.count : 0;
    case Function::all_to_all_v:
    case Function::all_gather_v:
      return side(rank, true).end();
    case Function::reduce_scatter_v:
      return uneven(0, rank);
    default:
      return case_.count;
  }
}

std::vector<CaseBuffers::Expected> CaseBuffers::expected(int rank) const {
  const std::size_t count = case_.count;
  const std::size_t own = at(rank) * count;
  std::vector<Expected> list;
  switch (case_.function) {
    case Function::reduce_scatter:
      return {{0, count, Expected::all, own}};
    case Function::reduce_scatter_v:
      return {{0, uneven(0, rank), Expected::all, side(rank, false).displacements[at(rank)]}};
    case Function::reduce:
      if (rank == case_.root) return {{0, count, Expected::all, 0}};
      return {};
    case Function::all_reduce:
      return {{0, count, Expected::all, 0}};
    case Function::broadcast:
      return {{0, count, case_.root, 0}};
    case Function::scatter:
      return {{0, count, case_.root, own}};
    default:
      break;
  }
  if (case_.function == Function::gather && rank != case_.root) return {};
  const bool exchanges =
      case_.function == Function::all_to_all || case_.function == Function::all_to_all_v;
  for (int source = 0; source < case_.ranks; ++source) {
    Expected block{at(source) * count, count, source, exchanges ? own : 0};
    if (case_.function == Function::all_to_all_v || case_.function == Function::all_gather_v) {
      const Side received = side(rank, true);
      block.output_first = received.displacements[at(source)];
      block.count = received.counts[at(source)];
      if (exchanges) block.input_first = side(source, false).displacements[at(rank)];
    }
    list.push_back(block);
  }
  return list;
}

CaseBuffers::CaseBuffers(const CollectiveCase& one)
    : case_(one), size_(element_bytes(one.type)), places_(2 * at(one.ranks)) {
  for (int rank = 0; rank < one.ranks; ++rank) {
    const std::size_t in = input_count(rank), out = output_count(rank);
    const std::size_t room = (std::max(in, out) + one.shift + 8) * size_;
    memory_.emplace_back(room);
    other_memory_.emplace_back(one.in_place ? 0 : room);
    std::byte* const base = memory_.back().data() + one.shift * size_;
    std::byte* input = base;
    std::byte* output = one.in_place ? base : other_memory_.back().data() + one.shift * size_;
    // Where the smaller side lies in the larger one, in place.
    std::size_t ahead = at(rank) * one.count;
    if (one.function == Function::all_gather_v) ahead = side(rank, true).displacements[at(rank)];
    if (one.function == Function::reduce_scatter_v)
      ahead = side(rank, false).displacements[at(rank)];
    const bool rooted = one.function == Function::gather || one.function == Function::scatter;
    if (one.in_place && in != out && in > 0 && out > 0 && (!rooted || rank == one.root))
      (in < out ? input : output) += ahead * size_;
    inputs_.push_back(input);
    outputs_.push_back(output);
    originals_.emplace_back(in * size_);
    for (std::size_t i = 0; i < in; ++i)
      make_element(one.type, originals_.back().data() + i * size_,
                   hashed(one.count + one.shift, static_cast<std::uint64_t>(rank), i));
  }
  renew();
}

void CaseBuffers::renew() {
  for (std::size_t i = 0; i < blocks(); ++i) std::ranges::fill(block(i), untouched);
  for (int rank = 0; rank < case_.ranks; ++rank)
    std::ranges::copy(originals_[at(rank)], inputs_[at(rank)]);
}

std::span<std::byte> CaseBuffers::block(std::size_t index) {
  return (index % 2 == 0 ? memory_ : other_memory_)[index / 2];
}

std::byte* CaseBuffers::placed(std::byte* pointer) {
  for (std::size_t i = 0; i < blocks(); ++i) {
    const std::span<std::byte> here = block(i);
    if (pointer < here.data() || pointer >= here.data() + here.size()) continue;
    // Ranks that are threads place their own blocks meanwhile.
    std::byte* const place = std::atomic_ref(places_[i]).load(std::memory_order_relaxed);
    if (place != nullptr) return place + (pointer - here.data());
  }
  return pointer;
}

gyreResult_t CaseBuffers::call(int rank, gyreComm_t comm, gyreStream_t stream) {
  auto op = static_cast<gyreRedOp_t>(case_.op);
  const bool made = case_.sums() && case_.op == ReduceOp::pre_mul_sum;
  if (made) {
    std::byte scalar[8] = {};
    put(case_.type, scalar, scale_of(case_.type), integer_scale);
    const gyreResult_t result = gyreRedOpCreatePreMulSum(
        &op, scalar, static_cast<gyreDataType_t>(case_.type), gyreScalarHostImmediate, comm);
    if (result != gyreSuccess) return result;
  }
  const bool is_uneven = case_.function == Function::all_to_all_v ||
                         case_.function == Function::all_gather_v ||
                         case_.function == Function::reduce_scatter_v;
  const gyreResult_t result =
      is_uneven ? call_uneven(rank, op, comm, stream) : call_even(rank, op, comm, stream);
  if (made) (void)gyreRedOpDestroy(op, comm);
  return result;
}

gyreResult_t CaseBuffers::call_even(int rank, gyreRedOp_t op, gyreComm_t comm,
                                    gyreStream_t stream) {
  const auto type = static_cast<gyreDataType_t>(case_.type);
  const std::byte* in = placed(inputs_[at(rank)]);
  std::byte* out = placed(outputs_[at(rank)]);
  switch (case_.function) {
    case Function::reduce_scatter:
      return gyreReduceScatter(in, out, case_.count, type, op, comm, stream);
    case Function::all_gather:
      return gyreAllGather(in, out, case_.count, type, comm, stream);
    case Function::broadcast:
      return case_.in_place ? gyreBcast(out, case_.count, type, case_.root, comm, stream)
                            : gyreBroadcast(rank == case_.root ? in : nullptr, out, case_.count,
                                            type, case_.root, comm, stream);
    case Function::reduce:
      return gyreReduce(in, rank == case_.root ? out : nullptr, case_.count, type, op, case_.root,
                        comm, stream);
    case Function::all_to_all:
      return gyreAlltoAll(in, out, case_.count, type, comm, stream);
    case Function::all_reduce:
      return gyreAllReduce(in, out, case_.count, type, op, comm, stream);
    case Function::gather:
      return gyreGather(in, rank == case_.root ? out : nullptr, case_.count, type, case_.root, comm,
                        stream);
    default:
      return gyreScatter(rank == case_.root ? in : nullptr, out, case_.count, type, case_.root,
                         comm, stream);
  }
}

gyreResult_t CaseBuffers::call_uneven(int rank, gyreRedOp_t op, gyreComm_t comm,
                                      gyreStream_t stream) {
  const auto type = static_cast<gyreDataType_t>(case_.type);
  const std::byte* in = placed(inputs_[at(rank)]);
  std::byte* out = placed(outputs_[at(rank)]);
  const Side sent = side(rank, false), received = side(rank, true);
  if (case_.function == Function::all_to_all_v)
    return gyreAlltoAllv(in, sent.counts.data(), sent.displacements.data(), out,
                         received.counts.data(), received.displacements.data(), type, comm, stream);
  if (case_.function == Function::all_gather_v)
    return gyreAllGatherv(in, uneven(0, rank), out, received.counts.data(),
                          received.displacements.data(), type, comm, stream);
  return gyreReduceScatterv(in, out, sent.counts.data(), type, op, comm, stream);
}

std::size_t CaseBuffers::first_wrong(const Expected& expected, const std::byte* got) const {
  std::vector<const std::byte*> operands;
  for (int rank = 0; rank < case_.ranks; ++rank)
    if (expected.source == Expected::all || expected.source == rank)
      operands.push_back(originals_[at(rank)].data() + expected.input_first * size_);
  const bool is_copy = expected.source != Expected::all;
  if (is_copy && std::equal(got, got + expected.count * size_, operands[0])) return expected.count;
  for (std::size_t i = 0; i < expected.count; ++i, got += size_) {
    const bool right =
        is_copy ? std::equal(got, got + size_, operands[0])
                : is_reduction(case_.type, case_.op, operands, scale_of(case_.type), got);
    if (!right) return i;
    for (const std::byte*& operand : operands) operand += size_;
  }
  return expected.count;
}

std::string CaseBuffers::wrong(int rank) const {
  const std::byte* output = outputs_[at(rank)];
  const std::size_t count = output_count(rank);
  std::vector<bool> written(count, false);
  for (const Expected& block : expected(rank)) {
    std::fill_n(written.begin() + static_cast<std::ptrdiff_t>(block.output_first), block.count,
                true);
    const std::size_t i = first_wrong(block, output + block.output_first * size_);
    if (i < block.count)
      return "rank " + std::to_string(rank) + ": element " +
             std::to_string(block.output_first + i) + " is wrong";
  }
  if (case_.in_place) return {};
  for (std::size_t i = 0; i < count + 8; ++i) {
    if (i < count && written[i]) continue;
    for (std::size_t byte = i * size_; byte < (i + 1) * size_; ++byte)
      if (output[byte] != untouched)
        return "rank " + std::to_string(rank) + ": byte " + std::to_string(byte) +
               " of the output changed, which is nobody's";
  }
  if (!std::equal(originals_[at(rank)].begin(), originals_[at(rank)].end(), inputs_[at(rank)]))
    return "rank " + std::to_string(rank) + ": its input changed";
  return {};
}

}  // namespace gyre::tests
