// gradsync.h's shards, ranks as threads: every way of sharding trains like one rank.
#include "kernels/cpu/elementwise.h"
#include "tests/support/catch.h"
#include "tests/support/gradsync/sharded_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace gradsync_shards_test {

using namespace gyre;
using namespace gyre::tests;

namespace {

gyreConfig_t reproducible() {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.device = GYRE_DEVICE_HOST;
  config.reproducible = 1;
  return config;
}

struct Run {
  int n = 1, stage = 1, factor = 0, steps = 4;
  gyreDataType_t type = gyreFloat;
  gyreGradOptimizer_t optimizer = gyreGradAdamW;
  float max_norm = 0;
};

struct Outcome {
  Values parameters;
  std::vector<double> norms;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// Trains, checks that all ranks have one outcome, and gives it.
Outcome train(const Run& run) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(run.n));
  gyreConfig_t comm_config = reproducible();
  on_ranks(
      run.n,
      [&](int rank, gyreComm_t comm, Complaints& complaints) {
        gyreGradShardsConfig_t config = config_of(run.stage, run.factor);
        config.optimizer = run.optimizer;
        config.momentum = run.optimizer == gyreGradSgd;
        ShardedModel model(comm, config, run.type);
        complaints.expect(model.created == gyreSuccess, gyreGradGetLastError());
        gyreGradStep_t step = quick_step();
        step.momentum = 0.9F;
        step.maxNorm = run.max_norm;
        Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
        for (int i = 0; i < run.steps; ++i) {
          gyreGradStepResult_t result{};
          result.size = sizeof result;
          complaints.expect(model.pass(i) == gyreSuccess, gyreGradGetLastError());
          complaints.expect(gyreGradShardsStep(model.shards, &step, &result) == gyreSuccess,
                            gyreGradGetLastError());
          complaints.expect(result.step == static_cast<std::uint64_t>(i + 1), "steps");
          outcome.norms.push_back(result.norm);
        }
        outcome.parameters = model.parameters();
      },
      &comm_config);
  REQUIRE(outcomes[0].parameters.size() == shapes.size());
  for (const Outcome& outcome : outcomes) CHECK(outcome == outcomes[0]);
  return outcomes[0];
}

void check_close(const Values& values, const Values& expected, double tolerance) {
  REQUIRE(values.size() == expected.size());
  REQUIRE(values.size() == shapes.size());
  int wrong = 0;  // NaN is
  for (std::size_t tensor = 0; tensor < values.size(); ++tensor) {
    REQUIRE(values[tensor].size() == expected[tensor].size());
    for (std::size_t i = 0; i < values[tensor].size(); ++i)
      wrong +=
          !(std::fabs(static_cast<double>(values[tensor][i]) - expected[tensor][i]) <= tolerance);
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("every stage and factor trains as one rank does", "[gradsync]") {
  const gyreGradOptimizer_t optimizer = GENERATE(gyreGradAdamW, gyreGradSgd);
  const float max_norm = GENERATE(0.0F, 2.0F);
  const Outcome one = train({.optimizer = optimizer, .max_norm = max_norm});
  REQUIRE(one.parameters.size() == shapes.size());
  CHECK(one.parameters[2][0] != first_value(2, 0));
  for (const auto& [n, factor] : {std::pair(2, 2), {4, 4}, {4, 2}, {4, 1}, {3, 3}})
    for (int stage = 1; stage <= 3; ++stage) {
      CAPTURE(n, factor, stage);
      const Outcome outcome = train(
          {.n = n, .stage = stage, .factor = factor, .optimizer = optimizer, .max_norm = max_norm});
      check_close(outcome.parameters, one.parameters, 2e-6);
      for (std::size_t i = 0; i < one.norms.size(); ++i)
        CHECK(outcome.norms[i] == Approx(one.norms[i]).epsilon(1e-6));
    }
}

TEST_CASE("all stages give the same bits, and those of replicas", "[gradsync]") {
  const gyreDataType_t type = GENERATE(gyreFloat, gyreBfloat16);
  const Outcome expected = train({.n = 4, .stage = 1, .factor = 1, .type = type, .max_norm = 2});
  for (int stage = 1; stage <= 3; ++stage)
    for (const int factor : {1, 4})
      CHECK(train({.n = 4, .stage = stage, .factor = factor, .type = type, .max_norm = 2}) ==
            expected);
  if (type != gyreFloat) return;
  // Replicas with the same kernel for the step.
  gyreConfig_t comm_config = reproducible();
  const Outcome unclipped = train({.n = 4, .stage = 3});
  on_ranks(
      4,
      [&](int rank, gyreComm_t comm, Complaints& complaints) {
        Values parameters, gradients, first, second;
        std::vector<gyreGradTensor_t> tensors;
        for (std::size_t tensor = 0; tensor < shapes.size(); ++tensor)
          for (Values* values : {&parameters, &gradients, &first, &second})
            values->emplace_back(shapes[tensor].count, 0.0F);
        for (std::size_t tensor = 0; tensor < shapes.size(); ++tensor) {
          initialize(nullptr, tensor, parameters[tensor].data());
          tensors.push_back({shapes[tensor].name, shapes[tensor].count, gyreFloat,
                             parameters[tensor].data(), gradients[tensor].data()});
        }
        gyreGrad_t grad = nullptr;
        complaints.expect(
            gyreGradCreate(&grad, comm, tensors.data(), tensors.size(), nullptr) == gyreSuccess,
            gyreGradGetLastError());
        for (int step = 0; step < 4; ++step) {
          for (std::size_t tensor = shapes.size(); tensor-- > 0;) {
            for (std::size_t i = 0; i < shapes[tensor].count; ++i)
              gradients[tensor][i] = gradient_of(parameters[tensor][i], rank, 4, step, tensor, i);
            gyreGradReady(grad, tensor, nullptr);
          }
          complaints.expect(gyreGradWait(grad) == gyreSuccess, gyreGradGetLastError());
          for (std::size_t tensor = 0; tensor < shapes.size(); ++tensor)
            kernels::step(kernels::AdamW{.learning_rate = 0.05F,
                                         .step = static_cast<std::uint64_t>(step + 1)},
                          {.gradient = gradients[tensor].data(),
                           .parameter = parameters[tensor].data(),
                           .first = first[tensor].data(),
                           .second = second[tensor].data(),
                           .count = shapes[tensor].count});
        }
        complaints.expect(parameters == unclipped.parameters, "other bits than replicas'");
        gyreGradDestroy(grad);
      },
      &comm_config);
}

TEST_CASE("16-bit parameters are their float32 copies, rounded", "[gradsync]") {
  on_ranks(2, [](int, gyreComm_t comm, Complaints& complaints) {
    ShardedModel model(comm, config_of(2), gyreBfloat16);
    const gyreGradStep_t step = quick_step();
    for (int i = 0; i < 3; ++i) {
      complaints.expect(model.pass(i) == gyreSuccess, gyreGradGetLastError());
      complaints.expect(gyreGradShardsStep(model.shards, &step, nullptr) == gyreSuccess,
                        gyreGradGetLastError());
    }
    const Values parameters = model.parameters();
    std::size_t count = 0;
    gyreGradShardsPieces(model.shards, nullptr, &count);
    std::vector<gyreGradPiece_t> pieces(count);
    complaints.expect(gyreGradShardsPieces(model.shards, pieces.data(), &count) == gyreSuccess,
                      gyreGradGetLastError());
    bool rounds = false;
    for (const gyreGradPiece_t& piece : pieces) {
      std::vector<std::uint16_t> narrow(piece.count);
      std::vector<float> wide(piece.count);
      kernels::convert({.source = piece.parameter,
                        .to = ElementType::bfloat16,
                        .target = narrow.data(),
                        .count = piece.count});
      kernels::convert({.from = ElementType::bfloat16,
                        .source = narrow.data(),
                        .target = wide.data(),
                        .count = piece.count});
      complaints.expect(
          std::equal(wide.begin(), wide.end(),
                     parameters[piece.tensor].begin() + static_cast<std::ptrdiff_t>(piece.first)),
          "not the rounded copy");
      rounds |= !std::equal(wide.begin(), wide.end(), piece.parameter);
    }
    complaints.expect(rounds, "the copies have no more bits");
  });
}

TEST_CASE("an overflow on one rank is every rank's, and nobody changes anything", "[gradsync]") {
  const int stage = GENERATE(1, 2, 3);
  const int factor = GENERATE(0, 2);
  const float bad =
      GENERATE(std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN());
  on_ranks(4, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    ShardedModel model(comm, config_of(stage, factor));
    const gyreGradStep_t step = quick_step();
    const Values before = model.parameters();
    complaints.expect(before.size() == shapes.size(), gyreGradGetLastError());
    gyreGradStepResult_t result{};
    result.size = sizeof result;
    model.pass(0, [&](std::size_t tensor, std::vector<float>& values) {
      if (rank == 3 && tensor == 2) values[999] = bad;
      return true;
    });
    complaints.expect(gyreGradShardsStep(model.shards, &step, &result) == gyreSuccess,
                      gyreGradGetLastError());
    complaints.expect(result.overflow == 1 && result.step == 0, "no overflow");
    complaints.expect(model.parameters() == before, "another parameter");
    model.pass(1);
    complaints.expect(gyreGradShardsStep(model.shards, &step, &result) == gyreSuccess,
                      gyreGradGetLastError());
    complaints.expect(result.overflow == 0 && result.step == 1, "an overflow again");
    complaints.expect(model.parameters() != before, "no step");
  });
}

TEST_CASE("the loss's scale comes off, and the norm is that of all gradients", "[gradsync]") {
  on_ranks(2, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    ShardedModel scaled(comm, config_of(3)), plain(comm, config_of(3));
    gyreGradStep_t step = quick_step();
    gyreGradStepResult_t with_scale{}, without{};
    with_scale.size = without.size = sizeof without;
    double squares = 0;
    plain.pass(0, [&](std::size_t tensor, std::vector<float>& values) {
      for (std::size_t i = 0; i < values.size(); ++i)
        squares += std::pow(
            static_cast<double>(gradient_of(first_value(tensor, i), 0, 1, 0, tensor, i)), 2);
      return true;
    });
    gyreGradShardsStep(plain.shards, &step, &without);
    scaled.pass(0, [&](std::size_t, std::vector<float>& values) {
      for (float& value : values) value *= 1024;
      return true;
    });
    step.inverseScale = 1.0F / 1024;
    gyreGradShardsStep(scaled.shards, &step, &with_scale);
    complaints.expect(with_scale.norm == without.norm, "another norm");
    complaints.expect(std::fabs(without.norm - std::sqrt(squares)) < 1e-5, "not the norm");
    complaints.expect(scaled.parameters() == plain.parameters(), "other parameters");
    static_cast<void>(rank);
  });
}

namespace {

// What ranks wrote, by tensor and element: parameter and states.
struct Checkpoint {
  std::vector<std::vector<std::array<float, 3>>> elements;
};

template <typename Each>
void each_element(gyreGradShards_t shards, const Each& each) {
  std::size_t count = 0;
  gyreGradShardsPieces(shards, nullptr, &count);
  std::vector<gyreGradPiece_t> pieces(count);
  gyreGradShardsPieces(shards, pieces.data(), &count);
  for (const gyreGradPiece_t& piece : pieces)
    for (std::size_t i = 0; i < piece.count; ++i)
      each(piece.tensor, piece.first + i,
           std::array{piece.parameter + i, piece.state1 + i, piece.state2 + i});
}

}  // namespace

TEST_CASE("a checkpoint of 4 ranks goes on at 2 and at 3, in any stage", "[gradsync]") {
  Checkpoint checkpoint;
  for (const Shape& shape : shapes) checkpoint.elements.emplace_back(shape.count);
  Outcome whole;
  on_ranks(4, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    ShardedModel model(comm, config_of(3));
    const gyreGradStep_t step = quick_step();
    for (int i = 0; i < 3; ++i) {
      model.pass(i);
      complaints.expect(gyreGradShardsStep(model.shards, &step, nullptr) == gyreSuccess,
                        gyreGradGetLastError());
    }
    each_element(model.shards, [&](std::size_t tensor, std::size_t i, const auto& places) {
      for (std::size_t which = 0; which < 3; ++which)
        checkpoint.elements[tensor][i][which] = *places[which];
    });
    model.pass(3);
    gyreGradShardsStep(model.shards, &step, nullptr);
    const Values parameters = model.parameters();
    if (rank == 0) whole.parameters = parameters;
  });
  for (const int n : {2, 3})
    for (int stage = 1; stage <= 3; ++stage) {
      CAPTURE(n, stage);
      Outcome resumed;
      on_ranks(n, [&](int rank, gyreComm_t comm, Complaints& complaints) {
        ShardedModel model(comm, config_of(stage));
        each_element(model.shards, [&](std::size_t tensor, std::size_t i, const auto& places) {
          for (std::size_t which = 0; which < 3; ++which)
            *places[which] = checkpoint.elements[tensor][i][which];
        });
        complaints.expect(gyreGradShardsImported(model.shards, 3) == gyreSuccess,
                          gyreGradGetLastError());
        const gyreGradStep_t step = quick_step();
        gyreGradStepResult_t result{};
        result.size = sizeof result;
        model.pass(3);
        complaints.expect(gyreGradShardsStep(model.shards, &step, &result) == gyreSuccess,
                          gyreGradGetLastError());
        complaints.expect(result.step == 4, "steps");
        const Values parameters = model.parameters();
        if (rank == 0) resumed.parameters = parameters;
      });
      check_close(resumed.parameters, whole.parameters, 2e-6);
    }
}

TEST_CASE("an optimizer of the caller's works on the shares", "[gradsync]") {
  on_ranks(2, [](int, gyreComm_t comm, Complaints& complaints) {
    gyreGradShardsConfig_t config = config_of(3);
    config.optimizer = gyreGradOwn;
    ShardedModel own(comm, config), supplied(comm, [] {
      gyreGradShardsConfig_t sgd = config_of(3);
      sgd.optimizer = gyreGradSgd;
      return sgd;
    }());
    gyreGradStep_t step = quick_step();
    complaints.expect(gyreGradShardsStep(own.shards, &step, nullptr) == gyreInvalidArgument,
                      "no function");
    step.weightDecay = 0;
    step.update = [](void*, const gyreGradUpdate_t* update) {
      const auto* gradient = static_cast<const float*>(update->gradient);
      for (std::size_t i = 0; i < update->piece.count; ++i)
        update->piece.parameter[i] -= 0.05F * (update->factor * gradient[i]);
      return update->piece.state1 == nullptr ? gyreSuccess : gyreInternalError;
    };
    for (int i = 0; i < 2; ++i) {
      own.pass(i);
      supplied.pass(i);
      complaints.expect(gyreGradShardsStep(own.shards, &step, nullptr) == gyreSuccess,
                        gyreGradGetLastError());
      complaints.expect(gyreGradShardsStep(supplied.shards, &step, nullptr) == gyreSuccess,
                        gyreGradGetLastError());
    }
    complaints.expect(own.parameters() == supplied.parameters(), "another step");
  });
}

}  // namespace gradsync_shards_test
