// CUDA graphs: the iterations of a row are captured once and launched again and again, as
// nccl-tests does. The clock starts after the capture, and a launch counts with all of its
// operations.
#include "bench/runner/sweep.h"
#include "lib/base/clock.h"

namespace gyre::bench {

class Sweep::Captured {
 public:
  explicit Captured(std::span<Member> members) : members_(members) {}
  ~Captured() {
    for (std::size_t i = 0; i < replays_.size(); ++i) members_[i].memory->destroy(replays_[i]);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  Status begin() {
    for (Member& member : members_) GYRE_TRY(member.memory->begin_capture(member.stream));
    return {};
  }
  Status end() {
    for (Member& member : members_) {
      GYRE_ASSIGN(const Replay replay, member.memory->end_capture(member.stream));
      replays_.push_back(replay);
    }
    return {};
  }
  Status launch() {
    for (std::size_t i = 0; i < replays_.size(); ++i)
      GYRE_TRY(members_[i].memory->launch(replays_[i], members_[i].stream));
    return {};
  }

 private:
  const std::span<Member> members_;
  std::vector<Replay> replays_;
};

Result<std::unique_ptr<Sweep::Captured>> Sweep::capture(const std::function<Status()>& start) {
  auto captured = std::make_unique<Captured>(members_);
  GYRE_TRY(captured->begin());
  Status status = start();
  Status ended = captured->end();  // in any case: no stream stays captured
  GYRE_TRY(std::move(status));
  GYRE_TRY(std::move(ended));
  return captured;
}

// One operation, done when this returns.
Status Sweep::carry_out(const Case& test) {
  if (options_.graph_launches == 0) {
    GYRE_TRY(start_first(test));
    return wait();
  }
  GYRE_ASSIGN(const auto captured, capture([&] { return start_first(test); }));
  GYRE_TRY(captured->launch());
  return wait();
}

Result<Sweep::Timing> Sweep::time_graph(const Case& test) {
  rotation_.begin_row(test.largest_bytes);
  const auto iterations = [&]() -> Status {
    for (int i = 0; i < options_.iterations; ++i) GYRE_TRY(iterate(test));
    return {};
  };
  GYRE_ASSIGN(const auto captured, capture(iterations));
  GYRE_TRY(thread_ranks_.barrier());
  const std::int64_t begin = SystemClock::read();
  for (int i = 0; i < options_.graph_launches; ++i) GYRE_TRY(captured->launch());
  const std::int64_t returned = SystemClock::read();
  GYRE_TRY(wait());
  const std::int64_t done = SystemClock::read();
  const double operations =
      static_cast<double>(options_.iterations) * options_.aggregated * options_.graph_launches;
  Timing timing;
  timing.cpu_seconds = seconds(returned - begin) / operations;
  timing.seconds = seconds(done - begin) / operations;
  return timing;
}

}  // namespace gyre::bench
