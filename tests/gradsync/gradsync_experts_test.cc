// A mixture of experts over a mesh of data x expert: tokens go to their experts' ranks and back,
// and it trains as one rank with all experts and the whole batch does.
#include "tests/support/gradsync/expert_layer.h"

#include <catch2/catch.hpp>

#include <numeric>

using namespace gyre::tests;

namespace {

constexpr int width = 6, hidden = 8, experts = 12, group = 4, groups = 12, steps = 6;
constexpr int tokens = group * groups;
constexpr int step_of_one_expert = 2;  // in it all tokens are alike
constexpr float learning_rate = 0.1F;

float weight(int expert, int which, std::size_t i) {
  return std::sin(static_cast<float>(expert * 31 + which * 17) + static_cast<float>(i) * 5.3F) / 2;
}
float input_of(int step, int token, int i) {
  if (step == step_of_one_expert) token = 0;
  return std::cos(static_cast<float>(step * 11 + token * 7 + i));
}
float target_of(int token, int i) { return std::sin(static_cast<float>(token * 3 + i * 2)); }

void fill(Matrix& matrix, int expert, int which) {
  for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = weight(expert, which, i);
}

// x = W u, then the experts; the loss is the mean over tokens of half the squared distance. W and
// the router are on all ranks, an expert is on one rank of each line along "expert". So the former
// are averaged over both axes, experts over "data".
class Training {
 public:
  Training(gyreMesh_t mesh, const Routing& routing, Complaints& complaints)
      : layer_(line(mesh, "expert"), routing, width, hidden, complaints), complaints_(complaints) {
    int data = 0, data_size = 1;
    gyreMeshPlace(mesh, "data", &data, &data_size);
    gyreMeshPlace(mesh, "expert", &expert_place_, &expert_size_);
    own_tokens_ = tokens / data_size / expert_size_;
    first_token_ = (data * expert_size_ + expert_place_) * own_tokens_;
    fill(embedding_, 0, 2);
    fill(layer_.router, 0, 3);
    for (int i = 0; i < 2 * own_experts(); ++i)
      fill(layer_.experts[static_cast<std::size_t>(i)], first_expert() + i / 2, i % 2);

    const char* const both[] = {"data", "expert"};
    gyreComm_t all = nullptr;
    expect(gyreMeshCommOf(mesh, both, 2, &all));
    const gyreGradTensor_t replicated[] = {tensor("W", embedding_, embedding_gradient_),
                                           tensor("R", layer_.router, layer_.router_gradient)};
    expect(gyreGradCreate(&replicated_, all, replicated, 2, nullptr));
    std::vector<gyreGradTensor_t> own;
    for (std::size_t i = 0; i < layer_.experts.size(); ++i)
      own.push_back(tensor(i % 2 == 0 ? "A" : "B", layer_.experts[i], layer_.expert_gradients[i]));
    expect(gyreGradCreate(&experts_, line(mesh, "data"), own.data(), own.size(), nullptr));
  }
  ~Training() {
    gyreGradDestroy(experts_);
    gyreGradDestroy(replicated_);
  }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  void step(int number) {
    clear_gradients();
    Matrix inputs(static_cast<std::size_t>(own_tokens_ * width));
    for (int token = 0; token < own_tokens_; ++token)
      for (int i = 0; i < width; ++i)
        at(inputs, token, i, width) = input_of(number, first_token_ + token, i);
    const Matrix y = layer_.forward(product(inputs, embedding_, width, width));
    Matrix dy = y;
    for (int token = 0; token < own_tokens_; ++token)
      for (int i = 0; i < width; ++i)
        at(dy, token, i, width) = (at(y, token, i, width) - target_of(first_token_ + token, i)) /
                                  static_cast<float>(own_tokens_);
    const Matrix dx = layer_.backward(dy);
    experts_are_ready();
    add_outer(embedding_gradient_, dx, inputs, width, width);
    for (std::size_t i = 2; i-- > 0;) expect(gyreGradReady(replicated_, i, nullptr));
    expect(gyreGradWait(experts_));
    expect(gyreGradWait(replicated_));
    descend(embedding_, embedding_gradient_);
    descend(layer_.router, layer_.router_gradient);
    for (std::size_t i = 0; i < layer_.experts.size(); ++i)
      descend(layer_.experts[i], layer_.expert_gradients[i]);
  }

  int own_experts() const { return experts / expert_size_; }
  int first_expert() const { return expert_place_ * own_experts(); }
  const ExpertLayer& layer() const { return layer_; }
  const Matrix& embedding() const { return embedding_; }

 private:
  static gyreComm_t line(gyreMesh_t mesh, const char* axis) {
    gyreComm_t comm = nullptr;
    gyreMeshComm(mesh, axis, &comm);
    return comm;
  }
  static gyreGradTensor_t tensor(const char* name, Matrix& parameter, Matrix& gradient) {
    return {name, parameter.size(), gyreFloat, parameter.data(), gradient.data()};
  }
  static void descend(Matrix& parameter, const Matrix& gradient) {
    for (std::size_t i = 0; i < parameter.size(); ++i) parameter[i] -= learning_rate * gradient[i];
  }
  void expect(gyreResult_t result) {
    complaints_.expect(result == gyreSuccess,
                       std::string(gyreGetLastError(nullptr)) + "; " + gyreGradGetLastError());
  }
  void clear_gradients() {
    std::fill(embedding_gradient_.begin(), embedding_gradient_.end(), 0.0F);
    std::fill(layer_.router_gradient.begin(), layer_.router_gradient.end(), 0.0F);
    for (Matrix& one : layer_.expert_gradients) std::fill(one.begin(), one.end(), 0.0F);
  }
  // Each rank's loss is the mean over its own tokens. An expert's gradient is the sum of what the
  // ranks along its axis sent it: their mean is what averaging makes of replicas' gradients. Also
  // those without a token in this step are ready: theirs are zeros.
  void experts_are_ready() {
    for (Matrix& one : layer_.expert_gradients)
      for (float& value : one) value /= static_cast<float>(expert_size_);
    for (std::size_t i = layer_.experts.size(); i-- > 0;)
      expect(gyreGradReady(experts_, i, nullptr));
  }

  Matrix embedding_ = Matrix(width * width), embedding_gradient_ = embedding_;
  ExpertLayer layer_;
  Complaints& complaints_;
  int expert_place_ = 0, expert_size_ = 1, own_tokens_ = 0, first_token_ = 0;
  gyreGrad_t replicated_ = nullptr, experts_ = nullptr;
};

struct Trained {
  std::map<std::string, Matrix> parameters;
  std::vector<std::vector<int>> loads;  // of each step: the tokens of each expert

  int assignments(int step) const {
    const std::vector<int>& all = loads[static_cast<std::size_t>(step)];
    return std::accumulate(all.begin(), all.end(), 0);
  }
  auto idle_experts(int step) const {
    const std::vector<int>& all = loads[static_cast<std::size_t>(step)];
    return std::count(all.begin(), all.end(), 0);
  }
};

Trained train(int data, int expert, const Routing& routing) {
  Trained trained;
  trained.loads.assign(steps, std::vector<int>(experts, 0));
  std::mutex mutex;
  on_ranks(data * expert, [&](int, gyreComm_t comm, Complaints& complaints) {
    const gyreMeshAxis_t axes[] = {{"data", data}, {"expert", expert}};
    gyreMesh_t mesh = nullptr;
    complaints.expect(gyreMeshCreate(&mesh, comm, axes, 2) == gyreSuccess, gyreGradGetLastError());
    {
      Training training(mesh, routing, complaints);
      for (std::size_t step = 0; step < steps; ++step) {
        training.step(static_cast<int>(step));
        const std::lock_guard lock(mutex);
        for (std::size_t i = 0; i < experts; ++i)
          trained.loads[step][i] += training.layer().rows_of_expert()[i];
      }
      const std::lock_guard lock(mutex);
      const auto keep = [&](const std::string& name, const Matrix& values) {
        const bool is_new = trained.parameters.emplace(name, values).second;
        complaints.expect(is_new || trained.parameters[name] == values, name + ": copies differ");
      };
      keep("W", training.embedding());
      keep("R", training.layer().router);
      for (int i = 0; i < 2 * training.own_experts(); ++i)
        keep(std::string(i % 2 == 0 ? "A" : "B") += std::to_string(training.first_expert() + i / 2),
             training.layer().experts[static_cast<std::size_t>(i)]);
    }
    complaints.expect(gyreMeshDestroy(mesh) == gyreSuccess, gyreGradGetLastError());
  });
  return trained;
}

// The greatest difference of two models' parameters; NaN if there is one.
float distance(const Trained& one, const Trained& other) {
  REQUIRE(one.parameters.size() == other.parameters.size());
  float most = 0;
  for (const auto& [name, values] : one.parameters)
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float difference = std::fabs(values[i] - other.parameters.at(name)[i]);
      if (!(difference <= most)) most = difference;
    }
  return most;
}

}  // namespace

TEST_CASE("experts spread over a mesh train as one rank with all of them does", "[gradsync]") {
  const int choices = GENERATE(1, 2);
  const int capacity = GENERATE(0, 2);
  const Routing routing{experts, choices, group, capacity};
  CAPTURE(choices, capacity);
  const Trained one = train(1, 1, routing);
  Matrix untrained(one.parameters.at("R").size());
  fill(untrained, 0, 3);
  CHECK(one.parameters.at("R") != untrained);
  // Where all tokens are alike, all go to the same experts, and most ranks' experts get none.
  CHECK(one.idle_experts(step_of_one_expert) == experts - choices);
  CHECK(one.idle_experts(0) < experts / 2);
  CHECK(one.assignments(step_of_one_expert) ==
        groups * choices * (capacity > 0 ? capacity : group));
  if (capacity == 0) CHECK(one.assignments(0) == tokens * choices);

  const auto [data, expert] = GENERATE(std::pair(2, 2), std::pair(1, 4), std::pair(2, 3),
                                       std::pair(4, 1), std::pair(1, 12));
  CAPTURE(data, expert);
  const Trained many = train(data, expert, routing);
  CHECK(many.loads == one.loads);
  CHECK(distance(one, many) < 1e-6F);
}

TEST_CASE("a token that its expert has no room for passes through", "[gradsync]") {
  on_ranks(1, [](int, gyreComm_t comm, Complaints& complaints) {
    ExpertLayer layer(comm, {2, 1, 3, 1}, 2, 1, complaints);
    layer.router = {1, 0, 0, 1};
    layer.experts = {{1, 1}, {1, 1}, {1, 1}, {1, 1}};
    const Matrix x = {2, 0, 3, 0, 0, 1};  // the first two want expert 0, which takes one
    const Matrix y = layer.forward(x);
    complaints.expect(layer.rows_of_expert() == std::vector<int>{1, 1}, "another routing");
    complaints.expect(y[0] > 2 && y[5] > 1, "no expert answered");
    complaints.expect(y[2] == 3 && y[3] == 0, "the token has changed");
    complaints.expect(layer.backward({0, 0, 5, 7, 0, 0}) == Matrix{0, 0, 5, 7, 0, 0},
                      "its gradient has changed");
  });
}

TEST_CASE("the layer's backward pass is the derivative of its forward pass", "[gradsync]") {
  const int choices = GENERATE(1, 2);
  on_ranks(1, [&](int, gyreComm_t comm, Complaints& complaints) {
    ExpertLayer layer(comm, {3, choices, 4, 2}, 3, 4, complaints);
    Matrix x(4 * 3), slopes(4 * 3);
    fill(x, 1, 0);
    fill(slopes, 2, 0);
    fill(layer.router, 3, 0);
    for (std::size_t i = 0; i < layer.experts.size(); ++i)
      fill(layer.experts[i], 4, static_cast<int>(i));
    layer.forward(x);
    const Matrix dx = layer.backward(slopes);
    // By finite differences of the loss, the sum of slopes times y.
    const auto check = [&](const char* name, Matrix& values, const Matrix& gradient) {
      constexpr float small = 4e-3F;
      for (std::size_t i = 0; i < values.size(); ++i) {
        double difference = 0;
        const float before = values[i];
        for (const float side : {1.0F, -1.0F}) {
          values[i] = before + side * small;
          const Matrix y = layer.forward(x);
          for (std::size_t j = 0; j < y.size(); ++j) difference += side * slopes[j] * y[j];
        }
        values[i] = before;
        const double expected = difference / (2 * small);
        complaints.expect(std::fabs(gradient[i] - expected) < 1e-3,
                          std::string(name) + "[" + std::to_string(i) + "]: " +
                              std::to_string(gradient[i]) + ", not " + std::to_string(expected));
      }
    };
    check("x", x, dx);
    check("R", layer.router, layer.router_gradient);
    for (std::size_t i = 0; i < layer.experts.size(); ++i)
      check(i % 2 == 0 ? "A" : "B", layer.experts[i], layer.expert_gradients[i]);
  });
}
