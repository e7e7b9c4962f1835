// Run: the whole of a perf program, from the command line to the exit code. See collective.h.
#include "bench/runner/machine.h"
#include "bench/runner/options.h"
#include "bench/runner/ranks.h"
#include "bench/runner/report.h"
#include "bench/runner/sweep.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>

namespace gyre::bench {
namespace {

constexpr int exit_wrong = 1, exit_usage = 2, exit_failed = 3;

void complain(const CollectiveBenchmark& collective, const Status& status) {
  std::fprintf(stderr, "%s: %s\n", std::string(collective.program).c_str(),
               std::string(status.message()).c_str());
}

// MIN_BW; -1 if not asked for.
Result<double> min_bandwidth() {
  const char* text = tests_variable("MIN_BW");
  if (text == nullptr) return -1.0;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (end == text || *end != '\0' || !std::isfinite(value) || value < 0)
    return invalid_argument(fmt::format("MIN_BW=\"{}\" is not a bandwidth in GB/s", text));
  return value;
}

// One benchmark of one process.
class Run {
 public:
  Run(const CollectiveBenchmark& collective, const Options& options,
      std::vector<std::string> arguments, DriverSource source)
      : collective_(collective),
        options_(options),
        source_(std::move(source)),
        arguments_(std::move(arguments)),
        report_(collective, options_) {}

  Result<int> run();

 private:
  Status check_usage();
  Status check_streams() const;
  Result<bool> all_agree(const Status& usage);
  void print(const Row& row);
  Status fit_memory();
  Status run_threads();
  void run_thread(int thread);
  Result<SweepOutcome> sweep(int thread);
  static Result<SweepOutcome> run_sweep(Sweep& sweep);
  void note(const Status& failure);
  MemoryUse memory_use() const;

  const CollectiveBenchmark& collective_;
  Options options_;  // the sizes may be cut to fit the memory
  const DriverSource source_;
  const std::vector<std::string> arguments_;
  std::unique_ptr<Ranks> ranks_;
  Report report_;
  SweepPlace place_;
  std::optional<Traffic> traffic_;
  bool summary_ = false;  // of the traffic, after each row
  std::uint64_t used_at_start_ = 0, used_joined_ = 0;

  std::mutex mutex_;  // guards what follows: threads end at different times
  Status failure_;
  SweepOutcome outcome_;
};

// Of what depends on where the buffers lie.
Status Run::check_streams() const {
  if (options_.graph_launches > 0 && !ranks_->on_devices())
    return invalid_argument(
        "-G: CUDA graphs are for GPUs, and this run is on host memory; --device cuda says why");
  if (options_.null_stream != NullStream::yes || !ranks_->on_devices()) return {};
  for (std::size_t i = 0; i < ranks_->memories().size(); ++i)
    for (std::size_t k = 0; k < i; ++k)
      if (ranks_->own_seat(i).shares_with(ranks_->own_seat(k)))
        return invalid_argument(
            "-y 1: ranks of one process on one GPU would wait for each other in its default "
            "stream for ever; use -y 0");
  return {};
}

// What of the command line and the tests' variables can be judged only when the ranks are known.
Status Run::check_usage() {
  GYRE_TRY(check_streams());
  if (options_.plain_memory && ranks_->on_devices())
    return invalid_argument("--plain_memory: malloc has no GPU memory; add --device host");
  if (collective_.rooted && options_.root >= ranks_->total())
    return invalid_argument(
        fmt::format("-r {}: the ranks are 0 to {}", options_.root, ranks_->total() - 1));
  if (!collective_.uneven) return {};
  GYRE_ASSIGN(traffic_, Traffic::from_environment());
  GYRE_ASSIGN(summary_, summary_wanted());
  place_.traffic = &*traffic_;
  return traffic_->fits(ranks_->total(), options_.min_bytes, options_.max_bytes);
}

// False if any process found its usage wrong: a file may be missing on one host only. The first one
// says so.
Result<bool> Run::all_agree(const Status& usage) {
  const auto own = static_cast<std::uint64_t>(ranks_->world_process());
  GYRE_ASSIGN(const std::uint64_t first, ranks_->smallest(usage.ok() ? UINT64_MAX : own));
  if (first == own) complain(collective_, usage);
  return first == UINT64_MAX;
}

// Two buffers for each rank. All processes use the same sizes: those that fit everywhere.
Status Run::fit_memory() {
  std::uint64_t own = UINT64_MAX, cold = 0;
  for (std::size_t i = 0; i < ranks_->memories().size(); ++i) {
    const Memory& memory = *ranks_->memories()[i];
    const Memory::Room room = memory.room();
    const int sharers = ranks_->sharers(i);
    own = std::min(own, largest_size(room.available, room.total, sharers, 2));
    cold = std::max(cold, 2 * memory.cache_bytes() / static_cast<std::uint64_t>(sharers));
  }
  GYRE_ASSIGN(const std::uint64_t most, ranks_->smallest(own));
  if (most == 0 || most > own)
    return internal_error(fmt::format(
        "gyreAllReduce found {} to be the least of {} and others, all above 0", most, own));
  if (options_.max_bytes > most) {
    options_.max_bytes = most;
    options_.min_bytes = std::min(options_.min_bytes, most);
    if (ranks_->speaks()) {
      report_.comment("");
      report_.comment(fmt::format("Reducing maxBytes to {} due to memory limitation", most));
    }
  }
  place_.processes = ranks_->processes();
  place_.process = ranks_->process();
  place_.buffer_bytes = options_.max_bytes;
  if (!options_.cold) return {};
  // All buffers of this host, or device, are together four times the last-level cache, or more.
  const std::uint64_t wanted = std::max(options_.max_bytes, cold);
  GYRE_ASSIGN(const std::uint64_t min_wanted, ranks_->smallest(UINT64_MAX - wanted));
  place_.buffer_bytes = UINT64_MAX - min_wanted;
  if (place_.buffer_bytes <= most) return {};
  return Status(Code::SystemError,
                fmt::format("--cold needs two buffers of {} bytes for each rank, to exceed the "
                            "last-level cache; the memory allows {}",
                            place_.buffer_bytes, most));
}

Result<SweepOutcome> Run::sweep(int thread) {
  GYRE_ASSIGN(const auto thread_ranks, ranks_->make_thread_ranks(thread));
  const bool speaks = ranks_->speaks() && thread == 0;
  SweepListener listener;
  if (speaks) {
    used_joined_ = ranks_->memories()[0]->used();
    listener.row = [this](const Row& row) { print(row); };
    listener.position = [this](const SweepPosition& at) { report_.position(at); };
  }
  listener.wrong = [this](const std::string& text) {
    const std::lock_guard lock(mutex_);
    report_.wrong(text);
  };
  Sweep sweep(collective_, options_, place_, *thread_ranks, std::move(listener));
  // The other threads and processes must not wait for a rank that has given up; nor must its own
  // memory, which a device gives back when no kernel runs any more.
  Result<SweepOutcome> outcome = run_sweep(sweep);
  if (!outcome.ok()) {
    note(outcome.status());
    thread_ranks->abort();
  }
  return outcome;
}

Result<SweepOutcome> Run::run_sweep(Sweep& sweep) {
  GYRE_TRY(sweep.allocate());
  return sweep.run();
}

void Run::note(const Status& failure) {
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = failure;
}

void Run::print(const Row& row) {
  report_.row(row);
  if (!summary_) return;
  for (const std::string& line : traffic_->summary(row.shape, row.out_of_place.time_us * 1e-6))
    report_.comment(line);
}

void Run::run_thread(int thread) {
  Result<SweepOutcome> outcome = sweep(thread);
  if (!outcome.ok()) return note(outcome.status());
  const std::lock_guard lock(mutex_);
  if (thread == 0) outcome_ = *outcome;
}

Status Run::run_threads() {
  std::vector<std::thread> threads;
  for (int i = 1; i < options_.threads; ++i) threads.emplace_back([this, i] { run_thread(i); });
  run_thread(0);
  for (std::thread& thread : threads) thread.join();
  return failure_;
}

MemoryUse Run::memory_use() const {
  MemoryUse use;
  use.initialization = used_joined_ > used_at_start_ ? used_joined_ - used_at_start_ : 0;
  // A device tells of all that use it.
  const int ranks =
      ranks_->on_devices() ? ranks_->sharers(0) : options_.threads * options_.ranks_per_thread;
  use.buffers = place_.buffer_bytes * 2 * static_cast<std::uint64_t>(ranks);
  const std::uint64_t before = used_joined_ + use.buffers, now = ranks_->memories()[0]->used();
  use.collective = now > before ? now - before : 0;
  return use;
}

Result<int> Run::run() {
  RunVerdict verdict;
  GYRE_ASSIGN(verdict.min_bandwidth, min_bandwidth());
  int library_version = 0;
  GYRE_TRY(checked(gyreGetVersion(&library_version), "gyreGetVersion"));
  used_at_start_ = resident_memory();
  GYRE_ASSIGN(ranks_, Ranks::enter(options_, source_));
  if (ranks_->on_devices()) used_at_start_ = ranks_->memories()[0]->used();
  const bool speaks = ranks_->speaks();
  GYRE_ASSIGN(const bool sound, all_agree(check_usage()));
  if (!sound) return exit_usage;
  if (speaks) {
    GYRE_TRY(report_.open(arguments_, library_version));
    report_.begin(ranks_->seats(), library_version);
  }
  GYRE_TRY(fit_memory());
  if (traffic_) GYRE_TRY(traffic_->fits(ranks_->total(), options_.min_bytes, options_.max_bytes));
  GYRE_TRY(ranks_->prepare());
  if (speaks) report_.columns();

  const auto total = static_cast<unsigned>(ranks_->total());
  const bool possible = !collective_.powers_of_two || std::has_single_bit(total);
  if (!possible && speaks)
    report_.comment(fmt::format("nRanks {} is not a power of 2, skipping", total));
  Status status = possible ? run_threads() : Status();
  if (status.ok()) {
    verdict.failed_checks = outcome_.failed_checks;
    if (outcome_.placements > 0)
      verdict.average_bus_bandwidth =
          outcome_.bus_bandwidth_sum / static_cast<double>(outcome_.placements);
    if (speaks) report_.finish(verdict, memory_use());
  } else if (speaks) {
    report_.fail(status);
  }
  if (speaks) {
    Status closed = report_.close(ranks_->total());
    if (status.ok()) status = std::move(closed);
  }
  GYRE_TRY(std::move(status));
  return verdict.good() ? 0 : exit_wrong;
}

}  // namespace

int run_benchmark(const CollectiveBenchmark& collective, int argc, char** argv) {
  return run_benchmark(collective, argc, argv, machine_driver);
}

int run_benchmark(const CollectiveBenchmark& collective, int argc, char** argv,
                  const DriverSource& source) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  // Every process is given the same words; one of them answers for all.
  const bool speaks = launched_rank().value_or(0) == 0;
  Result<ParsedCommand> parsed =
      parse_command(std::string(collective.program), arguments, collective.variables);
  if (!parsed.ok()) {
    if (speaks) complain(collective, parsed.status());
    return exit_usage;
  }
  if (!parsed->help.empty()) {
    if (speaks) std::fputs(parsed->help.c_str(), stdout);
    return 0;
  }
  const std::vector<std::string> command(argv, argv + argc);
  Run run(collective, parsed->options, command, source);
  Result<int> code = run.run();
  if (code.ok()) return *code;
  complain(collective, code.status());
  return exit_failed;
}

}  // namespace gyre::bench
