// lib/exec: every plan on every protocol, all ranks in one thread under a seeded scheduler, with
// real fifos in plain memory and real arithmetic. Elements are integers, so results are exact in
// any order.
#include "lib/exec/launch.h"

#include "lib/base/units.h"
#include "tests/support/catch.h"
#include "tests/support/exec/launch_job.h"

#include <random>

namespace launch_test {

using namespace gyre;
using tests::Job;

namespace {

struct Case {
  std::string_view algorithm;
  plan::Protocol protocol;
  int ranks;
  std::uint64_t count;
  bool in_place;
  ReduceOp op;
  std::uint32_t depth;
};

std::uint32_t element_of(int rank, std::uint64_t index, std::uint64_t seed) {
  std::uint64_t hash =
      (static_cast<std::uint64_t>(rank) * 0x9e3779b97f4a7c15ULL) ^ index ^ seed << 40;
  hash = (hash ^ hash >> 31) * 0xbf58476d1ce4e5b9ULL;
  return static_cast<std::uint32_t>(hash >> 20);
}

ReduceOp op_for(std::uint64_t count) {
  constexpr ReduceOp ops[] = {ReduceOp::sum, ReduceOp::avg, ReduceOp::pre_mul_sum};
  return ops[count % 3];
}

class CallsOfOne {
 public:
  CallsOfOne(const Job& job, const Case& one, std::uint64_t sequence, std::uint64_t seed)
      : one_(one), seed_(seed) {
    for (int rank = 0; rank < one.ranks; ++rank) {
      inputs_.emplace_back(one.count + 1);
      outputs_.emplace_back(one.count + 2, 0xdeadbeef);
      for (std::uint64_t i = 0; i < one.count; ++i) inputs_.back()[i] = element_of(rank, i, seed);
    }
    for (int rank = 0; rank < one.ranks; ++rank) calls_.push_back(make(job, rank, sequence));
  }
  const std::vector<exec::Call>& calls() const { return calls_; }

  void check() const {
    for (std::uint64_t i = 0; i < one_.count; ++i) {
      std::uint32_t sum = 0;
      for (int rank = 0; rank < one_.ranks; ++rank)
        sum += element_of(rank, i, seed_) * (one_.op == ReduceOp::pre_mul_sum ? 3 : 1);
      if (one_.op == ReduceOp::avg) sum /= static_cast<std::uint32_t>(one_.ranks);
      for (std::size_t rank = 0; rank < inputs_.size(); ++rank) {
        const std::uint32_t got = one_.in_place ? inputs_[rank][i] : outputs_[rank][i + 1];
        if (got != sum)
          FAIL("rank " << rank << " element " << i << ": " << got << " is not " << sum);
        if (!one_.in_place && inputs_[rank][i] != element_of(static_cast<int>(rank), i, seed_))
          FAIL("rank " << rank << " lost its input " << i);
      }
    }
    for (const auto& output : outputs_) {
      CHECK(output.front() == 0xdeadbeef);
      CHECK(output.back() == 0xdeadbeef);
    }
  }

 private:
  exec::Call make(const Job& job, int rank, std::uint64_t sequence) {
    const auto place = static_cast<std::size_t>(rank);
    const std::uint64_t bytes = one_.count * 4;
    const std::uint32_t chunks = job.plan(rank).chunk_count();
    exec::Call call;
    call.geometry.input = call.geometry.output = plan::Layout::even(
        std::max<std::uint64_t>(64, round_up(divide_up(bytes, chunks), 64)), bytes);
    call.geometry.chunk_count = chunks;
    call.geometry.piece_bytes = one_.protocol == plan::Protocol::line ? 448 : 1024;
    call.input = reinterpret_cast<const std::byte*>(inputs_[place].data());
    call.output = one_.in_place ? reinterpret_cast<std::byte*>(inputs_[place].data())
                                : reinterpret_cast<std::byte*>(outputs_[place].data() + 1);
    call.input_bytes = call.output_bytes = bytes;
    call.type = ElementType::uint32;
    call.op = one_.op;
    call.pre_scalar = one_.op == ReduceOp::pre_mul_sum ? &three_ : nullptr;
    call.divisor = one_.op == ReduceOp::avg ? static_cast<std::uint32_t>(one_.ranks) : 1;
    call.protocol = one_.protocol;
    call.in_place = one_.in_place;
    call.streamed = one_.count > 1000;
    call.sequence = sequence;
    call.signature = one_.count * 77 + static_cast<std::uint64_t>(one_.op);
    return call;
  }

  const Case one_;
  const std::uint64_t seed_;
  const std::uint32_t three_ = 3;
  std::vector<std::vector<std::uint32_t>> inputs_;
  std::vector<std::vector<std::uint32_t>> outputs_;
  std::vector<exec::Call> calls_;
};

}  // namespace

TEST_CASE("every plan gives the sum on every rank, over every protocol", "[exec]") {
  const auto protocol =
      GENERATE(plan::Protocol::line, plan::Protocol::simple, plan::Protocol::direct);
  const std::string_view algorithm = GENERATE("ring", "tree", "oneshot", "twoshot", "doubling");
  const bool in_place = GENERATE(false, true);
  for (int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16}) {
    const std::uint32_t depth = ranks % 2 == 0 ? 2 : 8;
    const transport::FifoShape shape{.slot_count = depth, .line_count = 32, .slot_bytes = 1024};
    Job job(algorithm, ranks, shape, ranks % 3 != 0);
    std::mt19937_64 random(static_cast<std::uint64_t>(ranks));
    std::uint64_t sequence = 0;
    // Several calls over the same fifos, one after the other, of different sizes and ops.
    // Those of 3 and 9 are sums that fit a line, with two sources or more.
    for (std::uint64_t count : {0ULL, 1ULL, 2ULL, 3ULL, 9ULL, 17ULL, 1009ULL, 5000ULL}) {
      const ReduceOp op = op_for(count);
      CAPTURE(algorithm, plan::protocol_name(protocol), ranks, count, in_place);
      const Case one{algorithm, protocol, ranks, count, in_place, op, depth};
      CallsOfOne calls(job, one, ++sequence, count);
      job.run(calls.calls(), random);
      calls.check();
    }
  }
}

TEST_CASE("short runs give the sum through slots, beside ranks that carry out launches", "[exec]") {
  const std::string_view algorithm = GENERATE("ring", "tree", "oneshot", "twoshot", "doubling");
  const bool in_place = GENERATE(false, true);
  const int launching = GENERATE(0, 1, 2);  // every so many ranks; 0: none
  for (const int ranks : {1, 2, 3, 5, 8}) {
    const transport::FifoShape shape{
        .slot_count = ranks % 2 == 0 ? 2U : 4U, .line_count = 32, .slot_bytes = 1024};
    Job job(algorithm, ranks, shape, true);
    std::mt19937_64 random(static_cast<std::uint64_t>(ranks));
    std::uint64_t sequence = 0;
    for (std::uint64_t count : {0ULL, 1ULL, 2ULL, 3ULL, 100ULL, 257ULL, 1009ULL, 5000ULL}) {
      const ReduceOp op = op_for(count);
      CAPTURE(algorithm, ranks, count, in_place, launching);
      const Case one{algorithm, plan::Protocol::simple, ranks, count, in_place, op, 4};
      CallsOfOne calls(job, one, ++sequence, count);
      std::vector<exec::Call> mixed = calls.calls();
      std::vector<exec::ShortRun> runs(mixed.size());
      for (int rank = 0; rank < ranks; ++rank)
        if (launching == 0 || rank % launching != 0)
          job.bind_short(rank, mixed[static_cast<std::size_t>(rank)],
                         runs[static_cast<std::size_t>(rank)]);
      job.run(mixed, random);
      calls.check();
    }
  }
}

TEST_CASE("a rank tells all peers what it has by lines before it waits for any", "[exec]") {
  constexpr int ranks = 5;
  plan::PlanRequest request;
  request.rank_count = ranks;
  request.collective = plan::Collective::all_to_all;
  const transport::FifoShape shape{.slot_count = 2, .line_count = 32, .slot_bytes = 1024};
  Job job("pairwise", request, shape, true);
  std::vector<std::uint64_t> input(ranks, 7), output(ranks);
  exec::Call call;
  call.geometry.input = call.geometry.output = plan::Layout::even(8, 8 * ranks);
  call.geometry.chunk_count = ranks;
  call.geometry.piece_bytes = 448;
  call.input = reinterpret_cast<const std::byte*>(input.data());
  call.output = reinterpret_cast<std::byte*>(output.data());
  call.protocol = plan::Protocol::line;
  call.signature = 5;
  job.begin(0, call);
  CHECK(job.launch(0).advance() != exec::Launch::State::done);
  for (int peer = 1; peer < ranks; ++peer) {
    CAPTURE(peer);
    transport::LineReader reader(job.view(0, peer));
    CHECK(reader.poll(8, 5) == transport::MessageState::here);
  }
}

TEST_CASE("ranks that wait reduce the part of one that has only entered", "[exec]") {
  const bool in_place = GENERATE(false, true);
  const int ranks = GENERATE(2, 3, 4, 5, 8);
  const ReduceOp op = GENERATE(ReduceOp::sum, ReduceOp::avg);
  const transport::FifoShape shape{.slot_count = 4, .line_count = 32, .slot_bytes = 1024};
  Job job("twoshot", ranks, shape, true);
  std::uint64_t sequence = 0;
  for (std::uint64_t count : {64ULL, 5000ULL, 40000ULL}) {
    for (int late = 0; late < ranks; ++late) {
      CAPTURE(in_place, ranks, count, late);
      const Case one{"twoshot", plan::Protocol::direct, ranks, count, in_place, op, 4};
      CallsOfOne calls(job, one, ++sequence, count);
      job.run_without(static_cast<std::size_t>(late), calls.calls());
      calls.check();  // all is there, on the late rank as well, which has not had a turn
      job.finish();
      calls.check();
    }
  }
}

TEST_CASE("a piece is reduced by one rank alone, however their turns fall", "[exec]") {
  const transport::FifoShape shape{.slot_count = 2, .line_count = 32, .slot_bytes = 1024};
  const int ranks = GENERATE(2, 3, 7);
  Job job("twoshot", ranks, shape, true);
  std::mt19937_64 random(static_cast<std::uint64_t>(ranks));
  // Calls alike but for their buffers, so that what a rank lent for the one before looks right. In
  // place, a piece that two ranks reduce, or one of them in the wrong memory, is a wrong sum.
  const Case one{"twoshot", plan::Protocol::direct, ranks, 6000, true, ReduceOp::sum, 2};
  std::vector<std::unique_ptr<CallsOfOne>> calls;
  for (std::uint64_t sequence = 1; sequence <= 200; ++sequence) {
    CAPTURE(ranks, sequence);
    calls.push_back(std::make_unique<CallsOfOne>(job, one, sequence, sequence));
    job.run(calls.back()->calls(), random);
    calls.back()->check();
  }
  for (const auto& each : calls) each->check();
}

TEST_CASE("pieces are taken once each, whatever an earlier call has left", "[exec]") {
  using exec::TakenPieces;
  std::atomic<std::uint64_t> word{0};
  for (const std::uint64_t sequence : {1ULL, 2ULL, 900ULL, 1ULL << 24, 1ULL << 40}) {
    CAPTURE(sequence);
    TakenPieces::begin(word, sequence);
    REQUIRE(TakenPieces::take_front(word, sequence, 0, 4));
    CHECK(TakenPieces::last_left(word, sequence, 4) == 3);
    CHECK_FALSE(TakenPieces::take_back(word, sequence, 2, 4));
    REQUIRE(TakenPieces::take_back(word, sequence, 3, 4));
    CHECK_FALSE(TakenPieces::take_back(word, sequence, 3, 4));
    CHECK(TakenPieces::last_left(word, sequence, 4) == 2);
    REQUIRE(TakenPieces::take_back(word, sequence, 2, 4));
    REQUIRE(TakenPieces::take_front(word, sequence, 1, 4));
    CHECK(TakenPieces::last_left(word, sequence, 4) == std::nullopt);
    CHECK_FALSE(TakenPieces::take_back(word, sequence, 1, 4));
    CHECK_FALSE(TakenPieces::take_front(word, sequence, 2, 4));
    // Who is still in the call before takes nothing of this one.
    CHECK(TakenPieces::last_left(word, sequence - 1, 9) == std::nullopt);
    CHECK_FALSE(TakenPieces::take_back(word, sequence - 1, 6, 9));
  }
}

TEST_CASE("ranks that call different things get an error, not wrong data", "[exec]") {
  for (const auto protocol :
       {plan::Protocol::line, plan::Protocol::simple, plan::Protocol::direct}) {
    const transport::FifoShape shape{.slot_count = 4, .line_count = 32, .slot_bytes = 1024};
    Job job("twoshot", 2, shape, true);
    CallsOfOne first(job, {"twoshot", protocol, 2, 64, false, ReduceOp::sum, 4}, 1, 1);
    CallsOfOne other(job, {"twoshot", protocol, 2, 64, false, ReduceOp::max, 4}, 1, 1);
    // Rank 1 sums while rank 0 takes the maximum.
    const Status status = job.run_to_failure({other.calls()[0], first.calls()[1]});
    CHECK(status.code() == Code::Mismatch);
    CHECK(status.culprits().size() == 1);
  }
}

TEST_CASE("a short run refuses a slot with another call, another length or a loan", "[exec]") {
  const transport::FifoShape shape{.slot_count = 4, .line_count = 32, .slot_bytes = 1024};
  constexpr std::uint32_t bytes = 64 * sizeof(std::uint32_t);
  struct Sent {
    std::uint64_t signature_change;
    std::uint32_t bytes;
    transport::DeliveryMode delivery;
    bool is_right;
  };
  for (const Sent& sent : {Sent{0, bytes, transport::DeliveryMode::staged, true},
                           Sent{1, bytes, transport::DeliveryMode::staged, false},
                           Sent{0, bytes - 4, transport::DeliveryMode::staged, false},
                           Sent{0, bytes, transport::DeliveryMode::pull, false}}) {
    CAPTURE(sent.signature_change, sent.bytes, static_cast<int>(sent.delivery));
    Job job("oneshot", 2, shape, true);
    CallsOfOne calls(job, {"oneshot", plan::Protocol::simple, 2, 64, false, ReduceOp::sum, 4}, 1,
                     1);
    exec::Call call = calls.calls()[0];
    exec::ShortRun run;
    job.bind_short(0, call, run);
    job.begin(0, call);
    CHECK(job.launch(0).advance() == exec::Launch::State::moved);
    transport::SlotWriter peer(job.view(1, 0));
    peer.commit(sent.bytes, transport::message_flag(1, call.signature + sent.signature_change),
                sent.delivery);
    const auto state = job.launch(0).advance();
    CHECK(state == (sent.is_right ? exec::Launch::State::done : exec::Launch::State::failed));
    if (!sent.is_right) CHECK(job.launch(0).error().code() == Code::Mismatch);
  }
}

}  // namespace launch_test
