// Every collective but all-reduce through the C API, ranks as threads: algorithms, protocols,
// transports, numbers of ranks, types, ops, placement, counts (uneven and zero too), alignments and
// roots. The default run covers every pair of values; [.soak] runs the whole product.
#include "tests/support/base/covering.h"
#include "tests/support/catch.h"
#include "tests/support/comm/call_paths.h"
#include "tests/support/comm/collective_case.h"
#include "tests/support/comm/ranks.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <memory>

namespace collectives_test {

using namespace gyre;
using namespace gyre::tests;

namespace {

using plan::Collective;

struct Subject {
  Function function;
  std::vector<std::string> algorithms;
};
const Subject subjects[] = {
    {Function::reduce_scatter, algorithms_for(Collective::reduce_scatter)},
    {Function::all_gather, algorithms_for(Collective::all_gather)},
    {Function::broadcast, algorithms_for(Collective::broadcast)},
    {Function::reduce, algorithms_for(Collective::reduce)},
    {Function::all_to_all, algorithms_for(Collective::all_to_all)},
    {Function::gather, algorithms_for(Collective::gather)},
    {Function::scatter, algorithms_for(Collective::scatter)},
    {Function::all_to_all_v, algorithms_for(Collective::all_to_all, Counts::uneven)},
    {Function::all_gather_v, algorithms_for(Collective::all_gather, Counts::uneven)},
    {Function::reduce_scatter_v, algorithms_for(Collective::reduce_scatter, Counts::uneven)}};
std::size_t algorithm_count(const Subject& subject) { return subject.algorithms.size(); }
const std::size_t max_algorithms = algorithm_count(std::ranges::max(subjects, {}, algorithm_count));
constexpr int rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16};
constexpr std::size_t counts[] = {0, 1, 7, 1009, 20011};
constexpr std::size_t shifts[] = {0, 1, 3};
constexpr std::size_t op_count = 9;

// The axes that a communicator is made for.
struct World {
  std::size_t subject, algorithm, path, ranks;
  friend auto operator<=>(const World&, const World&) = default;
};

std::string shown(const World& world, const CollectiveCase& one) {
  const Subject& subject = subjects[world.subject];
  return subject.algorithms[world.algorithm] + " " + call_paths()[world.path].transport + " " +
         call_paths()[world.path].protocol + " " + one.shown();
}

void run_world(const World& world, const std::vector<CollectiveCase>& cases) {
  const WithVariables variables({{"GYRE_ALGO", subjects[world.subject].algorithms[world.algorithm]},
                                 {"GYRE_PROTO", call_paths()[world.path].protocol},
                                 {"GYRE_TRANSPORT", call_paths()[world.path].transport}});
  const int n = rank_counts[world.ranks];
  std::unique_ptr<CaseBuffers> buffers;
  std::barrier together(n);
  on_ranks(n, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    for (const CollectiveCase& one : cases) {
      if (rank == 0) buffers = std::make_unique<CaseBuffers>(one);
      together.arrive_and_wait();
      if (buffers->call(rank, comm) != gyreSuccess)
        complaints.add(shown(world, one) + ": " + gyreGetLastError(comm));
      together.arrive_and_wait();
      const std::string wrong = buffers->wrong(rank);
      if (!wrong.empty()) complaints.add(shown(world, one) + ": " + wrong);
      together.arrive_and_wait();
    }
  });
}

void run_rows(const std::vector<Row>& rows) {
  std::map<World, std::vector<CollectiveCase>> worlds;
  for (const Row& row : rows) {
    const Subject& subject = subjects[row[0]];
    CollectiveCase one;
    one.function = subject.function;
    one.ranks = rank_counts[row[3]];
    one.type = static_cast<ElementType>(row[4]);
    one.op = static_cast<ReduceOp>(row[5]);
    one.in_place = row[6] == 1;
    one.count = counts[row[7]];
    one.shift = shifts[row[8]];
    one.root = static_cast<int>(row[9]) * (one.ranks - 1) / 2;
    if (one.is_legal())
      worlds[{row[0], row[1] % subject.algorithms.size(), row[2], row[3]}].push_back(one);
  }
  for (const auto& [world, cases] : worlds) run_world(world, cases);
}

const std::vector<std::size_t> axes = {std::size(subjects),
                                       max_algorithms,
                                       call_paths().size(),
                                       std::size(rank_counts),
                                       element_type_count,
                                       op_count,
                                       2,
                                       std::size(counts),
                                       std::size(shifts),
                                       3};

}  // namespace

TEST_CASE("collectives are right on each pair of what they depend on", "[collectives]") {
  run_rows(covering_array(axes, 1));
}

TEST_CASE("every collective is right with every algorithm on every path", "[collectives]") {
  std::vector<Row> rows;
  for (std::size_t subject = 0; subject < std::size(subjects); ++subject)
    for (std::size_t algorithm = 0; algorithm < subjects[subject].algorithms.size(); ++algorithm)
      for (std::size_t path = 0; path < call_paths().size(); ++path)
        for (std::size_t ranks : {1UL, 2UL, 4UL})
          for (std::size_t count : {0UL, 2UL, 3UL, 4UL})
            rows.push_back({subject, algorithm, path, ranks, 7, 0, count % 2, count, count % 3,
                            (ranks + path) % 3});
  run_rows(rows);
}

namespace {

// All that a subject depends on; roots only where there is one, ops only where something is summed.
// Long ones, which take several pieces, only among few ranks and of one type and op.
std::vector<CollectiveCase> all_cases(const Subject& subject, int ranks) {
  const bool has_root =
      subject.function == Function::broadcast || subject.function == Function::reduce ||
      subject.function == Function::gather || subject.function == Function::scatter;
  std::vector<CollectiveCase> cases;
  CollectiveCase one;
  one.function = subject.function;
  one.ranks = ranks;
  const std::size_t ops = one.sums() ? op_count : 1;
  const std::size_t roots = has_root ? 3 : 1;
  for (const Row& row :
       whole_product({element_type_count, ops, 2, std::size(counts), std::size(shifts), roots})) {
    one.type = static_cast<ElementType>(row[0]);
    one.op = static_cast<ReduceOp>(row[1]);
    one.in_place = row[2] == 1;
    one.count = counts[row[3]];
    one.shift = shifts[row[4]];
    one.root = static_cast<int>(row[5]) * (ranks - 1) / 2;
    const bool plain = one.type == ElementType::float32 && one.op == ReduceOp::sum && ranks <= 5;
    const bool is_long = one.count == counts[std::size(counts) - 1];
    if (one.is_legal() && (plain || !is_long)) cases.push_back(one);
  }
  return cases;
}

}  // namespace

TEST_CASE("collectives are right on the whole product", "[collectives][.soak]") {
  for (std::size_t subject = 0; subject < std::size(subjects); ++subject)
    for (std::size_t algorithm = 0; algorithm < subjects[subject].algorithms.size(); ++algorithm) {
      std::size_t done = 0;
      for (std::size_t path = 0; path < call_paths().size(); ++path)
        for (std::size_t ranks = 0; ranks < std::size(rank_counts); ++ranks) {
          const auto cases = all_cases(subjects[subject], rank_counts[ranks]);
          run_world({subject, algorithm, path, ranks}, cases);
          done += cases.size();
        }
      CollectiveCase named;
      named.function = subjects[subject].function;
      std::printf("%s %s: %zu cases\n", named.name(),
                  subjects[subject].algorithms[algorithm].c_str(), done);
      std::fflush(stdout);
    }
}

TEST_CASE("nobody leaves a barrier before everybody has entered", "[collectives]") {
  for (const char* transport : {"shm", "tcp"}) {
    const WithVariables variables(Variables{{"GYRE_TRANSPORT", transport}});
    constexpr int n = 5;
    std::atomic<int> entered = 0;
    on_ranks(n, [&](int rank, gyreComm_t comm, Complaints& complaints) {
      for (int round = 1; round <= 50; ++round) {
        if (rank == round % n) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        ++entered;
        if (gyreBarrier(comm, nullptr) != gyreSuccess)
          return complaints.add(gyreGetLastError(comm));
        complaints.expect(entered >= n * round, "somebody was not there yet");
      }
    });
  }
}

}  // namespace collectives_test
