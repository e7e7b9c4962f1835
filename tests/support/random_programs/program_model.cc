// The expected contents of every buffer of a program: each collective as copies and reductions of
// elements, one step after the other.
#include "tests/support/comm/elements.h"
#include "tests/support/random_programs/program.h"

#include <algorithm>
#include <numeric>

namespace gyre::tests {
namespace {

std::size_t first_of_block(const std::vector<std::size_t>& counts, int member) {
  return std::accumulate(counts.begin(), counts.begin() + member, std::size_t{0});
}

// What the source has for the target, or the target alone says.
Piece piece(const Call& call, int source, int target) {
  const std::size_t count = call.count;
  const Part& to = call.parts[at(target)];
  switch (call.verb) {
    case Verb::reduce_scatter:
      return {nobody, at(target) * count, target, 0, count};
    case Verb::all_gather:
    case Verb::gather:
      return {source, 0, target, at(source) * count, count};
    case Verb::all_to_all:
      return {source, at(target) * count, target, at(source) * count, count};
    case Verb::scatter:
      return {source, at(target) * count, target, 0, count};
    case Verb::all_to_all_v:
      return {source, call.parts[at(source)].send_places[at(target)], target,
              to.receive_places[at(source)], to.receive_counts[at(source)]};
    case Verb::all_gather_v:
      return {source, 0, target, to.receive_places[at(source)], to.receive_counts[at(source)]};
    case Verb::reduce_scatter_v:
      return {nobody, first_of_block(to.receive_counts, target), target, 0,
              to.receive_counts[at(target)]};
    default:
      return {call.verb == Verb::broadcast ? source : nobody, 0, target, 0, count};
  }
}

std::uint64_t combined(ReduceOp op, ElementType type, std::uint64_t a, std::uint64_t b) {
  const bool less =
      is_signed(type) ? static_cast<std::int64_t>(a) < static_cast<std::int64_t>(b) : a < b;
  switch (op) {
    case ReduceOp::prod:
      return a * b;
    case ReduceOp::max:
      return less ? b : a;
    case ReduceOp::min:
      return less ? a : b;
    case ReduceOp::band:
      return a & b;
    case ReduceOp::bor:
      return a | b;
    case ReduceOp::bxor:
      return a ^ b;
    default:
      return a + b;
  }
}

double combined(ReduceOp op, double a, double b) {
  if (op == ReduceOp::prod) return a * b;
  if (op == ReduceOp::max) return std::fmax(a, b);
  if (op == ReduceOp::min) return std::fmin(a, b);
  return a + b;
}

struct Operand {
  const std::byte* place;
  std::int64_t scalar;
};

void reduce_integers(ElementType type, ReduceOp op, const std::vector<Operand>& operands,
                     std::byte* to) {
  const auto load = [&](const Operand& one) {
    const std::uint64_t value = as_integer(type, one.place);
    return op == ReduceOp::pre_mul_sum ? value * static_cast<std::uint64_t>(one.scalar) : value;
  };
  std::uint64_t value = load(operands[0]);
  for (std::size_t i = 1; i < operands.size(); ++i)
    value = combined(op, type, value, load(operands[i]));
  std::memcpy(to, &value, element_bytes(type));
  if (op != ReduceOp::avg) return;
  value = as_integer(type, to);  // wrapped to the type before the division
  const auto n = static_cast<std::int64_t>(operands.size());
  value = is_signed(type) ? static_cast<std::uint64_t>(static_cast<std::int64_t>(value) / n)
                          : value / operands.size();
  std::memcpy(to, &value, element_bytes(type));
}

// Every step but the division of an average is exact.
void reduce_floats(ElementType type, ReduceOp op, const std::vector<Operand>& operands,
                   std::byte* to) {
  const auto load = [&](const Operand& one) {
    const double value = as_double(type, one.place);
    return op == ReduceOp::pre_mul_sum ? value * static_cast<double>(one.scalar) : value;
  };
  double value = load(operands[0]);
  for (std::size_t i = 1; i < operands.size(); ++i) value = combined(op, value, load(operands[i]));
  const auto n = static_cast<double>(operands.size());
  if (op == ReduceOp::avg && type == ElementType::float64)
    value /= n;
  else if (op == ReduceOp::avg)
    value = static_cast<double>(static_cast<float>(value) / static_cast<float>(n));
  put(type, to, value, 0);
}

std::byte* place_in(Memories& memories, const Place& place) {
  return memories[at(place.buffer)].data() + place.offset;
}

void act(const Call& call, Memories& memories) {
  const Memories before = [&] {  // of the inputs, since some are outputs too
    Memories inputs(call.parts.size());
    for (int member = 0; member < static_cast<int>(call.parts.size()); ++member) {
      const std::size_t bytes = extents_of(call, member).input * element_bytes(call.type);
      if (bytes == 0) continue;
      const std::byte* from = place_in(memories, call.parts[at(member)].input);
      inputs[at(member)].assign(from, from + bytes);
    }
    return inputs;
  }();
  const std::size_t size = element_bytes(call.type);
  for (const Piece& piece : pieces_of(call)) {
    if (piece.count == 0) continue;
    std::byte* to = place_in(memories, call.parts[at(piece.target)].output);
    to += piece.target_first * size;
    if (piece.source != nobody) {
      std::memcpy(to, before[at(piece.source)].data() + piece.source_first * size,
                  piece.count * size);
      continue;
    }
    for (std::size_t i = 0; i < piece.count; ++i) {
      std::vector<Operand> operands;
      for (std::size_t member = 0; member < before.size(); ++member)
        operands.push_back(
            {before[member].data() + (piece.source_first + i) * size, call.parts[member].scalar});
      (is_float(call.type) ? reduce_floats : reduce_integers)(call.type, call.op, operands,
                                                              to + i * size);
    }
  }
}

void act(const Message& message, Memories& memories) {
  const std::size_t bytes = message.count * element_bytes(message.type);
  if (bytes == 0) return;
  const std::byte* from = place_in(memories, message.input);
  std::memmove(place_in(memories, message.output), from, bytes);
}

}  // namespace

bool sums(Verb verb) {
  return verb == Verb::all_reduce || verb == Verb::reduce || verb == Verb::reduce_scatter ||
         verb == Verb::reduce_scatter_v;
}

std::int64_t max_small(ElementType type) {
  // 8 ranks, scalars up to 2: 8 * 2 * most is at most 2^(bits of the significand).
  if (element_bytes(type) == 1) return 1;  // with scalars of 1: 3 bits hold the numbers up to 8
  return type == ElementType::bfloat16 ? 15 : 100;
}

std::vector<Piece> pieces_of(const Call& call) {
  const int n = static_cast<int>(call.parts.size());
  std::vector<Piece> pieces;
  if (call.verb == Verb::barrier) return pieces;
  const bool to_root = call.verb == Verb::reduce || call.verb == Verb::gather;
  const bool from_root = call.verb == Verb::broadcast || call.verb == Verb::scatter;
  const bool once = sums(call.verb) || from_root;
  for (int target = 0; target < n; ++target) {
    if (to_root && target != call.root) continue;
    for (int source = 0; source < (once ? 1 : n); ++source)
      pieces.push_back(piece(call, from_root ? call.root : source, target));
  }
  return pieces;
}

Extents extents_of(const Call& call, int member) {
  Extents extents;
  for (const Piece& piece : pieces_of(call)) {
    if (piece.count == 0) continue;
    if (piece.source == member || piece.source == nobody)
      extents.input = std::max(extents.input, piece.source_first + piece.count);
    if (piece.target == member)
      extents.output = std::max(extents.output, piece.target_first + piece.count);
  }
  return extents;
}

std::size_t own_first(const Call& call, int member) {
  const Part& part = call.parts[at(member)];
  switch (call.verb) {
    case Verb::reduce_scatter:
    case Verb::all_gather:
    case Verb::gather:
    case Verb::scatter:
      return at(member) * call.count;
    case Verb::all_gather_v:
      return part.receive_places[at(member)];
    case Verb::reduce_scatter_v:
      return first_of_block(part.receive_counts, member);
    default:
      return 0;
  }
}

std::vector<std::byte> first_bytes(const ProgramBuffer& buffer) {
  std::vector<std::byte> bytes(buffer.bytes, untouched_byte);
  if (buffer.filling == Filling::untouched) return bytes;
  const std::size_t size = element_bytes(buffer.type);
  for (std::size_t i = 0; i < bytes.size() / size; ++i) {
    const std::uint64_t hash = hashed(buffer.seed, static_cast<std::uint64_t>(buffer.rank), i);
    if (buffer.filling == Filling::bits || !is_float(buffer.type)) {
      std::memcpy(bytes.data() + i * size, &hash, size);
      continue;
    }
    const auto most = static_cast<std::uint64_t>(max_small(buffer.type));
    double value = static_cast<double>(hash % (2 * most + 1)) - static_cast<double>(most);
    if (buffer.filling == Filling::factors) value = hash % 3 == 0 ? -1 : hash % 3 == 1 ? 1 : 2;
    put(buffer.type, bytes.data() + i * size, value, 0);
  }
  return bytes;
}

Memories expected_bytes(const Program& program) {
  Memories memories, expected(program.steps.size());
  for (const ProgramBuffer& buffer : program.buffers) memories.push_back(first_bytes(buffer));
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const Act& what = program.steps[i].act;
    if (const auto* call = std::get_if<Call>(&what)) act(*call, memories);
    if (const auto* message = std::get_if<Message>(&what)) act(*message, memories);
    if (const auto* verify = std::get_if<Verify>(&what)) expected[i] = memories[at(verify->buffer)];
  }
  return expected;
}

}  // namespace gyre::tests
