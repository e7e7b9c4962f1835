// gradsync.h's replicas, ranks as threads: every rank gets the mean gradients, for any layout in
// memory and if some ranks end early.
#include "tests/support/catch.h"
#include "tests/support/gradsync/grad_trainer.h"

#include <atomic>
#include <chrono>
#include <map>
#include <thread>

namespace gradsync_test {

using namespace gyre::tests;

TEST_CASE("gradients are the mean over all ranks, step after step", "[gradsync]") {
  const int n = GENERATE(1, 2, 3, 4);
  const bool views = GENERATE(true, false);
  const int wire = GENERATE(int{GYRE_GRAD_WIRE_SAME}, int{gyreBfloat16}, int{gyreFloat16});
  const std::size_t bucket_bytes = GENERATE(1, 4096, 1 << 20);
  CAPTURE(n, views, wire, bucket_bytes);
  gyreGradConfig_t config = config_of(bucket_bytes);
  config.wireType = wire;
  on_ranks(n, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    Model model;
    model.views = views;
    Trainer trainer(comm, model, config);
    complaints.expect(trainer.created() == gyreSuccess, gyreGradGetLastError());
    for (int step = 0; step < 4; ++step) {
      complaints.expect(trainer.backward(rank, step) == gyreSuccess, gyreGradGetLastError());
      complaints.expect(gyreGradWait(trainer.grad) == gyreSuccess, gyreGradGetLastError());
      complaints.expect(trainer.holds(step, mean_weight(n)), "not the mean");
    }
  });
}

TEST_CASE("all types are summed, and rank 0's parameters go to all", "[gradsync]") {
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    std::vector<std::int64_t> counts(5, rank + 1);
    std::vector<double> doubles(3, rank + 0.5), parameter(3, rank);
    std::vector<std::uint8_t> bytes(9, static_cast<std::uint8_t>(rank + 7));
    const gyreGradTensor_t tensors[] = {
        {"counts", 5, gyreInt64, nullptr, counts.data()},
        {"doubles", 3, gyreDouble, parameter.data(), doubles.data()},
        {nullptr, 9, gyreUint8, nullptr, bytes.data()}};
    gyreGradConfig_t config = config_of(1 << 20);
    config.op = gyreSum;
    gyreGrad_t grad = nullptr;
    complaints.expect(gyreGradCreate(&grad, comm, tensors, 3, &config) == gyreSuccess,
                      gyreGradGetLastError());
    complaints.expect(parameter == std::vector<double>(3, 0.0), "rank 0's parameter");
    for (std::size_t tensor = 0; tensor < 3; ++tensor) gyreGradReady(grad, tensor, nullptr);
    complaints.expect(gyreGradWait(grad) == gyreSuccess, gyreGradGetLastError());
    complaints.expect(counts == std::vector<std::int64_t>(5, 3), "counts");
    complaints.expect(doubles == std::vector<double>(3, 2.0), "doubles");
    complaints.expect(bytes == std::vector<std::uint8_t>(9, 15), "bytes");
    complaints.expect(gyreGradDestroy(grad) == gyreSuccess, gyreGradGetLastError());
    complaints.expect(gyreGradWait(grad) == gyreInvalidArgument, "a destroyed replica");
  });
}

TEST_CASE("unused gradients count as zeros, and what nobody used stays", "[gradsync]") {
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    Model model;
    model.views = false;
    gyreGradConfig_t config = config_of(4096);
    config.findUnused = 1;
    Trainer trainer(comm, model, config);
    for (int step = 0; step < 3; ++step) {
      for (std::size_t tensor = 0; tensor < trainer.size(); ++tensor)
        trainer.fill(rank, step, tensor);
      gyreGradReady(trainer.grad, 0, nullptr);
      gyreGradReady(trainer.grad, 4, nullptr);
      if (rank == 0) gyreGradReady(trainer.grad, 1, nullptr);  // on one rank
      gyreGradUnused(trainer.grad, 3);                         // on none, and said so
      complaints.expect(gyreGradWait(trainer.grad) == gyreSuccess, gyreGradGetLastError());
      const auto at = [&](std::size_t tensor) { return trainer.gradient(tensor)[0]; };
      complaints.expect(at(0) == 1.5F * Trainer::value(0, step, 0, 0), "used by both");
      complaints.expect(at(1) == 0.5F * Trainer::value(0, step, 1, 0), "used by one");
      complaints.expect(at(2) == Trainer::value(rank, step, 2, 0), "used by none");
      complaints.expect(at(3) == Trainer::value(rank, step, 3, 0), "said to be unused");
      for (std::size_t tensor = 0; tensor < trainer.size(); ++tensor) {
        int used = -1;
        gyreGradWasUsed(trainer.grad, tensor, &used);
        complaints.expect(used == (tensor < 2 || tensor == 4), "who used what");
      }
    }
  });
}

TEST_CASE("the observed order is rank 0's, and views move once with what they hold", "[gradsync]") {
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    Trainer trainer(comm, {}, config_of(4096));
    std::vector<std::size_t> order = {2, 4, 0, 1, 3};  // another one on rank 1
    if (rank == 1) std::reverse(order.begin(), order.end());
    std::uint64_t layouts = 0;
    for (int step = 0; step < 3; ++step) {
      for (const std::size_t tensor : order) {
        trainer.fill(rank, step, tensor);
        gyreGradReady(trainer.grad, tensor, nullptr);
      }
      complaints.expect(gyreGradWait(trainer.grad) == gyreSuccess, gyreGradGetLastError());
      complaints.expect(trainer.holds(step, 1.5), "not the mean");
      gyreGradStats_t stats{};
      stats.size = sizeof stats;
      gyreGradGetStats(trainer.grad, &stats);
      layouts = stats.layout;
    }
    complaints.expect(layouts == 2, std::to_string(layouts) + " layouts");
    // Rank 0's first two make the first bucket: side by side.
    complaints.expect(trainer.gradient(4) - trainer.gradient(2) == 16, "another order");
  });
}

TEST_CASE("the rank that computes longest is named", "[gradsync]") {
  std::atomic<int> computed{0};  // steps of the other two
  on_ranks(3, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    Trainer trainer(comm, {}, config_of(4096));
    gyreGradStats_t stats{};
    stats.size = sizeof stats;
    gyreGradGetStats(trainer.grad, &stats);
    complaints.expect(stats.straggler == -1, "a straggler before the first step");
    for (int step = 0; step < 4; ++step) {
      // 20 ms longer than the others, where full cores hold them up, too.
      const auto rest = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
      for (int i = 0; rank == 1 && computed < 2 * (step + 1) && i < 1000; ++i) rest();
      if (rank == 1) rest();
      complaints.expect(trainer.backward(rank, step) == gyreSuccess, gyreGradGetLastError());
      if (rank != 1) ++computed;
      complaints.expect(gyreGradWait(trainer.grad) == gyreSuccess, gyreGradGetLastError());
    }
    gyreGradGetStats(trainer.grad, &stats);
    complaints.expect(stats.straggler == 1, "straggler " + std::to_string(stats.straggler));
    complaints.expect(stats.stragglerSeconds >= 0.02, "faster than it slept");
    complaints.expect(stats.othersSeconds < stats.stragglerSeconds, "others are slower");
  });
}

TEST_CASE("gradients add up while a replica does not synchronise", "[gradsync]") {
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    gyreGradConfig_t config = config_of(4096);
    config.order = gyreGradOrderGiven;
    Trainer trainer(comm, {}, config);
    gyreGradSetSync(trainer.grad, 0);
    trainer.backward(rank, 0);
    complaints.expect(gyreGradWait(trainer.grad) == gyreSuccess, gyreGradGetLastError());
    for (std::size_t tensor = 0; tensor < trainer.size(); ++tensor)
      complaints.expect(trainer.gradient(tensor)[0] == Trainer::value(rank, 0, tensor, 0),
                        "synced");
    gyreGradSetSync(trainer.grad, 1);
    for (std::size_t tensor = trainer.size(); tensor-- > 0;) {
      for (std::size_t i = 0; i < trainer.count(tensor); ++i)
        trainer.gradient(tensor)[i] += Trainer::value(rank, 0, tensor, i);
      gyreGradReady(trainer.grad, tensor, nullptr);
    }
    complaints.expect(gyreGradWait(trainer.grad) == gyreSuccess, gyreGradGetLastError());
    complaints.expect(trainer.holds(0, 2 * 1.5), "not both passes");
  });
}

TEST_CASE("ranks whose data has ended join, and get the parameters of those that went on",
          "[gradsync]") {
  const int divisor = GENERATE(0, 1);
  on_ranks(3, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    gyreGradConfig_t config = config_of(4096);
    config.joinDivisor = divisor;
    Trainer trainer(comm, {}, config);
    const int steps = rank == 1 ? 5 : rank;  // 0, 5, 2
    for (int step = 0; step < steps; ++step) {
      trainer.backward(rank, step);
      complaints.expect(gyreGradWait(trainer.grad) == gyreSuccess, gyreGradGetLastError());
      const double sum = step < 2 ? 2 + 3 : 2;  // of ranks 1 and 2, or 1
      const int active = step < 2 ? 2 : 1;
      complaints.expect(trainer.holds(step, sum / (divisor == 1 ? active : 3)), "not the mean");
      trainer.parameter(3)[0] = static_cast<float>(step + 1);
    }
    complaints.expect(gyreGradJoin(trainer.grad) == gyreSuccess, gyreGradGetLastError());
    complaints.expect(trainer.parameter(3)[0] == 5, "an older parameter");
    complaints.expect(gyreGradCompare(trainer.grad) == gyreSuccess, gyreGradGetLastError());
    trainer.backward(rank, 7);  // and all go on
    complaints.expect(gyreGradWait(trainer.grad) == gyreSuccess, gyreGradGetLastError());
    complaints.expect(trainer.holds(7, 2), "not the mean after all have joined");
  });
}

namespace {

// Plain SGD on gradients of its own; how the ranks come to one model is `mode`'s.
enum class Mode { all_reduce, server, local };

std::vector<float> trained(Mode mode, int n) {
  std::vector<float> parameters;
  gyreGradConfig_t config = config_of(4096);
  if (mode == Mode::server) config.server = n - 1;
  on_ranks(n, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    Trainer trainer(comm, {}, config, 1);
    complaints.expect(trainer.created() == gyreSuccess, gyreGradGetLastError());
    if (mode == Mode::local) gyreGradSetSync(trainer.grad, 0);
    const bool updates = mode != Mode::server || rank == n - 1;
    for (int step = 0; step < 4; ++step) {
      trainer.backward(rank, step);
      complaints.expect(gyreGradWait(trainer.grad) == gyreSuccess, gyreGradGetLastError());
      for (std::size_t tensor = 0; tensor < trainer.size() && updates; ++tensor)
        for (std::size_t i = 0; i < trainer.count(tensor); ++i)
          trainer.parameter(tensor)[i] -= trainer.gradient(tensor)[i] / 64;
      if (mode == Mode::server)
        complaints.expect(gyreGradReturn(trainer.grad) == gyreSuccess, gyreGradGetLastError());
    }
    if (mode == Mode::local)
      complaints.expect(gyreGradAverageParameters(trainer.grad) == gyreSuccess,
                        gyreGradGetLastError());
    complaints.expect(gyreGradCompare(trainer.grad) == gyreSuccess, gyreGradGetLastError());
    if (rank != 0) return;
    for (std::size_t tensor = 0; tensor < trainer.size(); ++tensor)
      parameters.insert(parameters.end(), trainer.parameter(tensor),
                        trainer.parameter(tensor) + trainer.count(tensor));
  });
  return parameters;
}

}  // namespace

// Gradients here do not depend on the parameters, and all numbers are exact: so local steps, too,
// come to the same.
TEST_CASE("a parameter server and local SGD come to what all-reduce comes to", "[gradsync]") {
  const int n = GENERATE(1, 2, 4);
  const std::vector<float> expected = trained(Mode::all_reduce, n);
  REQUIRE(expected.size() == 3773);
  CHECK(expected[1] != 1);
  CHECK(trained(Mode::server, n) == expected);
  CHECK(trained(Mode::local, n) == expected);
}

TEST_CASE("parameters that differ are named, and arrays broadcast from any rank", "[gradsync]") {
  on_ranks(3, [](int rank, gyreComm_t comm, Complaints& complaints) {
    Trainer trainer(comm, {}, config_of(4096), static_cast<float>(rank));
    complaints.expect(trainer.parameter(0)[2999] == 0, "rank 0's parameters");
    complaints.expect(gyreGradCompare(trainer.grad) == gyreSuccess, gyreGradGetLastError());
    if (rank == 2) trainer.parameter(1)[700] = 1;
    complaints.expect(gyreGradCompare(trainer.grad) == gyreMismatch, "no mismatch");
    complaints.expect(mentions(gyreGradGetLastError(), "'fc.weight' on rank 2 differs"),
                      gyreGradGetLastError());
    std::vector<float> statistics(10, static_cast<float>(rank));
    const gyreGradTensor_t array = {"statistics", 10, gyreFloat, statistics.data(), nullptr};
    complaints.expect(gyreGradBroadcast(trainer.grad, &array, 1, 1) == gyreSuccess,
                      gyreGradGetLastError());
    complaints.expect(statistics == std::vector<float>(10, 1.0F), "rank 1's array");
    complaints.expect(gyreGradBroadcast(trainer.grad, &array, 1, 3) == gyreInvalidArgument, "root");
  });
}

TEST_CASE("a hook stands in for the all-reduce", "[gradsync]") {
  on_ranks(3, [](int rank, gyreComm_t comm, Complaints& complaints) {
    Trainer trainer(comm, {}, config_of(4096));
    Halving halving;
    const gyreGradHook_t hook = {&halving, Halving::begin, Halving::finish};
    complaints.expect(gyreGradSetHook(trainer.grad, &hook) == gyreSuccess, gyreGradGetLastError());
    trainer.backward(rank, 0);
    complaints.expect(gyreGradWait(trainer.grad) == gyreSuccess, gyreGradGetLastError());
    complaints.expect(trainer.holds(0, 3), "not half of 1 + 2 + 3");
    complaints.expect(halving.begun > 1 && halving.begun == halving.finished, "calls");
    complaints.expect(gyreGradSetHook(trainer.grad, nullptr) == gyreSuccess,
                      gyreGradGetLastError());
    trainer.backward(rank, 1);
    gyreGradWait(trainer.grad);
    complaints.expect(trainer.holds(1, 2), "not the mean again");
  });
}

TEST_CASE("a join counts steps from where the one before left the ranks", "[gradsync]") {
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    Trainer trainer(comm, {}, config_of(4096));
    const int steps[2][2] = {{5, 3}, {3, 5}};  // by epoch and rank: 8 each in all
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (int step = 0; step < steps[epoch][rank]; ++step) {
        trainer.backward(rank, step);
        complaints.expect(gyreGradWait(trainer.grad) == gyreSuccess, gyreGradGetLastError());
        trainer.parameter(3)[0] = static_cast<float>(10 * epoch + step + 1);
      }
      complaints.expect(gyreGradJoin(trainer.grad) == gyreSuccess, gyreGradGetLastError());
      complaints.expect(trainer.parameter(3)[0] == static_cast<float>(10 * epoch + 5),
                        "older ones");
    }
  });
}

TEST_CASE("a gradient may be the work of a host stream", "[gradsync]") {
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    gyreStream_t stream = nullptr;
    complaints.expect(gyreStreamCreate(&stream) == gyreSuccess, gyreGetLastError(nullptr));
    {
      Trainer trainer(comm, {}, config_of(4096));
      std::vector<float> sum(trainer.count(0), static_cast<float>(rank + 1));
      for (std::size_t tensor = trainer.size(); tensor-- > 1;) {
        trainer.fill(rank, 0, tensor);
        gyreGradReady(trainer.grad, tensor, nullptr);
      }
      gyreAllReduce(sum.data(), trainer.gradient(0), sum.size(), gyreFloat, gyreSum, comm, stream);
      complaints.expect(gyreGradReady(trainer.grad, 0, stream) == gyreSuccess,
                        gyreGradGetLastError());
      complaints.expect(gyreGradWait(trainer.grad) == gyreSuccess, gyreGradGetLastError());
      complaints.expect(trainer.gradient(0)[17] == 3, "not the mean of 3 and 3");
      Model copied;
      copied.views = false;
      Trainer other(comm, copied, config_of(4096));
      complaints.expect(gyreGradReady(other.grad, 0, stream) == gyreInvalidUsage, "a copy");
    }
    gyreStreamDestroy(stream);
  });
}

TEST_CASE("statistics add up", "[gradsync]") {
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    Trainer trainer(comm, {}, config_of(1 << 20));
    for (int step = 0; step < 3; ++step) {
      trainer.backward(rank, step);
      gyreGradWait(trainer.grad);
    }
    gyreGradStats_t stats{};
    stats.size = sizeof stats;
    complaints.expect(gyreGradGetStats(trainer.grad, &stats) == gyreSuccess,
                      gyreGradGetLastError());
    complaints.expect(stats.steps == 3 && stats.buckets == 2, "steps, buckets");
    const std::uint64_t elements = 3008 + 704 + 16 + 64 + 16;  // each from a multiple of 16
    complaints.expect(stats.wireBytes == 3 * 4 * elements, std::to_string(stats.wireBytes));
    complaints.expect(
        stats.communicationSeconds > 0 && stats.exposedSeconds > 0 && stats.computeSeconds > 0,
        "seconds");
  });
}

}  // namespace gradsync_test
