// Sweep: the order of measurements and the timing. The checked passes are in sweep_check.cc, CUDA
// graphs in sweep_graph.cc.
#include "bench/runner/sweep.h"

#include "lib/base/clock.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace gyre::bench {
namespace {

Combine combine_of(Average average) {
  switch (average) {
    case Average::rank0:
      return Combine::rank0;
    case Average::least:
      return Combine::least;
    case Average::most:
      return Combine::most;
    case Average::mean:
      break;
  }
  return Combine::mean;
}

bool supported(ElementType type, ReduceOp op) {
  const bool bitwise = op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
  return !(bitwise && is_float(type));
}

}  // namespace

Sweep::Sweep(const CollectiveBenchmark& collective, const Options& options, const SweepPlace& place,
             ThreadRanks& thread_ranks, SweepListener listener)
    : collective_(collective),
      options_(options),
      place_(place),
      thread_ranks_(thread_ranks),
      listener_(std::move(listener)),
      members_(static_cast<std::size_t>(thread_ranks.size())),
      rotation_(place.buffer_bytes, options.cold),
      offsets_(static_cast<std::size_t>(options.aggregated)) {}

Sweep::~Sweep() {
  destroy_ops();
  for (Member& member : members_) {
    member.send.deregister();
    member.recv.deregister();
    if (member.stream != nullptr) member.memory->destroy_stream(member.stream);
  }
}

Status Sweep::allocate() {
  // -u counts elements of whatever type; the widest has 8 bytes.
  const std::uint64_t slack = options_.unaligned_elements * 8;
  for (int i = 0; i < thread_ranks_.size(); ++i) {
    Member& member = members_[static_cast<std::size_t>(i)];
    member.memory = &thread_ranks_.memory(i);
    for (TestBuffer* buffer : {&member.send, &member.recv}) {
      GYRE_TRY(buffer->allocate(*member.memory, place_.buffer_bytes + slack));
      if (options_.local_register) GYRE_TRY(buffer->register_with(thread_ranks_.comm(i)));
    }
    const bool on_device = member.memory->on_device();
    if (options_.null_stream == NullStream::no ||
        (options_.null_stream == NullStream::as_usual && on_device)) {
      GYRE_ASSIGN(member.stream, member.memory->make_stream());
    }
  }
  return {};
}

Sweep::Case Sweep::make_case(std::uint64_t bytes, ElementType type, ReduceOp op, int root,
                             bool in_place) const {
  const std::uint64_t size = element_bytes(type);
  Case test{};
  test.shape = {.count = bytes / size,
                .element_bytes = element_bytes(type),
                .ranks = thread_ranks_.ranks(),
                .root = root,
                .traffic = place_.traffic};
  test.extent = collective_.extent(test.shape);
  test.type = type;
  test.op = op;
  test.in_place = in_place;
  test.send_bytes = test.extent.send * size;
  test.recv_bytes = test.extent.recv * size;
  test.largest_bytes = std::max(test.send_bytes, test.recv_bytes);
  for (int i = 0; i < thread_ranks_.size() && collective_.uneven; ++i)
    test.counts.push_back(place_.traffic->counts(test.shape, thread_ranks_.first_rank() + i));
  return test;
}

Status Sweep::make_ops(ElementType type, ReduceOp op) {
  destroy_ops();
  for (int i = 0; i < thread_ranks_.size(); ++i) {
    gyreRedOp_t& made = members_[static_cast<std::size_t>(i)].op;
    made = static_cast<gyreRedOp_t>(op);
    if (op != ReduceOp::pre_mul_sum) continue;
    std::uint64_t factor = factor_bits(type, thread_ranks_.first_rank() + i);
    GYRE_TRY(checked(gyreRedOpCreatePreMulSum(&made, &factor, static_cast<gyreDataType_t>(type),
                                              gyreScalarHostImmediate, thread_ranks_.comm(i)),
                     "gyreRedOpCreatePreMulSum"));
  }
  return {};
}

void Sweep::destroy_ops() {
  for (int i = 0; i < thread_ranks_.size(); ++i) {
    gyreRedOp_t& made = members_[static_cast<std::size_t>(i)].op;
    if (made >= gyreNumOps) (void)gyreRedOpDestroy(made, thread_ranks_.comm(i));
    made = gyreSum;
  }
}

gyreResult_t Sweep::call(const Case& test, std::size_t member, std::uint64_t offset, int phase) {
  const Member& own = members_[member];
  const int rank = thread_ranks_.first_rank() + static_cast<int>(member);
  std::byte* send = own.send.begin() + offset;
  std::byte* recv = own.recv.begin() + offset;
  if (test.in_place) {
    const std::uint64_t step = static_cast<std::uint64_t>(rank) * test.shape.element_bytes;
    send = recv + step * test.extent.send_in_place_offset;
    recv += step * test.extent.recv_in_place_offset;
  }
  return collective_.call({.send = send,
                           .recv = recv,
                           .count = test.extent.param,
                           .type = static_cast<gyreDataType_t>(test.type),
                           .element_bytes = test.shape.element_bytes,
                           .op = own.op,
                           .root = test.shape.root,
                           .rank = rank,
                           .ranks = thread_ranks_.ranks(),
                           .phase = phase,
                           .counts = collective_.uneven ? &test.counts[member] : nullptr,
                           .comm = thread_ranks_.comm(static_cast<int>(member)),
                           .stream = own.stream});
}

Status Sweep::start_phase(const Case& test, std::span<const std::uint64_t> offsets, int phase) {
  const bool grouped = members_.size() > 1 || offsets.size() > 1;
  if (grouped) GYRE_TRY(checked(gyreGroupStart(), "gyreGroupStart"));
  gyreResult_t result = gyreSuccess;
  for (const std::uint64_t offset : offsets)
    for (std::size_t i = 0; i < members_.size() && result == gyreSuccess; ++i)
      result = call(test, i, offset, phase);
  if (result != gyreSuccess) {
    Status failure = checked(result, collective_.calls);
    if (grouped) (void)gyreGroupEnd();  // it would only say so again
    return failure;
  }
  return grouped ? checked(gyreGroupEnd(), "gyreGroupEnd") : Status();
}

Status Sweep::start(const Case& test, std::span<const std::uint64_t> offsets) {
  const int phases = collective_.phases == nullptr ? 1 : collective_.phases(thread_ranks_.ranks());
  for (int phase = 0; phase < phases; ++phase) GYRE_TRY(start_phase(test, offsets, phase));
  if (options_.blocking == Blocking::wait || options_.blocking == Blocking::wait_and_barrier)
    GYRE_TRY(wait());
  if (options_.blocking == Blocking::wait_and_barrier) GYRE_TRY(thread_ranks_.barrier());
  return {};
}

// One operation, at the beginning of the buffers.
Status Sweep::start_first(const Case& test) {
  constexpr std::uint64_t beginning = 0;
  return start(test, std::span(&beginning, 1));
}

// A kernel that gave up has ended like any other; its communicator knows.
Status Sweep::wait() {
  for (int i = 0; i < thread_ranks_.size(); ++i) {
    Member& member = members_[static_cast<std::size_t>(i)];
    GYRE_TRY(member.memory->synchronize(member.stream));
    if (!member.memory->on_device()) continue;
    gyreResult_t found = gyreInProgress;
    // It may still be finding out why.
    for (int looks = 0; found == gyreInProgress && looks < 10'000; ++looks) {
      if (looks > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      GYRE_TRY(
          checked(gyreCommGetAsyncError(thread_ranks_.comm(i), &found), "gyreCommGetAsyncError"));
    }
    if (found != gyreSuccess)
      return Status(static_cast<Code>(found), gyreGetLastError(thread_ranks_.comm(i)));
  }
  return {};
}

Status Sweep::iterate(const Case& test) {
  for (std::uint64_t& offset : offsets_) offset = rotation_.next();
  return start(test, offsets_);
}

Result<Sweep::Timing> Sweep::time_loop(const Case& test) {
  if (options_.graph_launches > 0) return time_graph(test);
  const bool untimed_barrier = options_.blocking == Blocking::barrier_untimed;
  const bool record = options_.iteration_times();
  std::vector<std::int64_t> marks;
  marks.reserve(record ? 2 * static_cast<std::size_t>(options_.iterations) + 2 : 0);
  std::int64_t inside_ns = 0;
  rotation_.begin_row(test.largest_bytes);
  const std::int64_t begin = SystemClock::read();
  for (int i = 0; i < options_.iterations; ++i) {
    const std::int64_t entered = record || untimed_barrier ? SystemClock::read() : 0;
    if (record) marks.push_back(entered);
    GYRE_TRY(iterate(test));
    if (!untimed_barrier) continue;
    GYRE_TRY(wait());
    const std::int64_t left = SystemClock::read();
    inside_ns += left - entered;
    if (record) marks.push_back(left);
    GYRE_TRY(thread_ranks_.barrier());
  }
  const std::int64_t returned = SystemClock::read();
  GYRE_TRY(wait());
  const std::int64_t done = SystemClock::read();

  Timing timing;
  const double operations = static_cast<double>(options_.iterations) * options_.aggregated;
  timing.cpu_seconds = seconds(untimed_barrier ? inside_ns : returned - begin) / operations;
  timing.seconds = seconds(untimed_barrier ? inside_ns : done - begin) / operations;
  if (!record) return timing;
  // Barriers lie between pairs of marks; otherwise an iteration ends where the next begins.
  const std::size_t step = untimed_barrier ? 2 : 1;
  if (!untimed_barrier) marks.push_back(done);
  for (std::size_t i = 0; i + 1 < marks.size(); i += step)
    timing.iteration_us.push_back(seconds(marks[i + 1] - marks[i]) * 1e6 / options_.aggregated);
  return timing;
}

// The slowest rank's time of each iteration, and each process's where JSON wants them.
Status Sweep::add_iterations(const Timing& timing, Placement& placement) {
  if (!options_.iteration_times()) return {};
  const std::size_t count = timing.iteration_us.size();
  placement.iteration_us = timing.iteration_us;
  GYRE_TRY(thread_ranks_.combine(placement.iteration_us, Combine::most));
  const std::span<const double> kept(placement.iteration_us);
  placement.statistics =
      summarize(kept.subspan(static_cast<std::size_t>(options_.per_iteration_skip)));
  if (options_.json_file.empty() || place_.processes == 1) return {};
  std::vector<double> matrix(count * static_cast<std::size_t>(place_.processes), 0.0);
  std::ranges::copy(timing.iteration_us,
                    matrix.begin() + static_cast<std::ptrdiff_t>(
                                         count * static_cast<std::size_t>(place_.process)));
  GYRE_TRY(thread_ranks_.combine(matrix, Combine::most));
  for (std::size_t first = 0; first < matrix.size(); first += count)
    placement.process_iteration_us.emplace_back(
        matrix.begin() + static_cast<std::ptrdiff_t>(first),
        matrix.begin() + static_cast<std::ptrdiff_t>(first + count));
  return {};
}

Result<Placement> Sweep::measure(const Case& test, SweepOutcome& outcome) {
  GYRE_TRY(fill(test, {.type = test.type, .op = test.op, .seed = options_.seed}));
  GYRE_TRY(start_first(test));
  GYRE_TRY(wait());
  GYRE_TRY(thread_ranks_.barrier());
  GYRE_ASSIGN(const Timing timing, time_loop(test));

  Placement placement;
  GYRE_ASSIGN(const double mean_seconds,
              thread_ranks_.combine(timing.seconds, combine_of(options_.average)));
  placement.time_us = mean_seconds * 1e6;
  placement.cpu_time_us = timing.cpu_seconds * 1e6;
  const double counted =
      collective_.counted == nullptr ? 1.0 : collective_.counted(thread_ranks_.ranks());
  const double gigabytes = static_cast<double>(test.largest_bytes) * counted / 1e9;
  placement.algorithm_bandwidth = mean_seconds > 0 ? gigabytes / mean_seconds : 0;
  placement.bus_bandwidth =
      placement.algorithm_bandwidth * collective_.bus_factor(thread_ranks_.ranks());
  GYRE_TRY(add_iterations(timing, placement));
  outcome.bus_bandwidth_sum += placement.bus_bandwidth;
  ++outcome.placements;
  if (options_.checks == 0) return placement;
  GYRE_ASSIGN(placement.wrong, check(test));
  outcome.failed_checks += *placement.wrong > 0;
  return placement;
}

Status Sweep::warm_up(ElementType type, ReduceOp op, int root) {
  for (const std::uint64_t bytes : warmup_sizes(options_)) {
    const Case test = make_case(bytes, type, op, root, false);
    rotation_.begin_row(test.largest_bytes);
    for (int i = 0; i < options_.warmup; ++i) {
      const std::uint64_t offset = rotation_.next();
      GYRE_TRY(start(test, std::span(&offset, 1)));
    }
    GYRE_TRY(wait());
  }
  return {};
}

Status Sweep::run_series(ElementType type, ReduceOp op, int root, SweepOutcome& outcome) {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Recipe recipe = {.type = type, .op = op, .seed = options_.seed};
    const int rank = thread_ranks_.first_rank() + static_cast<int>(i);
    for (TestBuffer* buffer : {&members_[i].send, &members_[i].recv}) {
      buffer->place(options_.unaligned_elements * element_bytes(type), place_.buffer_bytes);
      GYRE_TRY(buffer->touch(recipe, rank));
    }
  }
  GYRE_TRY(make_ops(type, op));
  GYRE_TRY(thread_ranks_.barrier());
  GYRE_TRY(warm_up(type, op, root));
  for (int cycle = 0; options_.cycles == 0 || cycle < options_.cycles; ++cycle)
    for (const std::uint64_t bytes : sweep_sizes(options_)) {
      ++position_.row;
      position_.bytes = bytes;
      if (listener_.position) listener_.position(position_);
      Row row;
      const Case test = make_case(bytes, type, op, root, false);
      row.shape = test.shape;
      row.bytes = test.largest_bytes;
      row.count = test.extent.param;
      row.type = type;
      if (collective_.reduces) row.op = op;
      row.root = root;
      GYRE_ASSIGN(row.out_of_place, measure(test, outcome));
      if (collective_.in_place) {
        GYRE_ASSIGN(row.in_place, measure(make_case(bytes, type, op, root, true), outcome));
      }
      if (listener_.row) listener_.row(row);
    }
  return {};
}

Result<SweepOutcome> Sweep::run() {
  struct Series {
    ElementType type;
    ReduceOp op;
    int root;
  };
  std::vector<int> roots = {collective_.rooted ? options_.root : -1};
  if (collective_.rooted && options_.root == Options::every_root) {
    roots.clear();
    for (int root = 0; root < thread_ranks_.ranks(); ++root) roots.push_back(root);
  }
  const std::vector<ReduceOp> ops =
      collective_.reduces ? options_.ops : std::vector<ReduceOp>{ReduceOp::sum};
  std::vector<Series> all;
  for (const ElementType type : options_.types)
    for (const ReduceOp op : ops)
      for (const int root : roots)
        if (supported(type, op)) all.push_back({type, op, root});
  position_.rows = all.size() * sweep_sizes(options_).size() *
                   static_cast<std::uint64_t>(std::max(options_.cycles, 1));
  SweepOutcome outcome;
  for (const Series& series : all)
    GYRE_TRY(run_series(series.type, series.op, series.root, outcome));
  return outcome;
}

}  // namespace gyre::bench
