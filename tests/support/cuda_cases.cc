#include "tests/support/cuda_cases.h"

#include "lib/plan/algorithms.h"
#include "tests/support/collective_case.h"

#include <fmt/format.h>

#include <optional>
#include <random>

namespace gyre::tests {
namespace {

const char* const protocols[] = {"LL", "LL128", "Simple", "Direct"};

struct Way {
  const plan::Algorithm* algorithm;
  std::string protocol;
  std::string shown() const { return fmt::format("{} {}", algorithm->name, protocol); }
};

std::vector<Way> every_way() {
  std::vector<Way> ways;
  for (const plan::Algorithm& algorithm : plan::algorithms())
    for (const char* protocol : protocols) ways.push_back({&algorithm, protocol});
  return ways;
}

std::optional<plan::Collective> collective_of(Function function) {
  switch (function) {
    case Function::reduce_scatter:
    case Function::reduce_scatter_v:
      return plan::Collective::reduce_scatter;
    case Function::all_gather:
    case Function::all_gather_v:
      return plan::Collective::all_gather;
    case Function::broadcast:
      return plan::Collective::broadcast;
    case Function::reduce:
      return plan::Collective::reduce;
    case Function::all_to_all:
    case Function::all_to_all_v:
      return plan::Collective::all_to_all;
    case Function::gather:
      return plan::Collective::gather;
    case Function::scatter:
      return plan::Collective::scatter;
    case Function::all_reduce:
      return plan::Collective::all_reduce;
  }
  return std::nullopt;
}
constexpr int function_count = static_cast<int>(Function::all_reduce) + 1;

bool is_uneven(Function function) {
  return function == Function::all_to_all_v || function == Function::all_gather_v ||
         function == Function::reduce_scatter_v;
}

// The setting that leaves this algorithm alone for whatever it does, and the rest as it is.
std::string only(const plan::Algorithm& algorithm) {
  std::string text;
  for (const plan::Collective collective : algorithm.collectives)
    text += fmt::format("{}{}:{}", text.empty() ? "" : ";", plan::collective_name(collective),
                        algorithm.name);
  return text;
}

CollectiveCase drawn(Function function, int ranks, const std::vector<std::size_t>& counts,
                     std::mt19937_64& random) {
  constexpr std::size_t shifts[] = {0, 0, 1, 3};
  CollectiveCase one;
  do {
    one = {.function = function, .ranks = ranks};
    one.type = static_cast<ElementType>(random() % element_type_count);
    one.op = static_cast<ReduceOp>(random() % reduce_op_count);
    one.in_place = random() % 3 == 0;
    one.count = counts[random() % counts.size()];
    one.shift = shifts[random() % std::size(shifts)];
    one.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
  } while (!one.is_legal());
  return one;
}

// One call of all ranks on device memory; what is wrong with its outcome.
std::string outcome_of(const OnCuda& on, Ranks& ranks, const CollectiveCase& one) {
  CaseBuffers buffers(one);
  std::vector<DeviceBytes> memory;
  std::vector<std::size_t> placed;
  for (std::size_t i = 0; i < buffers.blocks(); ++i) {
    const std::span<std::byte> block = buffers.block(i);
    if (block.empty()) continue;
    memory.emplace_back(on, block.size());
    placed.push_back(i);
    on.write(memory.back().address(), block.data(), block.size());
    buffers.place(i, reinterpret_cast<std::byte*>(memory.back().address()));
  }
  std::string wrong = ranks.call_in_threads([&](int rank, gyreComm_t comm, gyreStream_t stream) {
    return buffers.call(rank, comm, stream);
  });
  for (std::size_t k = 0; k < placed.size(); ++k) {
    const std::span<std::byte> block = buffers.block(placed[k]);
    on.read(block.data(), memory[k].address(), block.size());
  }
  for (int rank = 0; rank < one.ranks && wrong.empty(); ++rank) wrong = buffers.wrong(rank);
  return wrong;
}

void check_way(const OnCuda& on, const Way& way, int n, const CudaSweep& sweep) {
  const WithVariables variables(
      {{"GYRE_ALGO", only(*way.algorithm)}, {"GYRE_PROTO", way.protocol}});
  INFO(way.shown() << ", " << n << " ranks, seed " << sweep.seed);
  Ranks ranks(on, n);
  INFO(last_error());
  REQUIRE(ranks.begun == gyreSuccess);
  std::mt19937_64 random(sweep.seed + static_cast<std::uint64_t>(n));
  for (int i = 0; i < function_count; ++i) {
    const auto function = static_cast<Function>(i);
    if (!way.algorithm->does(*collective_of(function))) continue;
    if (is_uneven(function) && way.algorithm->equal_counts) continue;
    for (std::size_t k = 0; k < sweep.cases_each; ++k) {
      const CollectiveCase one = drawn(function, n, sweep.counts, random);
      const std::string wrong = outcome_of(on, ranks, one);
      INFO(one.shown() << ": " << wrong);
      REQUIRE(wrong.empty());
    }
  }
}

// Two ranks that have carried out one call already, so that their link is open.
struct Pair {
  explicit Pair(const OnCuda& where, int timeout_ms = 0)
      : ranks(where, 2, 1, timeout_ms), a(where, 100), b(where, 100) {
    INFO(last_error());
    REQUIRE(ranks.begun == gyreSuccess);
    REQUIRE(ranks.call([this](int rank, gyreComm_t, gyreStream_t) { return call(rank, 100); }) ==
            gyreSuccess);
    ranks.synchronize();
  }
  gyreResult_t call(int rank, std::size_t count) {
    const auto at = static_cast<std::size_t>(rank);
    std::int32_t* const data = rank == 0 ? a.data() : b.data();
    return gyreAllReduce(data, data, count, gyreInt32, gyreSum, ranks.comms[at], ranks.stream(at));
  }
  Ranks ranks;
  DeviceInts a, b;
};

}  // namespace

void check_schedules(const OnCuda& on, const CudaSweep& sweep) {
  std::size_t number = sweep.seed % sweep.stride;
  for (const int n : sweep.ranks)
    for (const Way& way : every_way())
      if (number++ % sweep.stride == 0) check_way(on, way, n, sweep);
}

void check_random_operations(const OnCuda& on, const CudaSoak& soak) {
  std::mt19937_64 random(soak.seed);
  std::optional<Ranks> ranks;
  for (std::size_t i = 0; i < soak.operations; ++i) {
    if (i % soak.each_lasts == 0) {
      ranks.reset();
      ranks.emplace(on, soak.ranks[random() % soak.ranks.size()]);
      INFO(last_error());
      REQUIRE(ranks->begun == gyreSuccess);
    }
    const auto function = static_cast<Function>(random() % function_count);
    const int n = static_cast<int>(ranks->comms.size());
    const CollectiveCase one = drawn(function, n, soak.counts, random);
    const std::string wrong = outcome_of(on, *ranks, one);
    INFO("operation " << i << " of seed " << soak.seed << ": " << one.shown() << ": " << wrong);
    REQUIRE(wrong.empty());
  }
}

void check_deadline(const OnCuda& on, int timeout_ms) {
  Pair pair(on, timeout_ms);
  CHECK(pair.call(0, 10) == gyreSuccess);  // it is only on the stream
  CHECK(pair.ranks.await_error(0) == gyreTimeout);
  CHECK(mentions(last_error(pair.ranks.comms[0]), "from rank 1"));
  pair.ranks.synchronize();
  CHECK(pair.call(0, 10) == gyreTimeout);
}

void check_abort(const OnCuda& on, double seconds_most) {
  Pair pair(on);
  REQUIRE(pair.call(0, 10) == gyreSuccess);
  const auto begin = std::chrono::steady_clock::now();
  CHECK(gyreCommAbort(std::exchange(pair.ranks.comms[1], nullptr)) == gyreSuccess);
  pair.ranks.synchronize();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  CHECK(took.count() < seconds_most);
  CHECK(pair.ranks.await_error(0) == gyreRemoteError);
  CHECK(gyreCommAbort(std::exchange(pair.ranks.comms[0], nullptr)) == gyreSuccess);
}

void check_mismatch(const OnCuda& on) {
  Pair pair(on);
  REQUIRE(pair.call(0, 40) == gyreSuccess);
  REQUIRE(pair.call(1, 41) == gyreSuccess);
  CHECK(pair.ranks.await_error(0) == gyreMismatch);
  CHECK(mentions(last_error(pair.ranks.comms[0]), "40"));
  CHECK(mentions(last_error(pair.ranks.comms[0]), "41"));
  pair.ranks.synchronize();
}

void check_refusals(const OnCuda& on) {
  Ranks ranks(on, 1);
  REQUIRE(ranks.begun == gyreSuccess);
  gyreComm_t comm = ranks.comms[0];
  DeviceInts good(on, 100);
  std::vector<std::int32_t> host(100);
  const auto refused = [&](void* buffer, std::size_t count, gyreStream_t stream,
                           const std::string& word) {
    CHECK(gyreAllReduce(buffer, buffer, count, gyreInt32, gyreSum, comm, stream) ==
          gyreInvalidArgument);
    CHECK(mentions(last_error(comm), word));
  };
  refused(host.data(), 100, nullptr, "host memory that CUDA does not know");
  // An allocation may be longer than what was asked for; this is longer than any.
  refused(good.data(), std::size_t{1} << 40, nullptr, "4398046511104");
  void* freed = nullptr;
  {
    DeviceInts gone(on, 16 << 20);  // so large that it is an allocation of its own
    freed = gone.data();
  }
  refused(freed, 100, nullptr, "it was freed, or never allocated");
  int devices = 0;
  REQUIRE(on.driver->device_count(&devices) == loaded::cu::success);
  if (devices < 2) {
    WARN("one device: its streams and memory were not mixed up with another's");
  } else {
    loaded::CuContext other = nullptr;
    REQUIRE(on.driver->primary_retain(&other, 1) == loaded::cu::success);
    {
      const loaded::CurrentContext scope(*on.driver, other);
      DeviceInts far(on, 100);
      refused(far.data(), 100, nullptr, "is memory of CUDA device 1");
      loaded::CuStream foreign = nullptr;
      REQUIRE(on.driver->stream_create(&foreign, 0) == loaded::cu::success);
      refused(good.data(), 100, reinterpret_cast<gyreStream_t>(foreign),
              "belongs to another device");
      (void)on.driver->stream_destroy(foreign);
    }
    (void)on.driver->primary_release(1);
  }
  gyreStream_t host_stream = nullptr;
  REQUIRE(gyreStreamCreate(&host_stream) == gyreSuccess);
  refused(good.data(), 100, host_stream, "a host stream");
  CHECK(gyreStreamDestroy(host_stream) == gyreSuccess);
  // None of it broke the communicator.
  CHECK(gyreAllReduce(good.data(), good.data(), 100, gyreInt32, gyreSum, comm, ranks.stream(0)) ==
        gyreSuccess);
  ranks.synchronize();
}

}  // namespace gyre::tests
