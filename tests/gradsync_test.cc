// gradsync.h's replicas, ranks as threads: gradients come out as the mean on every rank, whatever
// lies where, and what one rank lacks is an error of all that names it.
#include "tests/support/ranks.h"
#include <gyre/gradsync.h>

#include <catch2/catch.hpp>

#include <cstring>
#include <memory>
#include <numeric>

using namespace gyre;
using namespace gyre::tests;

namespace {

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Model {
  // Names, counts; all float32.
  std::vector<std::pair<std::string, std::size_t>> shapes = {{"embedding", 3000},
                                                             {"fc.weight", 701},
                                                             {"fc.bias", 7},
                                                             {"head.weight", 64},
                                                             {"head.bias", 1}};
  bool views = true;
};

// A rank's replica, and the memory of its tensors.
class Trainer {
 public:
  Trainer(gyreComm_t comm, const Model& model, const gyreGradConfig_t& config, float first = 0)
      : views_(model.views) {
    for (const auto& [name, count] : model.shapes) {
      parameters_.emplace_back(count, first);
      gradients_.emplace_back(model.views ? 0 : count, 0.0F);
    }
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      tensors_.push_back({model.shapes[i].first.c_str(), parameters_[i].size(), gyreFloat,
                          parameters_[i].data(), views_ ? nullptr : gradients_[i].data()});
    created_ = gyreGradCreate(&grad, comm, tensors_.data(), tensors_.size(), &config);
  }
  ~Trainer() {
    if (grad != nullptr) gyreGradDestroy(grad);
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  gyreResult_t created() const { return created_; }
  std::size_t size() const { return parameters_.size(); }
  std::size_t count(std::size_t tensor) const { return parameters_[tensor].size(); }
  float* parameter(std::size_t tensor) { return parameters_[tensor].data(); }
  float* gradient(std::size_t tensor) {
    if (!views_) return gradients_[tensor].data();
    void* view = nullptr;
    gyreGradView(grad, tensor, &view);
    return static_cast<float*>(view);
  }
  // Small numbers, exact in every type and sum.
  static float value(int rank, int step, std::size_t tensor, std::size_t i) {
    return static_cast<float>((i * 7 + tensor * 3) % 5 + static_cast<std::size_t>(step)) *
           static_cast<float>(rank + 1);
  }
  void fill(int rank, int step, std::size_t tensor) {
    float* const place = gradient(tensor);
    for (std::size_t i = 0; i < count(tensor); ++i) place[i] = value(rank, step, tensor, i);
  }
  // The backward pass, last tensor first.
  gyreResult_t backward(int rank, int step) {
    for (std::size_t tensor = size(); tensor-- > 0;) {
      fill(rank, step, tensor);
      if (const auto result = gyreGradReady(grad, tensor, nullptr); result != gyreSuccess)
        return result;
    }
    return gyreSuccess;
  }
  // Whether each gradient is `weight` times what rank 0 alone has.
  bool holds(int step, double weight) {
    for (std::size_t tensor = 0; tensor < size(); ++tensor)
      for (std::size_t i = 0; i < count(tensor); ++i)
        if (gradient(tensor)[i] != static_cast<float>(value(0, step, tensor, i) * weight))
          return false;
    return true;
  }

  gyreGrad_t grad = nullptr;

 private:
  const bool views_;
  std::vector<std::vector<float>> parameters_, gradients_;
  std::vector<gyreGradTensor_t> tensors_;
  gyreResult_t created_;
};

gyreGradConfig_t config_of(std::size_t bucket_bytes) {
  gyreGradConfig_t config = GYRE_GRAD_CONFIG_INITIALIZER;
  config.bucketBytes = bucket_bytes;
  config.firstBucketBytes = std::min<std::size_t>(bucket_bytes, 256);
  config.timeoutMs = 20000;
  return config;
}

// 1 + 2 + ... + n, of n: the mean of value() over ranks is this times rank 0's.
double mean_weight(int n) { return (n + 1) / 2.0; }

}  // namespace

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

TEST_CASE("parameters that differ are named, and arrays broadcast from any rank", "[gradsync]") {
  on_ranks(3, [](int rank, gyreComm_t comm, Complaints& complaints) {
    Trainer trainer(comm, {}, config_of(4096), static_cast<float>(rank));
    complaints.expect(trainer.parameter(0)[2999] == 0, "rank 0's parameters");
    complaints.expect(gyreGradCompare(trainer.grad) == gyreSuccess, gyreGradGetLastError());
    if (rank == 2) trainer.parameter(1)[700] = 1;
    complaints.expect(gyreGradCompare(trainer.grad) == gyreMismatch, "no mismatch");
    complaints.expect(mentions(gyreGradGetLastError(), "'fc.weight' is not on rank 2"),
                      gyreGradGetLastError());
    std::vector<float> statistics(10, static_cast<float>(rank));
    const gyreGradTensor_t array = {"statistics", 10, gyreFloat, statistics.data(), nullptr};
    complaints.expect(gyreGradBroadcast(trainer.grad, &array, 1, 1) == gyreSuccess,
                      gyreGradGetLastError());
    complaints.expect(statistics == std::vector<float>(10, 1.0F), "rank 1's array");
    complaints.expect(gyreGradBroadcast(trainer.grad, &array, 1, 3) == gyreInvalidArgument, "root");
  });
}

namespace {

// Sums instead of averaging, and halves afterwards.
struct Halving {
  int begun = 0, finished = 0;
  bool fails = false;
  static gyreResult_t begin(void* user, const gyreGradBucket_t* bucket, gyreComm_t comm,
                            gyreStream_t stream) {
    auto& self = *static_cast<Halving*>(user);
    if (self.fails && bucket->index == 1) return gyreSystemError;
    ++self.begun;
    return gyreAllReduce(bucket->data, bucket->data, bucket->count, bucket->datatype, gyreSum, comm,
                         stream);
  }
  static gyreResult_t finish(void* user, const gyreGradBucket_t* bucket) {
    ++static_cast<Halving*>(user)->finished;
    for (std::size_t i = 0; i < bucket->count; ++i) static_cast<float*>(bucket->data)[i] *= 0.5F;
    return gyreSuccess;
  }
};

}  // namespace

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
