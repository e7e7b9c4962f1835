// gradsync.h's replicas when something goes wrong: if one rank lacks something or fails, all ranks
// get an error that names it, and nobody waits long.
#include "tests/support/catch.h"
#include "tests/support/gradsync/grad_trainer.h"

#include <chrono>

namespace gradsync_faults_test {

using namespace gyre::tests;

namespace {

// Reduces over pairs of ranks, and then between pairs if there are several.
struct PairsHook {
  gyreComm_t pair = nullptr, between = nullptr;
  bool differs = false;

  PairsHook(gyreComm_t comm, int rank, int ranks) {
    gyreCommSplit(comm, rank / 2, rank, &pair, nullptr);
    if (ranks > 2) gyreCommSplit(comm, rank % 2, rank, &between, nullptr);
  }
  ~PairsHook() {
    gyreCommDestroy(pair);
    if (between != nullptr) gyreCommDestroy(between);
  }
  PairsHook(const PairsHook&) = delete;
  PairsHook& operator=(const PairsHook&) = delete;

  static gyreResult_t begin(void* user, const gyreGradBucket_t* bucket, gyreComm_t,
                            gyreStream_t stream) {
    const auto& self = *static_cast<PairsHook*>(user);
    const auto reduce = [&](gyreComm_t comm, gyreRedOp_t op) {
      return gyreAllReduce(bucket->data, bucket->data, bucket->count, bucket->datatype, op, comm,
                           stream);
    };
    const gyreResult_t begun = reduce(self.pair, self.differs ? gyreMax : gyreAvg);
    return begun == gyreSuccess && self.between != nullptr ? reduce(self.between, gyreAvg) : begun;
  }
};

}  // namespace

TEST_CASE("what ranks give is compared, and the first difference named", "[gradsync]") {
  struct Row {
    const char* what;
    void (*change)(Model&, gyreGradConfig_t&);
    const char* says;
  };
  const auto row = GENERATE(
      Row{"a count", [](Model& model, gyreGradConfig_t&) { model.shapes[1].second = 700; },
          "tensor 1 is 'fc.weight' of 701 float on rank 0 and 'fc.weight' of 700 float on rank 2"},
      Row{"a name", [](Model& model, gyreGradConfig_t&) { model.shapes[4].first = "tail"; },
          "tensor 4 is 'head.bias' of 1 float on rank 0 and 'tail' of 1 float on rank 2"},
      Row{"one fewer", [](Model& model, gyreGradConfig_t&) { model.shapes.pop_back(); },
          "tensor 4 is 'head.bias' of 1 float on rank 0 and none on rank 2"},
      Row{"one more",
          [](Model& model, gyreGradConfig_t&) {
            model.shapes.push_back({"more", 2});
          },
          "tensor 5 is none on rank 0 and 'more' of 2 float on rank 2"},
      Row{"buckets", [](Model&, gyreGradConfig_t& config) { config.bucketBytes = 77; },
          "config.bucketBytes is 4096 on rank 0 and 77 on rank 2"},
      Row{"the wire", [](Model&, gyreGradConfig_t& config) { config.wireType = gyreFloat16; },
          "config.wireType is -1 on rank 0 and 6 on rank 2"});
  CAPTURE(row.what);
  on_ranks(3, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    Model model;
    gyreGradConfig_t config = config_of(4096);
    if (rank == 2) row.change(model, config);
    Trainer trainer(comm, model, config);
    complaints.expect(trainer.created() == gyreMismatch, "no mismatch");
    complaints.expect(mentions(gyreGradGetLastError(), row.says), gyreGradGetLastError());
  });
}

TEST_CASE("a gradient that a rank never delivers is an error of all ranks, for one step",
          "[gradsync]") {
  on_ranks(3, [](int rank, gyreComm_t comm, Complaints& complaints) {
    Trainer trainer(comm, {}, config_of(4096));
    for (int step = 0; step < 3; ++step) {
      for (std::size_t tensor = trainer.size(); tensor-- > 0;) {
        trainer.fill(rank, step, tensor);
        const bool leaves_out = rank == 1 && tensor == 2 && step < 2;
        if (!leaves_out) gyreGradReady(trainer.grad, tensor, nullptr);
      }
      const gyreResult_t result = gyreGradWait(trainer.grad);
      complaints.expect(result == (step < 2 ? gyreMismatch : gyreSuccess), gyreGradGetLastError());
      if (step < 2)
        complaints.expect(mentions(gyreGradGetLastError(),
                                   "rank 1 never delivered the gradient of "
                                   "tensor 2 'fc.bias'"),
                          gyreGradGetLastError());
      else
        complaints.expect(trainer.holds(step, mean_weight(3)), "not the mean");
    }
  });
}

TEST_CASE("a server that is no rank, and parameters of no server, are refused", "[gradsync]") {
  on_ranks(2, [](int, gyreComm_t comm, Complaints& complaints) {
    gyreGradConfig_t config = config_of(4096);
    config.server = 2;
    Trainer none(comm, {}, config);
    complaints.expect(none.created() == gyreInvalidArgument, "server 2");
    complaints.expect(mentions(gyreGradGetLastError(), "config.server = 2 is not from -1 to 1"),
                      gyreGradGetLastError());
    Trainer trainer(comm, {}, config_of(4096));
    complaints.expect(gyreGradReturn(trainer.grad) == gyreInvalidUsage, "no server");
  });
}

TEST_CASE("a hook that fails on one rank is an error of all, which names it", "[gradsync]") {
  on_ranks(3, [](int rank, gyreComm_t comm, Complaints& complaints) {
    Trainer trainer(comm, {}, config_of(4096));
    Halving halving;
    halving.fails = rank == 1;
    const gyreGradHook_t hook = {&halving, Halving::begin, Halving::finish};
    gyreGradSetHook(trainer.grad, &hook);
    trainer.backward(rank, 0);
    complaints.expect(gyreGradWait(trainer.grad) == (rank == 1 ? gyreSystemError : gyreRemoteError),
                      gyreGradGetLastError());
    complaints.expect(mentions(gyreGradGetLastError(), rank == 1 ? "in the hook" : "rank 1"),
                      gyreGradGetLastError());
    complaints.expect(trainer.backward(rank, 1) != gyreSuccess, "a broken replica goes on");
    complaints.expect(mentions(gyreGradGetLastError(), "an earlier call failed"),
                      gyreGradGetLastError());
  });
}

TEST_CASE("a bucket that only the end of a step begins may fail too", "[gradsync]") {
  on_ranks(3, [](int rank, gyreComm_t comm, Complaints& complaints) {
    gyreGradConfig_t config = config_of(4096);
    config.findUnused = 1;
    Trainer trainer(comm, {}, config);
    Halving halving;
    halving.fails = rank == 1;
    const gyreGradHook_t hook = {&halving, Halving::begin, Halving::finish};
    for (int step = 0; step < 2; ++step) {  // the first without the hook
      if (step == 1) gyreGradSetHook(trainer.grad, &hook);
      gyreGradReady(trainer.grad, 4, nullptr);
      const gyreResult_t result = gyreGradWait(trainer.grad);
      const gyreResult_t expected = rank == 1 ? gyreSystemError : gyreRemoteError;
      complaints.expect(result == (step == 0 ? gyreSuccess : expected), gyreGradGetLastError());
    }
  });
}

TEST_CASE("a failure on a communicator of a hook's own is told with its cause", "[gradsync]") {
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    PairsHook pairs(comm, rank, 2);
    Trainer trainer(comm, {}, config_of(4096));
    const gyreGradHook_t hook = {&pairs, PairsHook::begin, nullptr};
    gyreGradSetHook(trainer.grad, &hook);
    pairs.differs = rank == 1;
    trainer.backward(rank, 0);
    complaints.expect(gyreGradWait(trainer.grad) == gyreMismatch, "no mismatch");
    complaints.expect(mentions(gyreGradGetLastError(), "gyreAllReduce"), gyreGradGetLastError());
  });
}

TEST_CASE("what a hook failed to reduce among some ranks is an error of all", "[gradsync]") {
  on_ranks(4, [](int rank, gyreComm_t comm, Complaints& complaints) {
    PairsHook pairs(comm, rank, 4);
    Trainer trainer(comm, {}, config_of(4096));
    const gyreGradHook_t hook = {&pairs, PairsHook::begin, nullptr};
    gyreGradSetHook(trainer.grad, &hook);
    trainer.backward(rank, 0);
    complaints.expect(gyreGradWait(trainer.grad) == gyreSuccess, gyreGradGetLastError());
    complaints.expect(trainer.holds(0, mean_weight(4)), "not the mean");
    pairs.differs = rank == 1;
    trainer.backward(rank, 1);
    complaints.expect(gyreGradWait(trainer.grad) == (rank < 2 ? gyreMismatch : gyreRemoteError),
                      gyreGradGetLastError());
    complaints.expect(
        rank < 2 || mentions(gyreGradGetLastError(), "rank 0 could not reduce its buckets"),
        gyreGradGetLastError());
  });
}

TEST_CASE("a hook that cannot finish on one rank is an error of all", "[gradsync]") {
  on_ranks(3, [](int rank, gyreComm_t comm, Complaints& complaints) {
    Trainer trainer(comm, {}, config_of(4096));
    gyreGradHook_t hook = {nullptr, Halving::begin, nullptr};
    Halving halving;
    hook.user = &halving;
    if (rank == 1) hook.finish = [](void*, const gyreGradBucket_t*) { return gyreSystemError; };
    gyreGradSetHook(trainer.grad, &hook);
    trainer.backward(rank, 0);
    complaints.expect(gyreGradWait(trainer.grad) == (rank == 1 ? gyreSystemError : gyreRemoteError),
                      gyreGradGetLastError());
    complaints.expect(mentions(gyreGradGetLastError(), rank == 1 ? "in the hook" : "rank 1"),
                      gyreGradGetLastError());
  });
}

TEST_CASE("a hook cannot call its own replica", "[gradsync]") {
  struct Curious {
    gyreGrad_t grad = nullptr;
    gyreResult_t answer = gyreSuccess;
  };
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    Trainer trainer(comm, {}, config_of(4096));
    Curious curious{trainer.grad};
    const gyreGradHook_t hook = {
        &curious,
        [](void* user, const gyreGradBucket_t* bucket, gyreComm_t own, gyreStream_t stream) {
          gyreGradStats_t stats{};
          stats.size = sizeof stats;
          auto& self = *static_cast<Curious*>(user);
          self.answer = gyreGradGetStats(self.grad, &stats);
          return gyreAllReduce(bucket->data, bucket->data, bucket->count, bucket->datatype, gyreAvg,
                               own, stream);
        },
        nullptr};
    gyreGradSetHook(trainer.grad, &hook);
    trainer.backward(rank, 0);
    complaints.expect(gyreGradWait(trainer.grad) == gyreSuccess, gyreGradGetLastError());
    complaints.expect(curious.answer == gyreInvalidUsage, "no refusal");
    complaints.expect(trainer.holds(0, 1.5), "not the mean");
  });
}

TEST_CASE("a rank that does not end its step is named when the deadline has passed", "[gradsync]") {
  on_ranks(3, [](int rank, gyreComm_t comm, Complaints& complaints) {
    gyreGradConfig_t config = config_of(4096);
    config.timeoutMs = 1000;
    Trainer trainer(comm, {}, config);
    if (rank == 2) {  // stuck after its first bucket
      gyreGradReady(trainer.grad, 4, nullptr);
      gyreGradReady(trainer.grad, 3, nullptr);
      return std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    }
    trainer.backward(rank, 0);
    complaints.expect(gyreGradWait(trainer.grad) == gyreTimeout, "no timeout");
    const std::string text = gyreGradGetLastError();
    complaints.expect(mentions(text, "rank 2") && mentions(text, "'fc.bias'"), text);
    complaints.expect(!mentions(text, "'head.bias'"), text);
  });
}

TEST_CASE("a replica destroyed within a step leaves nobody waiting", "[gradsync]") {
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    Trainer trainer(comm, {}, config_of(4096));
    if (rank == 1) {
      for (const std::size_t tensor : {4U, 3U, 2U}) gyreGradReady(trainer.grad, tensor, nullptr);
      return;
    }
    trainer.backward(rank, 0);
    const gyreResult_t result = gyreGradWait(trainer.grad);
    complaints.expect(result == gyreRemoteError || result == gyreMismatch, "no error, or late");
    complaints.expect(mentions(gyreGradGetLastError(), "rank 1"), gyreGradGetLastError());
  });
}

TEST_CASE("wrong calls are refused, and say why", "[gradsync]") {
  on_ranks(1, [](int, gyreComm_t comm, Complaints& complaints) {
    const auto refused = [&](gyreResult_t result, gyreResult_t expected, const char* says) {
      complaints.expect(result == expected && mentions(gyreGradGetLastError(), says),
                        std::string(says) + ": " + gyreGradGetLastError());
    };
    float number = 0;
    gyreGradTensor_t tensor = {"x", 1, gyreFloat, nullptr, &number};
    gyreGrad_t grad = nullptr;
    refused(gyreGradCreate(nullptr, comm, &tensor, 1, nullptr), gyreInvalidArgument,
            "grad is NULL");
    refused(gyreGradCreate(&grad, comm, nullptr, 1, nullptr), gyreInvalidArgument, "at least one");
    refused(gyreGradCreate(&grad, nullptr, &tensor, 1, nullptr), gyreInvalidArgument, "comm");
    gyreGradTensor_t wrong = tensor;
    wrong.count = 0;
    refused(gyreGradCreate(&grad, comm, &wrong, 1, nullptr), gyreInvalidArgument, "count is 0");
    wrong.count = ~std::size_t{0};
    refused(gyreGradCreate(&grad, comm, &wrong, 1, nullptr), gyreInvalidArgument, "'x'");
    gyreGradConfig_t config = GYRE_GRAD_CONFIG_INITIALIZER;
    config.wireType = gyreFloat64;
    refused(gyreGradCreate(&grad, comm, &tensor, 1, &config), gyreInvalidArgument, "wireType");
    config = GYRE_GRAD_CONFIG_INITIALIZER;
    config.op = gyreMax;
    refused(gyreGradCreate(&grad, comm, &tensor, 1, &config), gyreInvalidArgument, "config.op");
    config = GYRE_GRAD_CONFIG_INITIALIZER;
    config.magic = 7;
    refused(gyreGradCreate(&grad, comm, &tensor, 1, &config), gyreInvalidArgument, "magic");
    complaints.expect(gyreGradCreate(&grad, comm, &tensor, 1, nullptr) == gyreSuccess,
                      gyreGradGetLastError());
    refused(gyreGradReady(grad, 1, nullptr), gyreInvalidArgument, "tensor 1 is not from 0 to 0");
    void* view = nullptr;
    refused(gyreGradView(grad, 0, &view), gyreInvalidUsage, "in the caller's memory");
    complaints.expect(gyreGradReady(grad, 0, nullptr) == gyreSuccess, gyreGradGetLastError());
    refused(gyreGradReady(grad, 0, nullptr), gyreInvalidUsage, "a second time");
    refused(gyreGradSetSync(grad, 0), gyreInvalidUsage, "a step has begun");
    refused(gyreGradCompare(grad), gyreInvalidUsage, "a step has begun");
    int used = 0;
    refused(gyreGradWasUsed(grad, 0, &used), gyreInvalidUsage, "findUnused");
    complaints.expect(gyreGradWait(grad) == gyreSuccess, gyreGradGetLastError());
    complaints.expect(gyreGradDestroy(grad) == gyreSuccess, gyreGradGetLastError());
    refused(gyreGradDestroy(grad), gyreInvalidArgument, "destroyed");
  });
}

}  // namespace gradsync_faults_test
