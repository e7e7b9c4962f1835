// Sweep: one thread's part of the measurement, the same calls in the same order in every thread of
// every process. It times and checks; it prints nothing (see report.h).
//
//   Row        one line of the table: a size, type, operation and root
//   Placement  one half of it: out of place or in place
#pragma once

#include "bench/runner/buffers.h"
#include "bench/runner/collective.h"
#include "bench/runner/options.h"
#include "bench/runner/ranks.h"
#include "bench/runner/statistics.h"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gyre::bench {

struct Placement {
  double time_us = 0;              // of one operation, over ranks as -a says
  double cpu_time_us = 0;          // until the calls had returned; this process's
  double algorithm_bandwidth = 0;  // GB/s, decimal
  double bus_bandwidth = 0;
  std::optional<std::uint64_t> wrong;  // elements, over all ranks; nothing if not checked
  // With Options::iteration_times: each iteration, the slowest rank's.
  std::vector<double> iteration_us;
  std::vector<std::vector<double>> process_iteration_us;
  IterationStatistics statistics;
};

struct Row {
  Shape shape;
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
  ElementType type = ElementType::float32;
  std::optional<ReduceOp> op;
  int root = -1;  // -1: none
  Placement out_of_place;
  std::optional<Placement> in_place;  // nothing where the collective has no such form
};

struct SweepOutcome {
  std::uint64_t failed_checks = 0;  // placements with a wrong element
  double bus_bandwidth_sum = 0;
  std::uint64_t placements = 0;
};

// Where the sweep is, for who waits for it.
struct SweepPosition {
  std::uint64_t row = 0, rows = 0;  // of this cycle over all types, operations and roots
  std::uint64_t bytes = 0;
};

// What the one thread that prints wants to hear; empty in all others.
struct SweepListener {
  std::function<void(const Row&)> row;
  std::function<void(const SweepPosition&)> position;
  std::function<void(const std::string&)>
      wrong;  // what a wrong element was, on this thread's ranks
};

struct SweepPlace {
  int processes = 1, process = 0;
  std::uint64_t buffer_bytes = 0;    // of each send and each receive buffer; at least max_bytes
  const Traffic* traffic = nullptr;  // of uneven collectives
};

class Sweep {
 public:
  Sweep(const CollectiveBenchmark& collective, const Options& options, const SweepPlace& place,
        ThreadRanks& thread_ranks, SweepListener listener);
  ~Sweep();
  Sweep(const Sweep&) = delete;
  Sweep& operator=(const Sweep&) = delete;

  Status allocate();
  Result<SweepOutcome> run();

 private:
  // One operation to measure: a row's, in one placement.
  struct Case {
    Shape shape;
    BufferExtent extent;
    ElementType type;
    ReduceOp op;
    bool in_place;
    std::uint64_t send_bytes, recv_bytes, largest_bytes;
    std::vector<Counts> counts;  // of each member, in uneven collectives
  };
  struct Member {
    Memory* memory = nullptr;
    TestBuffer send, recv;
    gyreStream_t stream = nullptr;
    gyreRedOp_t op = gyreSum;
  };
  struct Timing {
    double seconds = 0, cpu_seconds = 0;
    std::vector<double> iteration_us;
  };
  static double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

  Case make_case(std::uint64_t bytes, ElementType type, ReduceOp op, int root, bool in_place) const;
  Status make_ops(ElementType type, ReduceOp op);
  void destroy_ops();
  // Offsets of as many operations as are started together.
  Status start(const Case& test, std::span<const std::uint64_t> offsets);
  Status start_first(const Case& test);
  Status start_phase(const Case& test, std::span<const std::uint64_t> offsets, int phase);
  gyreResult_t call(const Case& test, std::size_t member, std::uint64_t offset, int phase);
  Status wait();
  Status iterate(const Case& test);
  // A captured graph of each member's stream.
  class Captured;
  Result<std::unique_ptr<Captured>> capture(const std::function<Status()>& start);
  Status carry_out(const Case& test);
  Status warm_up(ElementType type, ReduceOp op, int root);
  Status run_series(ElementType type, ReduceOp op, int root, SweepOutcome& outcome);
  Result<Placement> measure(const Case& test, SweepOutcome& outcome);
  Result<Timing> time_loop(const Case& test);
  Result<Timing> time_graph(const Case& test);
  Status add_iterations(const Timing& timing, Placement& placement);
  Result<std::uint64_t> check(const Case& test);
  Result<std::uint64_t> check_once(const Case& test, const Recipe& recipe);
  Status fill(const Case& test, const Recipe& recipe);
  std::uint64_t inputs_of(const Case& test, int rank) const;
  Result<CheckOutcome> check_member(const Case& test, const Recipe& recipe, int member);
  // Elements [first, last) of the receive buffer: as `fill` left them; or a block of the output.
  Result<CheckOutcome> check_kept(const Case& test, const Recipe& recipe, int member,
                                  std::uint64_t first, std::uint64_t last);
  Result<CheckOutcome> check_input(const Case& test, const Recipe& recipe, int member,
                                   const std::byte* input, std::uint64_t first,
                                   std::uint64_t count);
  Result<CheckOutcome> check_block(const Case& test, const Recipe& recipe, int member,
                                   const ExpectedBlock& block, const std::byte* output);
  Result<std::uint64_t> fingerprint_of(int member, std::uint64_t bytes);
  void tell_wrong(const Case& test, int member, const CheckOutcome& outcome);

  const CollectiveBenchmark& collective_;
  const Options& options_;
  const SweepPlace place_;
  ThreadRanks& thread_ranks_;
  SweepListener listener_;
  std::vector<Member> members_;
  Rotation rotation_;
  std::vector<std::uint64_t> offsets_;  // of the operations of an iteration
  std::uint64_t pass_ = 0;              // counts checks: each has data of its own
  std::uint64_t told_ = 0;
  SweepPosition position_;
};

}  // namespace gyre::bench
