// The checked passes of a sweep: fresh random data, one call, and every element, the guards around
// the output, the untouched input and the other ranks' outputs are looked at.
#include "bench/runner/sweep.h"

#include <fmt/format.h>

#include <cstring>

namespace gyre::bench {
namespace {

// What no input starts with and no sum leaves behind by chance.
constexpr int stale_byte = 0xa5;
// Lines on stderr from one thread; the count in the table is complete.
constexpr std::uint64_t told_most = 8;

}  // namespace

void Sweep::fill(const Case& test, const Recipe& recipe) {
  const std::uint64_t size = element_bytes(test.type);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    const int rank = crew_.first_rank() + static_cast<int>(i);
    std::byte* input = member.send.begin();
    if (test.in_place)
      input = member.recv.begin() +
              static_cast<std::uint64_t>(rank) * test.extent.send_in_place_offset * size;
    else
      std::memset(member.recv.begin(), stale_byte, test.recv_bytes);
    fill_inputs(recipe, rank, 0, test.extent.send, input);
  }
}

CheckOutcome Sweep::check_member(const Case& test, const Recipe& recipe, int member) {
  const std::uint64_t size = element_bytes(test.type);
  const int rank = crew_.first_rank() + member;
  const Member& own = members_[static_cast<std::size_t>(member)];
  const std::byte* output = own.recv.begin();
  if (test.in_place)
    output += static_cast<std::uint64_t>(rank) * test.extent.recv_in_place_offset * size;
  CheckOutcome outcome;
  for (const Block& block : collective_.expected(test.extent, crew_.ranks(), rank, test.root)) {
    const std::byte* at = output + block.output_first * size;
    outcome.add(block.source_rank == Block::reduced
                    ? check_reduction(recipe, crew_.ranks(), block.input_first, block.count, at)
                    : check_copy(recipe, block.source_rank, block.input_first, block.count, at));
  }
  const std::uint64_t used = test.in_place ? test.largest_bytes : test.recv_bytes;
  if (const std::uint64_t damage = own.recv.damage(used); damage > 0)
    outcome.add({damage, fmt::format("{} bytes beside the output were written", damage)});
  if (!test.in_place) {
    CheckOutcome input = check_copy(recipe, rank, 0, test.extent.send, own.send.begin());
    if (input.wrong > 0)
      outcome.add({input.wrong, fmt::format("{} elements of the input were written", input.wrong)});
  }
  return outcome;
}

void Sweep::tell_wrong(const Case& test, int member, const CheckOutcome& outcome) {
  if (!listener_.wrong || told_++ >= told_most) return;
  listener_.wrong(fmt::format("rank {}, {} bytes, {} {}, {}: {}", crew_.first_rank() + member,
                              test.largest_bytes, element_name(test.type), op_name(test.op),
                              test.in_place ? "in place" : "out of place", outcome.first));
}

Result<std::uint64_t> Sweep::check_once(const Case& test, const Recipe& recipe) {
  fill(test, recipe);
  const std::uint64_t used = test.in_place ? test.largest_bytes : test.recv_bytes;
  for (Member& member : members_) member.recv.guard(used);
  GYRE_TRY(start(test, 0));
  GYRE_TRY(wait());

  std::uint64_t wrong = 0;
  std::vector<std::uint64_t> fingerprints;
  for (int i = 0; i < crew_.size(); ++i) {
    const CheckOutcome outcome = check_member(test, recipe, i);
    wrong += outcome.wrong;
    if (outcome.wrong > 0) tell_wrong(test, i, outcome);
    fingerprints.push_back(
        fingerprint(members_[static_cast<std::size_t>(i)].recv.begin(), test.recv_bytes));
  }
  if (collective_.same_everywhere) {
    GYRE_ASSIGN(const bool equal, crew_.equal_everywhere(fingerprints));
    if (!equal && wrong == 0) tell_wrong(test, 0, {1, "the ranks' outputs differ in some bits"});
    if (!equal && wrong == 0) wrong = 1;
  }
  GYRE_ASSIGN(const double sum, crew_.combine(static_cast<double>(wrong), Combine::sum));
  return static_cast<std::uint64_t>(sum);
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
