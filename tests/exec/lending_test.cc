// lib/exec: memory lent by peers that lie about it.
#include "lib/base/units.h"
#include "lib/transport/region.h"
#include "tests/support/base/page_trap.h"
#include "tests/support/catch.h"
#include "tests/support/exec/launch_job.h"

#include <atomic>
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
    const std::uint32_t chunks = job_.plan(static_cast<int>(rank)).chunk_count();
    call.geometry.input = call.geometry.output =
        plan::Layout::even(round_up(divide_up(bytes, chunks), 64), bytes);
    call.geometry.chunk_count = chunks;
    call.geometry.piece_bytes = 1024;
    call.input = reinterpret_cast<const std::byte*>(inputs_[rank]);
    call.output = reinterpret_cast<std::byte*>(outputs_[rank]);
    call.input_bytes = call.output_bytes = bytes;
    call.input_place = regions_.find(call.input, bytes);
    call.output_place = regions_.find(call.output, bytes);
    call.type = ElementType::int32;
    call.protocol = plan::Protocol::direct;
    call.sequence = 1;
    call.signature = 0x1234;
  }

  Job job_;
  transport::RegionTable regions_;
  std::vector<std::int32_t*> inputs_, outputs_;
  std::unique_ptr<transport::PeerMemory> peers_;
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

}  // namespace lending_test
