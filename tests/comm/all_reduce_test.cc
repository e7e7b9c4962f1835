// All-reduce through the C API, ranks as threads: types, ops, algorithms, protocols, transports,
// numbers of ranks, placement, counts and alignments. All ranks get the same, right bits. The
// default run covers every pair of values; [.soak] runs the whole product.
#include "tests/support/base/covering.h"
#include "tests/support/catch.h"
#include "tests/support/comm/call_paths.h"
#include "tests/support/comm/elements.h"
#include "tests/support/comm/ranks.h"
#include <gyre/gyre.h>

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <fstream>
#include <memory>

namespace all_reduce_test {

using namespace gyre;
using namespace gyre::tests;

namespace {

const std::vector<std::string> algorithms = algorithms_for(plan::Collective::all_reduce);
constexpr int rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16};
constexpr std::size_t counts[] = {0, 1, 7, 1009, 65536, 300007};
constexpr std::size_t shifts[] = {0, 1, 3};  // elements by which buffers are misaligned
constexpr int op_count = 9;

// One communicator's worth of work: the axes that a communicator is made for.
struct World {
  std::size_t algorithm, path, ranks;
  friend auto operator<=>(const World&, const World&) = default;
};
// And the axes of one call on it.
struct Call {
  ElementType type;
  ReduceOp op;
  bool in_place;
  std::size_t count;
  std::size_t shift;
};

class Buffers {
 public:
  Buffers(const Call& call, int ranks)
      : call_(call), bytes_(call.count * element_bytes(call.type)) {
    const std::size_t offset = call.shift * element_bytes(call.type);
    for (int rank = 0; rank < ranks; ++rank) {
      inputs_.emplace_back(bytes_ + offset + 64);
      outputs_.emplace_back(bytes_ + offset + 64, std::byte{0xA5});
      originals_.emplace_back(bytes_);
      for (std::size_t i = 0; i < call.count; ++i)
        make_element(call.type, originals_.back().data() + i * element_bytes(call.type),
                     hashed(call.count + call.shift, static_cast<std::uint64_t>(rank), i));
      std::copy(originals_.back().begin(), originals_.back().end(), input(rank));
    }
  }
  std::byte* input(int rank) {
    return inputs_[at(rank)].data() + call_.shift * element_bytes(call_.type);
  }
  std::byte* output(int rank) {
    if (call_.in_place) return input(rank);
    return outputs_[at(rank)].data() + call_.shift * element_bytes(call_.type);
  }

  std::string wrong(double scale) {
    const int ranks = static_cast<int>(inputs_.size());
    const std::size_t size = element_bytes(call_.type);
    std::vector<const std::byte*> operands(inputs_.size());
    for (int rank = 1; rank < ranks; ++rank)
      if (!std::equal(output(0), output(0) + bytes_, output(rank)))
        return "rank " + std::to_string(rank) + " has other bits than rank 0";
    for (std::size_t i = 0; i < call_.count; ++i) {
      for (int rank = 0; rank < ranks; ++rank)
        operands[at(rank)] = originals_[at(rank)].data() + i * size;
      if (!is_reduction(call_.type, call_.op, operands, scale, output(0) + i * size))
        return "element " + std::to_string(i) + " is wrong";
    }
    for (int rank = 0; rank < ranks && !call_.in_place; ++rank) {
      if (!std::equal(input(rank), input(rank) + bytes_, originals_[at(rank)].begin()))
        return "the input of rank " + std::to_string(rank) + " changed";
      for (std::size_t i = 0; i < 32; ++i)
        if (output(rank)[bytes_ + i] != std::byte{0xA5}) return "bytes after the output changed";
    }
    return {};
  }

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  const Call call_;
  const std::size_t bytes_;
  std::vector<std::vector<std::byte>> inputs_, outputs_, originals_;
};

// Of mulsum: products of floats with it have to be rounded, and on each rank alike.
double scale_of(ElementType type) { return is_float(type) ? 0.75 : 2; }

gyreResult_t call_all_reduce(const Call& call, Buffers& buffers, int rank, gyreComm_t comm) {
  auto op = static_cast<gyreRedOp_t>(call.op);
  std::byte scalar[8] = {};
  const bool made = call.op == ReduceOp::pre_mul_sum;
  if (made) {
    put(call.type, scalar, scale_of(call.type), 2);
    if (gyreRedOpCreatePreMulSum(&op, scalar, static_cast<gyreDataType_t>(call.type),
                                 gyreScalarHostImmediate, comm) != gyreSuccess)
      return gyreInternalError;
  }
  const gyreResult_t result =
      gyreAllReduce(buffers.input(rank), buffers.output(rank), call.count,
                    static_cast<gyreDataType_t>(call.type), op, comm, nullptr);
  if (made) (void)gyreRedOpDestroy(op, comm);
  return result;
}

std::string shown(const World& world, const Call& call) {
  return algorithms[world.algorithm] + " " + call_paths()[world.path].transport + " " +
         call_paths()[world.path].protocol + " n=" + std::to_string(rank_counts[world.ranks]) +
         " " + std::string(element_name(call.type)) + " " + std::string(op_name(call.op)) +
         (call.in_place ? " in place" : "") + " count=" + std::to_string(call.count) +
         " shift=" + std::to_string(call.shift);
}

void run_world(const World& world, const std::vector<Call>& calls) {
  const int n = rank_counts[world.ranks];
  const WithVariables variables({{"GYRE_ALGO", algorithms[world.algorithm]},
                                 {"GYRE_PROTO", call_paths()[world.path].protocol},
                                 {"GYRE_TRANSPORT", call_paths()[world.path].transport}});
  std::unique_ptr<Buffers> buffers;
  std::barrier together(n);
  on_ranks(n, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    for (const Call& call : calls) {
      if (rank == 0) buffers = std::make_unique<Buffers>(call, n);
      together.arrive_and_wait();
      if (call_all_reduce(call, *buffers, rank, comm) != gyreSuccess)
        complaints.add(shown(world, call) + ": " + gyreGetLastError(comm));
      together.arrive_and_wait();
      if (rank != 0) continue;
      const std::string wrong = buffers->wrong(scale_of(call.type));
      if (!wrong.empty()) complaints.add(shown(world, call) + ": " + wrong);
    }
  });
}

void run_rows(const std::vector<Row>& rows) {
  std::map<World, std::vector<Call>> worlds;
  for (const Row& row : rows) {
    const Call call{static_cast<ElementType>(row[3]), static_cast<ReduceOp>(row[4]), row[5] == 1,
                    counts[row[6]], shifts[row[7]]};
    const bool bitwise =
        call.op == ReduceOp::band || call.op == ReduceOp::bor || call.op == ReduceOp::bxor;
    if (bitwise && is_float(call.type)) continue;
    worlds[{row[0], row[1], row[2]}].push_back(call);
  }
  for (const auto& [world, calls] : worlds) run_world(world, calls);
}

const std::vector<std::size_t> axes = {std::size(algorithms),
                                       call_paths().size(),
                                       std::size(rank_counts),
                                       element_type_count,
                                       op_count,
                                       2,
                                       std::size(counts),
                                       std::size(shifts)};

}  // namespace

TEST_CASE("all-reduce is right on each pair of type, op, algorithm, path, ranks and count",
          "[collectives]") {
  run_rows(covering_array(axes, 1));
}

TEST_CASE("all-reduce is right on each type with each op", "[collectives]") {
  std::vector<Row> rows;
  for (std::size_t type = 0; type < element_type_count; ++type)
    for (std::size_t op = 0; op < op_count; ++op)
      for (std::size_t path = 0; path < call_paths().size(); ++path)
        rows.push_back({path == 3 ? 0UL : 3UL, path, 2, type, op, type % 2, 3, op % 3});
  run_rows(rows);
}

TEST_CASE("all-reduce is right on the whole product", "[collectives][.soak]") {
  // Long ones, which take a hundred times as long, as plain sums alone.
  std::vector<std::vector<Row>> rows_of(std::size(algorithms));
  for (const Row& row : whole_product(axes)) {
    const bool is_long = counts[row[6]] > 10'000;
    const bool plain = static_cast<ReduceOp>(row[4]) == ReduceOp::sum && row[5] == row[3] % 2 &&
                       row[7] == 0 && rank_counts[row[2]] <= 8;
    if (!is_long || plain) rows_of[row[0]].push_back(row);
  }
  for (std::size_t algorithm = 0; algorithm < rows_of.size(); ++algorithm) {
    run_rows(rows_of[algorithm]);
    std::printf("all-reduce %s: %zu calls\n", algorithms[algorithm].c_str(),
                rows_of[algorithm].size());
    std::fflush(stdout);
  }
}

TEST_CASE("fifty named calls give the same bits a hundred times", "[collectives]") {
  std::map<std::string, std::vector<std::byte>> first;
  for (int round = 0; round < 100; ++round) {
    int name = 0;
    for (std::size_t algorithm = 0; algorithm < 5; ++algorithm) {
      const int n = 3 + static_cast<int>(algorithm % 3);
      const WithVariables variables(Variables{{"GYRE_ALGO", algorithms[algorithm]}});
      std::vector<std::vector<float>> outputs(static_cast<std::size_t>(n));
      std::mutex mutex;
      on_ranks(n, [&](int rank, gyreComm_t comm, Complaints& complaints) {
        for (std::size_t one = 0; one < 10; ++one) {
          const std::size_t count = 1 + one * 577;
          std::vector<float> input(count), output(count);
          for (std::size_t i = 0; i < count; ++i)
            make_element(ElementType::float32, reinterpret_cast<std::byte*>(&input[i]),
                         hashed(one, static_cast<std::uint64_t>(rank), i));
          if (gyreAllReduce(input.data(), output.data(), count, gyreFloat, gyreSum, comm,
                            nullptr) != gyreSuccess)
            return complaints.add(gyreGetLastError(comm));
          const std::lock_guard lock(mutex);
          const auto* bytes = reinterpret_cast<const std::byte*>(output.data());
          auto& known = first[algorithms[algorithm] + std::to_string(one)];
          if (known.empty()) known.assign(bytes, bytes + count * 4);
          complaints.expect(std::memcmp(known.data(), bytes, count * 4) == 0, "other bits");
        }
      });
      name += 10;
    }
    REQUIRE(name == 50);
  }
  CHECK(first.size() == 50);
}

TEST_CASE("reproducible gives the same bits whatever the algorithm and the transport",
          "[collectives]") {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.reproducible = 1;
  std::vector<float> first;
  for (const char* transport : {"shm", "tcp"})
    for (const char* algorithm : {"oneshot", "twoshot"}) {
      const WithVariables variables({{"GYRE_ALGO", algorithm}, {"GYRE_TRANSPORT", transport}});
      std::mutex mutex;
      on_ranks(
          5,
          [&](int rank, gyreComm_t comm, Complaints& complaints) {
            std::vector<float> data(10007);
            for (std::size_t i = 0; i < data.size(); ++i)
              data[i] = static_cast<float>(hashed(1, static_cast<std::uint64_t>(rank), i)) * 1e-3F;
            if (gyreAllReduce(data.data(), data.data(), data.size(), gyreFloat, gyreSum, comm,
                              nullptr))
              return complaints.add(gyreGetLastError(comm));
            const std::lock_guard lock(mutex);
            if (first.empty()) first = data;
            complaints.expect(first == data, std::string("other bits with ") + algorithm);
          },
          &config);
    }
}

TEST_CASE("sixteen-bit floats sum a thousand ones to a thousand", "[collectives]") {
  // Sequential sums in bfloat16 stop at 256; each rank's own thousand is summed in one place here.
  const WithVariables variables(Variables{{"GYRE_ALGO", "oneshot"}});
  on_ranks(16, [&](int, gyreComm_t comm, Complaints& complaints) {
    for (const auto type : {ElementType::float16, ElementType::bfloat16}) {
      std::uint16_t value = static_cast<std::uint16_t>(narrowed(type, 64.0F));
      (void)gyreAllReduce(&value, &value, 1, static_cast<gyreDataType_t>(type), gyreSum, comm,
                          nullptr);
      complaints.expect(widened(type, value) == 1024.0F, "16 x 64 is not 1024");
      value = static_cast<std::uint16_t>(narrowed(type, 1.0F));
      (void)gyreAllReduce(&value, &value, 1, static_cast<gyreDataType_t>(type), gyreAvg, comm,
                          nullptr);
      complaints.expect(widened(type, value) == 1.0F, "the average of ones is not one");
    }
  });
}

// Bytes that could be had without swapping, from the kernel's own estimate.
static std::size_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (std::size_t kib = 0; file >> name >> kib >> unit;)
    if (name == "MemAvailable:") return kib << 10;
  return 0;
}

TEST_CASE("a call beyond 2^31 bytes is right", "[collectives]") {
  if (available_bytes() < 12ULL << 30) {
    WARN("left out: it wants 12 GiB of free memory");
    return;
  }
  constexpr std::size_t count = (1ULL << 31) + 4099;  // bytes: uint8
  on_ranks(2, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    void* memory = nullptr;
    if (gyreMemAllocOn(&memory, count, GYRE_DEVICE_HOST) != gyreSuccess)
      return complaints.add(gyreGetLastError(nullptr));
    auto* data = static_cast<std::uint8_t*>(memory);
    constexpr std::size_t period = 1000003;  // of the pattern: a prime, so that no block repeats it
    std::vector<std::uint8_t> own(period), sum(period);
    for (std::size_t i = 0; i < period; ++i) {
      const auto one = static_cast<std::uint8_t>(i * 2654435761U >> 24);
      own[i] = rank == 0 ? one : one ^ 91;
      sum[i] = static_cast<std::uint8_t>(one + (one ^ 91));
    }
    for (std::size_t at = 0; at < count; at += period)
      std::memcpy(data + at, own.data(), std::min(period, count - at));
    if (gyreAllReduce(data, data, count, gyreUint8, gyreSum, comm, nullptr) != gyreSuccess)
      complaints.add(gyreGetLastError(comm));
    std::size_t wrong = 0;
    for (std::size_t at = 0; at < count; at += period)
      wrong += std::memcmp(data + at, sum.data(), std::min(period, count - at)) != 0;
    complaints.expect(wrong == 0, std::to_string(wrong) + " parts of a megabyte are wrong");
    (void)gyreMemFree(memory);
  });
}

}  // namespace all_reduce_test
