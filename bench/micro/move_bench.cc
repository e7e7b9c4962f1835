// The speed of the host moves: every table entry, beside memcpy and a STREAM-like triad of the same
// run. GB/s counts each byte read or written by the move once; `ratio` is that over the triad's
// (for copies: over memcpy's) at the same block size.
//
//   aliased the target lies 16 bytes further in its page than the source
//   block   bytes of each source and each target. 64 KiB: three of them fit a second-level cache;
//           64 MiB: larger than the cache; 64 B and 4 KiB: the cost of a call.
#include "kernels/cpu/move.h"
#include "lib/base/units.h"

#include <benchmark/benchmark.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <time.h>
#include <vector>

namespace gyre::bench {
namespace {

using namespace kernels;

constexpr std::uint64_t small_blocks[] = {64, 4 << 10};
constexpr std::uint64_t cached_block = 64 << 10;
constexpr std::uint64_t memory_block = 64 << 20;

// Where each of several arrays lies in its page.
constexpr std::uint64_t uneven = 17 * 64;
constexpr std::uint64_t aliased = 16;  // as a slot, and large memory from malloc

// Arrays of small whole numbers: any type, no NaN, no subnormal. Each lies `apart` bytes further in
// its page than the one before: a load right behind a store to the same place of another page waits
// for it.
class Arrays {
 public:
  Arrays(std::uint32_t count, std::uint64_t bytes, std::uint64_t apart = uneven) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint64_t offset = i * apart % page;
      const std::uint64_t allocated = round_up(bytes + offset, page);
      arrays_.emplace_back(static_cast<std::byte*>(std::aligned_alloc(page, allocated)));
      std::memset(arrays_.back().get(), 0x38, allocated);  // near 1 in every float type
      starts_.push_back(arrays_.back().get() + offset);
    }
  }
  std::byte* at(std::uint32_t index) const { return starts_[index]; }

 private:
  static constexpr std::uint64_t page = 4096;
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::vector<std::unique_ptr<std::byte, Free>> arrays_;
  std::vector<std::byte*> starts_;
};

// GB/s of the yardsticks, by block size: registered, and therefore run, before what they measure.
std::map<std::uint64_t, double> triad_rates;
std::map<std::uint64_t, double> memcpy_rates;

// Processor time, so that other work on the machine does not count.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Runs `body` and reports; returns GB/s.
template <typename Body>
double measure(benchmark::State& state, std::uint64_t moved_bytes, const Body& body) {
  body();  // page in, warm up
  const double begin = thread_seconds();
  for ([[maybe_unused]] auto _ : state) {
    body();
    benchmark::ClobberMemory();
  }
  const double rate = static_cast<double>(moved_bytes) * static_cast<double>(state.iterations()) /
                      (thread_seconds() - begin) / 1e9;
  state.counters["GB/s"] = rate;
  return rate;
}

void report_ratio(benchmark::State& state, double rate,
                  const std::map<std::uint64_t, double>& yardstick, std::uint64_t block) {
  const auto known = yardstick.find(block);
  if (known != yardstick.end()) state.counters["ratio"] = rate / known->second;
}

#if defined(__x86_64__) && defined(__GNUC__)
#define GYRE_BEST_OF_PROCESSOR [[gnu::target_clones("avx512f", "avx2", "default")]]
#else
#define GYRE_BEST_OF_PROCESSOR
#endif
GYRE_BEST_OF_PROCESSOR void triad(float* __restrict a, const float* __restrict b,
                                  const float* __restrict c, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) a[i] = b[i] + 3.0F * c[i];
}

void bench_triad(benchmark::State& state, std::uint64_t block) {
  const Arrays arrays(3, block);
  float* a = reinterpret_cast<float*>(arrays.at(0));
  const float* b = reinterpret_cast<const float*>(arrays.at(1));
  const float* c = reinterpret_cast<const float*>(arrays.at(2));
  triad_rates[block] = measure(state, 3 * block, [&] { triad(a, b, c, block / sizeof(float)); });
}

void bench_memcpy(benchmark::State& state, std::uint64_t block) {
  const Arrays arrays(2, block);
  memcpy_rates[block] =
      measure(state, 2 * block, [&] { std::memcpy(arrays.at(0), arrays.at(1), block); });
}

// As a message leaves a slot for the caller's memory.
void bench_aliased(benchmark::State& state, std::uint64_t block, bool by_memcpy) {
  const Arrays arrays(2, block, aliased);
  const double rate = measure(state, 2 * block, [&] {
    if (by_memcpy)
      std::memcpy(arrays.at(1), arrays.at(0), block);
    else
      copy_move(arrays.at(0), arrays.at(1), block);
  });
  report_ratio(state, rate, memcpy_rates, block);
}

struct MoveCase {
  ElementType type;
  ReduceOp op;
  InstructionSet set;
  std::uint32_t sources = 2;
  std::uint32_t targets = 1;
  std::uint64_t block = cached_block;
  bool streamed = false;
  bool copy = false;
};

void bench_move(benchmark::State& state, const MoveCase& job) {
  const Arrays arrays(job.sources + job.targets, job.block);
  std::vector<const void*> sources;
  std::vector<void*> targets;
  for (std::uint32_t i = 0; i < job.sources; ++i) sources.push_back(arrays.at(i));
  for (std::uint32_t i = 0; i < job.targets; ++i) targets.push_back(arrays.at(job.sources + i));
  MoveOperands move{sources.data(), job.sources, targets.data(), job.targets,
                    job.block / element_bytes(job.type)};
  if (job.op == ReduceOp::avg) move.divisor = 3;
  if (job.op == ReduceOp::pre_mul_sum) {
    move.pre_source = 0;
    move.pre_scalar = sources[1];
  }
  move.streamed = job.streamed ? (1U << job.targets) - 1 : 0;
  const MoveFunction function = find_move(job.type, job.op, job.set);
  const double rate =
      measure(state, (job.sources + job.targets) * job.block, [&] { function(move); });
  report_ratio(state, rate, job.copy ? memcpy_rates : triad_rates, job.block);
}

std::string size_name(std::uint64_t bytes) {
  if (bytes < 1 << 10) return std::to_string(bytes) + "B";
  if (bytes < 1 << 20) return std::to_string(bytes >> 10) + "KiB";
  return std::to_string(bytes >> 20) + "MiB";
}

void add(const MoveCase& job) {
  std::string name = job.copy ? "copy" : "move/";
  if (!job.copy) name += std::string(element_name(job.type)) + "/" + std::string(op_name(job.op));
  name += std::string("/") + instruction_set_name(job.set) + "/" + std::to_string(job.sources) +
          "to" + std::to_string(job.targets) + "/" + size_name(job.block);
  if (job.streamed) name += "/streamed";
  benchmark::RegisterBenchmark(name.c_str(), [job](benchmark::State& s) { bench_move(s, job); });
}

void add_yardsticks() {
  for (std::uint64_t block : {cached_block, memory_block}) {
    benchmark::RegisterBenchmark(("triad/" + size_name(block)).c_str(),
                                 [block](benchmark::State& s) { bench_triad(s, block); });
    benchmark::RegisterBenchmark(("memcpy/" + size_name(block)).c_str(),
                                 [block](benchmark::State& s) { bench_memcpy(s, block); });
  }
  for (bool by_memcpy : {true, false})
    benchmark::RegisterBenchmark(
        by_memcpy ? "aliased/memcpy/64KiB" : "aliased/copy/64KiB",
        [by_memcpy](benchmark::State& s) { bench_aliased(s, cached_block, by_memcpy); });
}

void add_every_entry(InstructionSet set) {
  for (int t = 0; t < element_type_count; ++t)
    for (int o = 0; o < reduce_op_count; ++o)
      if (const auto type = static_cast<ElementType>(t); supported(type, static_cast<ReduceOp>(o)))
        add({type, static_cast<ReduceOp>(o), set});
}

// What collectives do most: more sources, more targets, large blocks.
void add_shapes(InstructionSet set) {
  for (ElementType type : {ElementType::float32, ElementType::bfloat16, ElementType::float16}) {
    for (std::uint32_t sources : {3U, 4U, 8U, 16U}) add({type, ReduceOp::sum, set, sources});
    add({type, ReduceOp::sum, set, 2, 2});
    for (std::uint64_t block : small_blocks) add({type, ReduceOp::sum, set, 2, 1, block});
    for (std::uint32_t sources : {2U, 8U, 16U})
      for (bool streamed : {false, true})
        add({type, ReduceOp::sum, set, sources, 1, memory_block, streamed});
  }
  for (std::uint32_t targets : {1U, 2U, 3U})
    for (std::uint64_t block : {cached_block, memory_block})
      for (bool streamed : {false, true})
        if (block == memory_block || !streamed)
          add({ElementType::uint8, ReduceOp::sum, set, 1, targets, block, streamed, true});
}

}  // namespace
}  // namespace gyre::bench

int main(int count, char** arguments) {
  using namespace gyre::bench;
  add_yardsticks();
  for (int set = static_cast<int>(best_instruction_set()); set >= 0; --set) {
    add_every_entry(static_cast<InstructionSet>(set));
    add_shapes(static_cast<InstructionSet>(set));
  }
  benchmark::Initialize(&count, arguments);
  if (benchmark::ReportUnrecognizedArguments(count, arguments)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
