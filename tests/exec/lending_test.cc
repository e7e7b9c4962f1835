// lib/exec: memory lent by peers that lie about it, and memory that is copied, not mapped.
#include "lib/base/units.h"
#include "lib/transport/region.h"
#include "tests/support/base/denied_call.h"
#include "tests/support/base/page_trap.h"
#include "tests/support/catch.h"
#include "tests/support/exec/launch_job.h"

#include <atomic>
#include <random>
#include <thread>
#include <vector>

namespace lending_test {

using namespace gyre;
using tests::Job;
using tests::PageTrap;

namespace {

constexpr transport::FifoShape shape = {.slot_count = 4, .line_count = 32, .slot_bytes = 4096};
constexpr std::uint64_t count = 2048;
constexpr std::uint64_t bytes = count * sizeof(std::int32_t);

// One rank's call of an all-reduce, of int32.
exec::Call direct_sum(const Job& job, std::size_t rank, const std::int32_t* input,
                      std::int32_t* output, std::uint64_t length, std::uint64_t piece_bytes) {
  exec::Call call;
  const std::uint32_t chunks = job.plan(static_cast<int>(rank)).chunk_count();
  call.geometry.input = call.geometry.output =
      plan::Layout::even(round_up(divide_up(length, chunks), 64), length);
  call.geometry.chunk_count = chunks;
  call.geometry.piece_bytes = piece_bytes;
  call.input = reinterpret_cast<const std::byte*>(input);
  call.output = reinterpret_cast<std::byte*>(output);
  call.input_bytes = call.output_bytes = length;
  call.type = ElementType::int32;
  call.protocol = plan::Protocol::direct;
  call.sequence = 1;
  call.signature = 0x1234;
  return call;
}

// An all-reduce of ranks that map each other's buffers, as processes do, and lend them.
class LentCalls {
 public:
  explicit LentCalls(int ranks) : job_("twoshot", ranks, shape, false) {
    for (int rank = 0; rank < ranks; ++rank) {
      inputs_.push_back(allocate());
      outputs_.push_back(allocate());
    }
    peers_ = transport::PeerMemory::open(regions_.probe());
    REQUIRE(peers_ != nullptr);
    job_.map_each_other_by(peers_.get());
    calls_.resize(inputs_.size());
    for (std::size_t rank = 0; rank < calls_.size(); ++rank) set(rank);
  }
  Job& job() { return job_; }
  std::int32_t* input(int rank) const { return inputs_[static_cast<std::size_t>(rank)]; }
  const exec::Call& call(int rank) const { return calls_[static_cast<std::size_t>(rank)]; }

 private:
  std::int32_t* allocate() {
    const auto memory = regions_.allocate(bytes);
    REQUIRE(memory.ok());
    return static_cast<std::int32_t*>(*memory);
  }
  void set(std::size_t rank) {
    exec::Call& call = calls_[rank];
    call = direct_sum(job_, rank, inputs_[rank], outputs_[rank], bytes, 1024);
    call.input_place = regions_.find(call.input, bytes);
    call.output_place = regions_.find(call.output, bytes);
  }

  Job job_;
  transport::RegionTable regions_;
  std::vector<std::int32_t*> inputs_, outputs_;
  std::unique_ptr<transport::PeerMemory> peers_;
  std::vector<exec::Call> calls_;
};

// An all-reduce of ranks that copy from each other's memory, which nobody maps.
class CopiedCalls {
 public:
  static constexpr std::uint64_t bytes = 256 << 10;
  static constexpr std::uint64_t piece_bytes = 32 << 10;
  explicit CopiedCalls(int ranks)
      : job_("twoshot", ranks, {.slot_count = 4, .line_count = 32, .slot_bytes = piece_bytes},
             false) {
    peers_ = transport::PeerMemory::open(regions_.probe());
    REQUIRE(peers_ != nullptr);
    REQUIRE(peers_->copies());
    job_.copy_from_each_other_by(peers_.get());
    inputs_.resize(static_cast<std::size_t>(ranks));
    outputs_.resize(inputs_.size());
    calls_.resize(inputs_.size());
    for (std::size_t rank = 0; rank < calls_.size(); ++rank) set(rank);
  }
  Job& job() { return job_; }
  const std::vector<exec::Call>& calls() const { return calls_; }
  exec::Call& call(std::size_t rank) { return calls_[rank]; }
  std::vector<std::int32_t>& input(std::size_t rank) { return inputs_[rank]; }
  const std::vector<std::int32_t>& output(std::size_t rank) const { return outputs_[rank]; }

 private:
  void set(std::size_t rank) {
    inputs_[rank].assign(bytes / sizeof(std::int32_t), static_cast<std::int32_t>(rank) + 1);
    for (std::size_t i = 0; i < inputs_[rank].size(); i += 3)
      inputs_[rank][i] = static_cast<std::int32_t>(i * (rank + 1));
    outputs_[rank].resize(inputs_[rank].size());
    exec::Call& call = calls_[rank];
    call = direct_sum(job_, rank, inputs_[rank].data(), outputs_[rank].data(), bytes, piece_bytes);
    call.input_place = {.region = transport::region_copied,
                        .offset = reinterpret_cast<std::uintptr_t>(call.input)};
  }

  Job job_;
  transport::RegionTable regions_;
  std::unique_ptr<transport::PeerMemory> peers_;
  std::vector<std::vector<std::int32_t>> inputs_, outputs_;
  std::vector<exec::Call> calls_;
};

// Changes a word to and fro while it lives.
class Liar {
 public:
  Liar(std::uint64_t& word, std::uint64_t one, std::uint64_t other)
      : thread_([this, &word, one, other] {
          for (std::uint64_t turn = 0; !over_; ++turn) {
            std::atomic_ref(word).store(turn % 2 == 0 ? one : other);
            begun_ = true;
          }
        }) {
    while (!begun_) std::this_thread::yield();
  }
  ~Liar() {
    over_ = true;
    thread_.join();
  }
  Liar(const Liar&) = delete;
  Liar& operator=(const Liar&) = delete;

 private:
  std::atomic<bool> begun_{false}, over_{false};
  std::thread thread_;
};

}  // namespace

TEST_CASE("a loan that changes while it is read is refused, and never half believed", "[lending]") {
  constexpr std::uint64_t tail_bytes = 64;
  int refused = 0;
  constexpr int trials = 300;
  for (int trial = 0; trial < trials; ++trial) {
    LentCalls ranks(2);
    for (int rank = 0; rank < 2; ++rank) ranks.job().begin(rank, ranks.call(rank));
    while (ranks.job().launch(0).advance() == exec::Launch::State::moved) continue;
    // At the end of the region there are only so many bytes: where it is said to lie, or how much
    // is said to lie there, is a lie at each time.
    transport::Loan& loan = ranks.job().control(0, 1).sender_grant.loan;
    loan.offset = bytes - tail_bytes;
    const Liar liar(loan.bytes, tail_bytes, bytes);
    exec::Launch::State state = exec::Launch::State::moved;
    while (state == exec::Launch::State::moved) state = ranks.job().launch(1).advance();
    refused += state == exec::Launch::State::failed;
  }
  CHECK(refused == trials);
}

TEST_CASE("what was taken back while it was read is told to nobody", "[lending]") {
  // In its turn; of its own chunk ahead of the message; of the other one's chunk.
  const auto [sender_has_begun, page] =
      GENERATE(table<bool, int>({{true, 1}, {false, 1}, {false, 0}}));
  LentCalls ranks(2);
  Job& job = ranks.job();
  for (int rank = 0; rank < 2; ++rank) job.begin(rank, ranks.call(rank));
  if (sender_has_begun) (void)job.launch(0).advance();
  const auto said = [&] {
    const transport::FifoControl& told = job.control(1, 0);
    return std::vector<std::uint64_t>{told.tail.value, job.control(0, 1).pieces_done.value};
  };
  std::vector<std::uint64_t> before;
  const PageTrap trap(reinterpret_cast<std::byte*>(ranks.input(1)) + page * PageTrap::page_bytes,
                      [&] {
                        before = said();
                        (void)job.launch(0).recall();
                        std::fill_n(ranks.input(0), count, 77);
                      });
  exec::Launch::State state = exec::Launch::State::moved;
  while (state == exec::Launch::State::moved && !trap.is_sprung()) state = job.launch(1).advance();
  REQUIRE(trap.is_sprung());
  CHECK(state == exec::Launch::State::failed);
  CHECK(job.launch(1).error().code() == Code::RemoteError);
  CHECK(job.launch(1).error().culprits() == std::vector<int>{0});
  CHECK(said() == before);
  // It has let go of everything.
  CHECK(job.launch(0).recall().in_use == exec::Launch::InUse::no);
}

TEST_CASE("what peers copy from each other's memory is summed as what they map", "[lending]") {
  if (!tests::may_copy_memory()) return;  // a sandbox that denies it shows nothing
  const int ranks = GENERATE(2, 3, 5);
  CAPTURE(ranks);
  CopiedCalls copied(ranks);
  std::mt19937_64 random(3);
  copied.job().run(copied.calls(), random);
  std::vector<std::int32_t> sum(CopiedCalls::bytes / sizeof(std::int32_t));
  for (std::size_t rank = 0; rank < copied.calls().size(); ++rank)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += copied.input(rank)[i];
  for (std::size_t rank = 0; rank < copied.calls().size(); ++rank)
    CHECK(copied.output(rank) == sum);
}

TEST_CASE("a message stays where a peer copies it from, and is read there", "[lending]") {
  if (!tests::may_copy_memory()) return;  // a sandbox that denies it shows nothing
  CopiedCalls copied(2);
  Job& job = copied.job();
  job.begin(1, copied.call(1));  // it says that it copies
  job.begin(0, copied.call(0));
  (void)job.launch(0).advance();
  const transport::FifoView view = job.view(0, 1);
  REQUIRE(view.control->tail.value > 0);
  CHECK(view.note(0).delivery == transport::DeliveryMode::pull);
  // The first chunk is the other rank's: what changes after the message is seen all the same.
  for (std::int32_t& value : copied.input(0)) value = 5;
  job.finish();
  const std::size_t last = copied.output(1).size() - 1;
  CHECK(copied.output(1)[last] == 5 + copied.input(1)[last]);
}

TEST_CASE("a peer that lends memory which is not its own is named", "[lending]") {
  if (!tests::may_copy_memory()) return;  // a sandbox that denies it shows nothing
  CopiedCalls copied(2);
  copied.call(0).input_place.offset = 4096;  // no process has anything there
  const Status failure = copied.job().run_to_failure(copied.calls());
  CHECK(failure.code() == Code::RemoteError);
  CHECK(failure.culprits() == std::vector<int>{0});
  CHECK(failure.message().find("copying") != std::string::npos);
}

TEST_CASE("a rank that copies nothing refuses a message that lies in the peer's memory",
          "[lending]") {
  if (!tests::may_copy_memory()) return;  // a sandbox that denies it shows nothing
  CopiedCalls copied(2);
  Job& job = copied.job();
  job.begin(1, copied.call(1));
  job.begin(0, copied.call(0));
  (void)job.launch(0).advance();
  job.copy_from_each_other_by(nullptr, false);
  exec::Launch::State state = exec::Launch::State::moved;
  while (state == exec::Launch::State::moved) state = job.launch(1).advance();
  CHECK(state == exec::Launch::State::failed);
  CHECK(job.launch(1).error().culprits() == std::vector<int>{0});
}

}  // namespace lending_test
