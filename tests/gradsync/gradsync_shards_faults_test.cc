// gradsync.h's shards when something goes wrong: a failure on one rank is an error on all, and
// nobody changes anything.
#include "tests/support/catch.h"
#include "tests/support/gradsync/sharded_model.h"

#include <atomic>
#include <chrono>
#include <dlfcn.h>
#include <limits>
#include <string>
#include <thread>
#include <utility>

namespace gradsync_shards_faults_test {

using namespace gyre::tests;

namespace {

// While set, this thread's calls differ from those of its peers. So they fail on all of them, and
// nobody leaves.
thread_local bool scatters_maxima = false;
thread_local bool reduces_maxima = false;  // on streams
thread_local bool gathers_half = false;    // on streams
// That this thread's last reduce-scatter was on.
thread_local gyreStream_t reductions = nullptr;

template <typename Call>
Call* real(Call&, const char* name) {
  return reinterpret_cast<Call*>(dlsym(RTLD_NEXT, name));
}

template <typename Condition>
bool holds_soon(const Condition& is) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!is() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return is();
}

}  // namespace

extern "C" gyreResult_t gyreAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                      gyreDataType_t datatype, gyreComm_t comm,
                                      gyreStream_t stream) {
  const bool half = gathers_half && stream != nullptr;
  return real(gyreAllGather, "gyreAllGather")(sendbuff, recvbuff, half ? sendcount / 2 : sendcount,
                                              datatype, comm, stream);
}

extern "C" gyreResult_t gyreReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                          gyreDataType_t datatype, gyreRedOp_t op, gyreComm_t comm,
                                          gyreStream_t stream) {
  reductions = stream;
  return real(gyreReduceScatter, "gyreReduceScatter")(sendbuff, recvbuff, recvcount, datatype,
                                                      scatters_maxima ? gyreMax : op, comm, stream);
}

extern "C" gyreResult_t gyreAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                      gyreDataType_t datatype, gyreRedOp_t op, gyreComm_t comm,
                                      gyreStream_t stream) {
  return real(gyreAllReduce, "gyreAllReduce")(sendbuff, recvbuff, count, datatype,
                                              reduces_maxima && stream != nullptr ? gyreMax : op,
                                              comm, stream);
}

TEST_CASE("a gradient that a rank of a sharded model never delivers is an error of all",
          "[gradsync]") {
  const int stage = GENERATE(1, 2, 3);
  on_ranks(3, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    ShardedModel model(comm, config_of(stage));
    const gyreGradStep_t step = quick_step();
    const Values before = model.parameters();
    complaints.expect(before.size() == shapes.size(), gyreGradGetLastError());
    model.pass(0, [&](std::size_t tensor, std::vector<float>&) {
      return rank != 1 || (tensor != 1 && tensor != 2);
    });
    complaints.expect(gyreGradShardsStep(model.shards, &step, nullptr) == gyreMismatch,
                      "no mismatch");
    complaints.expect(mentions(gyreGradGetLastError(),
                               "rank 1 never delivered the gradient of "
                               "tensor 1 'embedding.bias'"),
                      gyreGradGetLastError());
    complaints.expect(model.parameters() == before, "another parameter");
    model.pass(0);
    complaints.expect(gyreGradShardsStep(model.shards, &step, nullptr) == gyreSuccess,
                      gyreGradGetLastError());
  });
}

TEST_CASE("wrong calls on a sharded model are refused, and say why", "[gradsync]") {
  on_ranks(2, [](int, gyreComm_t comm, Complaints& complaints) {
    const auto refused = [&](gyreResult_t result, gyreResult_t expected, const char* says) {
      complaints.expect(result == expected && mentions(gyreGradGetLastError(), says),
                        std::string(says) + ": " + gyreGradGetLastError());
    };
    gyreGradShards_t shards = nullptr;
    const auto create = [&](std::vector<gyreGradShardTensor_t> tensors, auto config) {
      return gyreGradShardsCreate(&shards, comm, tensors.data(), tensors.size(), &config);
    };
    const gyreGradShardTensor_t x = {"x", 5, gyreFloat, 0};
    refused(create({x}, config_of(4)), gyreInvalidArgument, "config.stage = 4");
    refused(create({x}, config_of(1, 3)), gyreInvalidArgument, "does not divide the 2 ranks");
    refused(create({x, {"y", 5, gyreFloat, 2}}, config_of(1)), gyreInvalidArgument, "up to 2");
    refused(create({x, {"y", 5, gyreFloat, 2}, {"z", 5, gyreFloat, 2}}, config_of(1)),
            gyreInvalidArgument, "unit 1 has no tensor");
    refused(create({x, {"y", 5, gyreHalf, 0}}, config_of(1)), gyreInvalidArgument,
            "all tensors of a unit have one type");
    refused(create({{"x", 5, gyreInt, 0}}, config_of(1)), gyreInvalidArgument, "is int32");
    gyreGradShardsConfig_t failing = config_of(3);
    failing.initialize = [](void*, std::size_t tensor, void*) { return tensor == 3 ? 1 : 0; };
    ShardedModel failed(comm, failing);
    refused(failed.created, gyreRemoteError, "failed on rank 0 at tensor 3 'head.weight'");
    ShardedModel model(comm, config_of(3));
    void* place = nullptr;
    refused(gyreGradShardsParameter(model.shards, 0, &place), gyreInvalidUsage, "is not gathered");
    refused(gyreGradShardsReady(model.shards, 0), gyreInvalidUsage, "never asked for");
    refused(gyreGradShardsGather(model.shards, 3), gyreInvalidArgument, "unit 3");
    refused(gyreGradShardsGradient(model.shards, 5, &place), gyreInvalidArgument, "tensor 5");
    gyreGradStep_t step = quick_step();
    step.beta1 = 1;
    refused(gyreGradShardsStep(model.shards, &step, nullptr), gyreInvalidArgument, "beta1 = 1");
    gyreGradShardsConfig_t sgd = config_of(3);
    sgd.optimizer = gyreGradSgd;
    ShardedModel plain(comm, sgd);
    step = quick_step();
    step.momentum = 0.9F;
    refused(gyreGradShardsStep(plain.shards, &step, nullptr), gyreInvalidArgument,
            "no memory for it");
    step = quick_step();
    step.inverseScale = std::numeric_limits<float>::infinity();
    refused(gyreGradShardsStep(model.shards, &step, nullptr), gyreInvalidArgument, "inverseScale");
    std::size_t count = 1;
    gyreGradPiece_t piece;
    refused(gyreGradShardsPieces(model.shards, &piece, &count), gyreInvalidArgument, "do not fit");
  });
}

TEST_CASE("units gathered in another order are found out before anything is changed",
          "[gradsync]") {
  const std::size_t last = GENERATE(2U, 3U);  // 3: 0, 2, 1
  on_ranks(3, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    const gyreGradShardTensor_t tensors[] = {
        {"a", 256, gyreFloat, 0}, {"b", 256, gyreFloat, 1}, {"c", 256, gyreFloat, 2}};
    const gyreGradShardsConfig_t config = config_of(3);
    gyreGradShards_t shards = nullptr;
    complaints.expect(gyreGradShardsCreate(&shards, comm, tensors, 3, &config) == gyreSuccess,
                      gyreGradGetLastError());
    for (int round = 0; round < 2; ++round) {
      for (std::size_t unit = 0; unit < 3; ++unit)
        gyreGradShardsGather(shards, rank == 2 && round == 0 ? (last - unit) % 3 : unit);
      for (std::size_t tensor = 3; tensor-- > 0;) {
        void* gradient = nullptr;
        gyreGradShardsGradient(shards, tensor, &gradient);
        gyreGradShardsReady(shards, tensor);
      }
      const gyreGradStep_t step = quick_step();
      const gyreResult_t result = gyreGradShardsStep(shards, &step, nullptr);
      complaints.expect(result == (round == 0 ? gyreMismatch : gyreSuccess),
                        gyreGradGetLastError());
      complaints.expect(
          round == 1 || mentions(gyreGradGetLastError(), "rank 2 gathered other units"),
          gyreGradGetLastError());
    }
    complaints.expect(gyreGradShardsDestroy(shards) == gyreSuccess, gyreGradGetLastError());
  });
}

TEST_CASE("a rank that does not end its step of a sharded model is named", "[gradsync]") {
  on_ranks(3, [](int rank, gyreComm_t comm, Complaints& complaints) {
    gyreGradShardsConfig_t config = config_of(2);
    config.timeoutMs = 1000;
    ShardedModel model(comm, config);
    const gyreGradStep_t step = quick_step();
    complaints.expect(model.pass(0) == gyreSuccess, gyreGradGetLastError());
    if (rank == 1) return std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    complaints.expect(gyreGradShardsStep(model.shards, &step, nullptr) == gyreTimeout,
                      "no timeout");
    complaints.expect(mentions(gyreGradGetLastError(), "rank 1"), gyreGradGetLastError());
    complaints.expect(gyreGradShardsGather(model.shards, 0) == gyreTimeout, "it goes on");
  });
}

TEST_CASE("no group updates by a mean to which another group could not give its part",
          "[gradsync]") {
  const int stage = GENERATE(1, 2, 3);
  on_ranks(4, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    ShardedModel model(comm, config_of(stage, 2));
    const gyreGradStep_t step = quick_step();
    complaints.expect(model.pass(0) == gyreSuccess, gyreGradGetLastError());
    complaints.expect(gyreGradShardsStep(model.shards, &step, nullptr) == gyreSuccess,
                      gyreGradGetLastError());
    scatters_maxima = rank == 1;
    complaints.expect(model.pass(1) == gyreSuccess, gyreGradGetLastError());
    const gyreResult_t result = gyreGradShardsStep(model.shards, &step, nullptr);
    complaints.expect(result == (rank < 2 ? gyreMismatch : gyreRemoteError),
                      "rank " + std::to_string(rank) + ": " + gyreGradGetLastError());
    complaints.expect(
        rank < 2 || mentions(gyreGradGetLastError(), "rank 0 could not reduce its gradients"),
        gyreGradGetLastError());
    complaints.expect(gyreGradShardsGather(model.shards, 0) == result, "it goes on");
  });
}

TEST_CASE("a reduction that fails between groups is told with its cause", "[gradsync]") {
  on_ranks(4, [](int rank, gyreComm_t comm, Complaints& complaints) {
    ShardedModel model(comm, config_of(2, 2));
    const gyreGradStep_t step = quick_step();
    reduces_maxima = rank == 2;  // with rank 0, which has the same share
    complaints.expect(model.pass(0) == gyreSuccess, gyreGradGetLastError());
    const gyreResult_t result = gyreGradShardsStep(model.shards, &step, nullptr);
    const std::string text = gyreGradGetLastError();
    complaints.expect(result == (rank % 2 == 0 ? gyreMismatch : gyreRemoteError), text);
    complaints.expect(mentions(text, rank % 2 == 0 ? "gyreAllReduce" : "rank 0 could not reduce"),
                      text);
  });
}

TEST_CASE("a sharded model whose reductions have failed waits for no other group", "[gradsync]") {
  std::atomic<int> destroyed{0};
  on_ranks(4, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    ShardedModel model(comm, config_of(1, 2));
    if (rank < 2) {  // the others live, and begin no reduction
      scatters_maxima = rank == 1;
      complaints.expect(model.pass(0) == gyreSuccess, gyreGradGetLastError());
      complaints.expect(holds_soon([] { return gyreStreamQuery(reductions) == gyreMismatch; }),
                        "no mismatch");
      gyreGradShardsDestroy(std::exchange(model.shards, nullptr));
      ++destroyed;
    }
    complaints.expect(holds_soon([&] { return destroyed == 2; }), "it waits");
  });
}

TEST_CASE("a group whose gather has failed lets no other group wait for its deadline",
          "[gradsync]") {
  std::atomic<int> told{0};
  on_ranks(4, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    ShardedModel model(comm, config_of(1, 2));
    const gyreGradStep_t step = quick_step();
    gathers_half = rank == 1;  // in the parameters that the step spreads
    complaints.expect(model.pass(0) == gyreSuccess, gyreGradGetLastError());
    complaints.expect(gyreGradShardsStep(model.shards, &step, nullptr) == gyreSuccess,
                      gyreGradGetLastError());
    if (rank < 2) {
      complaints.expect(gyreGradShardsGather(model.shards, 0) == gyreMismatch, "no mismatch");
      complaints.expect(holds_soon([&] { return told == 2; }), "the others wait");
      return;
    }
    complaints.expect(model.pass(1) == gyreSuccess, gyreGradGetLastError());
    complaints.expect(gyreGradShardsStep(model.shards, &step, nullptr) == gyreRemoteError,
                      gyreGradGetLastError());
    ++told;
  });
}

}  // namespace gradsync_shards_faults_test
