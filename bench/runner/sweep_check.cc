// The checked passes of a sweep: fresh random data and one call. Then every element, the guards
// around the output, the input, which must be unchanged, and the other ranks' outputs are checked.
#include "bench/runner/sweep.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace gyre::bench {
namespace {

// What no input starts with and no sum leaves behind by chance.
constexpr unsigned char stale_byte = 0xa5;
// Lines on stderr from one thread; the count in the table is complete.
constexpr std::uint64_t max_told = 8;

}  // namespace

std::uint64_t Sweep::inputs_of(const Case& test, int rank) const {
  return collective_.input == nullptr ? test.extent.send
                                      : collective_.input(test.shape, test.extent, rank);
}

Status Sweep::fill(const Case& test, const Recipe& recipe) {
  const std::uint64_t size = test.shape.element_bytes;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    const int rank = thread_ranks_.first_rank() + static_cast<int>(i);
    std::byte* input = member.send.begin();
    if (test.in_place)
      input = member.recv.begin() +
              static_cast<std::uint64_t>(rank) * test.extent.send_in_place_offset * size;
    GYRE_TRY(member.memory->write(member.recv.begin(),
                                  test.in_place ? test.largest_bytes : test.recv_bytes,
                                  [](std::byte* tile, std::uint64_t, std::uint64_t bytes) {
                                    std::memset(tile, stale_byte, bytes);
                                  }));
    GYRE_TRY(member.memory->write(input, inputs_of(test, rank) * size,
                                  [&](std::byte* tile, std::uint64_t offset, std::uint64_t bytes) {
                                    fill_inputs(recipe, rank, offset / size, bytes / size, tile);
                                  }));
  }
  return {};
}

// `count` elements at `input` must be the rank's inputs from `first` on.
Result<CheckOutcome> Sweep::check_input(const Case& test, const Recipe& recipe, int member,
                                        const std::byte* input, std::uint64_t first,
                                        std::uint64_t count) {
  const std::uint64_t size = test.shape.element_bytes;
  const int rank = thread_ranks_.first_rank() + member;
  CheckOutcome outcome;
  GYRE_TRY(thread_ranks_.memory(member).read(
      input, count * size, [&](const std::byte* tile, std::uint64_t offset, std::uint64_t bytes) {
        outcome.add(check_copy(recipe, rank, first + offset / size, bytes / size, tile));
      }));
  if (outcome.wrong > 0)
    outcome.first = fmt::format("{} elements of the input were written", outcome.wrong);
  return outcome;
}

Result<CheckOutcome> Sweep::check_block(const Case& test, const Recipe& recipe, int member,
                                        const ExpectedBlock& block, const std::byte* output) {
  const std::uint64_t size = test.shape.element_bytes;
  CheckOutcome outcome;
  GYRE_TRY(thread_ranks_.memory(member).read(
      output, block.count * size,
      [&](const std::byte* tile, std::uint64_t offset, std::uint64_t bytes) {
        const std::uint64_t first = block.input_first + offset / size, count = bytes / size;
        outcome.add(block.source_rank == ExpectedBlock::reduced
                        ? check_reduction(recipe, thread_ranks_.ranks(), first, count, tile)
                        : check_copy(recipe, block.source_rank, first, count, tile));
      }));
  return outcome;
}

// Elements [first, last) of the receive buffer must be as `fill` left them.
Result<CheckOutcome> Sweep::check_kept(const Case& test, const Recipe& recipe, int member,
                                       std::uint64_t first, std::uint64_t last) {
  if (first >= last) return CheckOutcome();
  const std::uint64_t size = test.shape.element_bytes;
  const int rank = thread_ranks_.first_rank() + member;
  const std::byte* buffer = members_[static_cast<std::size_t>(member)].recv.begin();
  std::uint64_t input = last, input_end = last;
  if (test.in_place) {
    const std::uint64_t begin = static_cast<std::uint64_t>(rank) * test.extent.send_in_place_offset;
    input = std::clamp(begin, first, last);
    input_end = std::clamp(begin + inputs_of(test, rank), first, last);
    GYRE_ASSIGN(CheckOutcome own, check_input(test, recipe, member, buffer + input * size,
                                              input - begin, input_end - input));
    if (own.wrong > 0) return own;
  }
  std::uint64_t written = 0;
  const auto count = [&](const std::byte* tile, std::uint64_t, std::uint64_t bytes) {
    written += changed_bytes(tile, bytes, stale_byte);
  };
  Memory& memory = thread_ranks_.memory(member);
  GYRE_TRY(memory.read(buffer + first * size, (input - first) * size, count));
  GYRE_TRY(memory.read(buffer + input_end * size, (last - input_end) * size, count));
  CheckOutcome outcome;
  if (written > 0)
    outcome.add({written, fmt::format("{} bytes that are no output were written", written)});
  return outcome;
}

Result<CheckOutcome> Sweep::check_member(const Case& test, const Recipe& recipe, int member) {
  const std::uint64_t size = test.shape.element_bytes;
  const int rank = thread_ranks_.first_rank() + member;
  const Member& own = members_[static_cast<std::size_t>(member)];
  const std::uint64_t base =
      test.in_place ? static_cast<std::uint64_t>(rank) * test.extent.recv_in_place_offset : 0;
  const std::uint64_t used = test.in_place ? test.largest_bytes : test.recv_bytes;
  CheckOutcome outcome;
  std::uint64_t seen = 0;  // elements of the buffer
  for (const ExpectedBlock& block : collective_.expected(test.shape, test.extent, rank)) {
    const std::uint64_t begin = base + block.output_first;
    GYRE_ASSIGN(const CheckOutcome output,
                check_block(test, recipe, member, block, own.recv.begin() + begin * size));
    outcome.add(output);
    GYRE_ASSIGN(const CheckOutcome between, check_kept(test, recipe, member, seen, begin));
    outcome.add(between);
    seen = begin + block.count;
  }
  GYRE_ASSIGN(const CheckOutcome rest, check_kept(test, recipe, member, seen, used / size));
  outcome.add(rest);
  GYRE_ASSIGN(const std::uint64_t damage, own.recv.damage(used));
  if (damage > 0)
    outcome.add({damage, fmt::format("{} bytes beside the output were written", damage)});
  if (test.in_place) return outcome;
  GYRE_ASSIGN(const CheckOutcome input,
              check_input(test, recipe, member, own.send.begin(), 0, inputs_of(test, rank)));
  outcome.add(input);
  return outcome;
}

Result<std::uint64_t> Sweep::fingerprint_of(int member, std::uint64_t bytes) {
  std::uint64_t found = 0;
  GYRE_TRY(thread_ranks_.memory(member).read(
      members_[static_cast<std::size_t>(member)].recv.begin(), bytes,
      [&](const std::byte* tile, std::uint64_t, std::uint64_t part) {
        found = found * 3 + fingerprint(tile, part);
      }));
  return found;
}

void Sweep::tell_wrong(const Case& test, int member, const CheckOutcome& outcome) {
  if (!listener_.wrong || told_++ >= max_told) return;
  listener_.wrong(fmt::format("rank {}, {} bytes, {} {}, {}: {}",
                              thread_ranks_.first_rank() + member, test.largest_bytes,
                              element_name(test.type), op_name(test.op),
                              test.in_place ? "in place" : "out of place", outcome.first));
}

Result<std::uint64_t> Sweep::check_once(const Case& test, const Recipe& recipe) {
  GYRE_TRY(fill(test, recipe));
  const std::uint64_t used = test.in_place ? test.largest_bytes : test.recv_bytes;
  for (Member& member : members_) GYRE_TRY(member.recv.guard(used));
  GYRE_TRY(carry_out(test));

  std::uint64_t wrong = 0;
  std::vector<std::uint64_t> fingerprints;
  for (int i = 0; i < thread_ranks_.size(); ++i) {
    GYRE_ASSIGN(const CheckOutcome outcome, check_member(test, recipe, i));
    wrong += outcome.wrong;
    if (outcome.wrong > 0) tell_wrong(test, i, outcome);
    if (!collective_.same_everywhere) continue;
    GYRE_ASSIGN(const std::uint64_t bits, fingerprint_of(i, test.recv_bytes));
    fingerprints.push_back(bits);
  }
  GYRE_ASSIGN(const double sum, thread_ranks_.combine(static_cast<double>(wrong), Combine::sum));
  if (sum > 0 || !collective_.same_everywhere) return static_cast<std::uint64_t>(sum);
  GYRE_ASSIGN(const bool equal, thread_ranks_.equal_everywhere(fingerprints));
  if (!equal && thread_ranks_.first_rank() == 0)
    tell_wrong(test, 0, {1, "the ranks' outputs differ in some bits"});
  return std::uint64_t{equal ? 0U : 1U};
}

Result<std::uint64_t> Sweep::check(const Case& test) {
  for (int i = 0; i < options_.checks; ++i) {
    const Recipe recipe = {.type = test.type, .op = test.op, .seed = options_.seed + ++pass_};
    GYRE_ASSIGN(const std::uint64_t wrong, check_once(test, recipe));
    if (wrong > 0) return wrong;
  }
  return std::uint64_t{0};
}

}  // namespace gyre::bench
