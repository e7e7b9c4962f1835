// A mixture of experts over a mesh of data x expert: tokens go to their experts' ranks and back.
//
//   gyre run -n 6 ./experts 2 3     ranks along the axes data and expert
//
// x = W u, then the experts. W and the router are on all ranks; an expert is on one rank of each
// line along "expert". So gradients of W and the router are averaged over both axes, those of
// experts over "data". Each rank also trains the whole model alone, and the results have to agree.
#include "expert_layer.h"
#include "job.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>

using namespace example;

namespace {

constexpr int width = 6, hidden = 8, experts = 12, group = 4, groups = 12, steps = 6;
constexpr int tokens = group * groups;
constexpr int step_of_one_expert = 2;  // in it all tokens are alike
constexpr float learning_rate = 0.1F, tolerance = 1e-6F;

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

using Parameters = std::map<std::string, Matrix>;

// The loss is the mean over tokens of half the squared distance.
class Training {
 public:
  Training(gyreMesh_t mesh, const Routing& routing)
      : layer_(line(mesh, "expert"), routing, width, hidden) {
    int data = 0, data_size = 1;
    check(gyreMeshPlace(mesh, "data", &data, &data_size));
    check(gyreMeshPlace(mesh, "expert", &expert_place_, &expert_size_));
    own_tokens_ = tokens / data_size / expert_size_;
    first_token_ = (data * expert_size_ + expert_place_) * own_tokens_;
    fill(embedding_, 0, 2);
    fill(layer_.router, 0, 3);
    for (int i = 0; i < 2 * own_experts(); ++i)
      fill(layer_.experts[static_cast<std::size_t>(i)], first_expert() + i / 2, i % 2);

    const char* const both[] = {"data", "expert"};
    gyreComm_t all = nullptr;
    check(gyreMeshCommOf(mesh, both, 2, &all));
    const gyreGradTensor_t replicated[] = {tensor("W", embedding_, embedding_gradient_),
                                           tensor("R", layer_.router, layer_.router_gradient)};
    check(gyreGradCreate(&replicated_, all, replicated, 2, nullptr));
    std::vector<gyreGradTensor_t> own;
    for (std::size_t i = 0; i < layer_.experts.size(); ++i)
      own.push_back(tensor(i % 2 == 0 ? "A" : "B", layer_.experts[i], layer_.expert_gradients[i]));
    check(gyreGradCreate(&experts_, line(mesh, "data"), own.data(), own.size(), nullptr));
  }
  ~Training() {
    check(gyreGradDestroy(experts_));
    check(gyreGradDestroy(replicated_));
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
    for (std::size_t i = 2; i-- > 0;) check(gyreGradReady(replicated_, i, nullptr));
    check(gyreGradWait(experts_));
    check(gyreGradWait(replicated_));
    descend(embedding_, embedding_gradient_);
    descend(layer_.router, layer_.router_gradient);
    for (std::size_t i = 0; i < layer_.experts.size(); ++i)
      descend(layer_.experts[i], layer_.expert_gradients[i]);
  }

  // Whether copies on several ranks have the same bits.
  void compare_copies() {
    check(gyreGradCompare(replicated_));
    check(gyreGradCompare(experts_));
  }

  // How many of this rank's tokens went to each expert in the last step.
  const std::vector<int>& loads() const { return layer_.rows_of_expert(); }

  Parameters parameters() const {
    Parameters all = {{"W", embedding_}, {"R", layer_.router}};
    for (int i = 0; i < 2 * own_experts(); ++i)
      all[(i % 2 == 0 ? "A" : "B") + std::to_string(first_expert() + i / 2)] =
          layer_.experts[static_cast<std::size_t>(i)];
    return all;
  }

 private:
  static gyreComm_t line(gyreMesh_t mesh, const char* axis) {
    gyreComm_t comm = nullptr;
    check(gyreMeshComm(mesh, axis, &comm));
    return comm;
  }
  static gyreGradTensor_t tensor(const char* name, Matrix& parameter, Matrix& gradient) {
    return {name, parameter.size(), gyreFloat, parameter.data(), gradient.data()};
  }
  static void descend(Matrix& parameter, const Matrix& gradient) {
    for (std::size_t i = 0; i < parameter.size(); ++i) parameter[i] -= learning_rate * gradient[i];
  }
  int own_experts() const { return experts / expert_size_; }
  int first_expert() const { return expert_place_ * own_experts(); }
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
      check(gyreGradReady(experts_, i, nullptr));
  }

  Matrix embedding_ = Matrix(width * width), embedding_gradient_ = embedding_;
  ExpertLayer layer_;
  int expert_place_ = 0, expert_size_ = 1, own_tokens_ = 0, first_token_ = 0;
  gyreGrad_t replicated_ = nullptr, experts_ = nullptr;
};

struct Trained {
  Parameters parameters;                // of this rank
  std::vector<std::vector<int>> loads;  // of each step: the tokens of each expert, from all ranks
};

Trained train(gyreComm_t comm, int data, int expert, const Routing& routing) {
  const gyreMeshAxis_t axes[] = {{"data", data}, {"expert", expert}};
  gyreMesh_t mesh = nullptr;
  check(gyreMeshCreate(&mesh, comm, axes, 2));
  Trained trained;
  {
    Training training(mesh, routing);
    for (int step = 0; step < steps; ++step) {
      training.step(step);
      std::vector<int> loads = training.loads();
      check(
          gyreAllReduce(loads.data(), loads.data(), loads.size(), gyreInt, gyreSum, comm, nullptr));
      trained.loads.push_back(loads);
    }
    training.compare_copies();
    trained.parameters = training.parameters();
  }
  check(gyreMeshDestroy(mesh));
  return trained;
}

// The greatest difference between what a rank has and the whole model; NaN if there is one.
float distance(const Trained& own, const Trained& whole) {
  float most = 0;
  for (const auto& [name, values] : own.parameters)
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float difference = std::fabs(values[i] - whole.parameters.at(name)[i]);
      if (!(difference <= most)) most = difference;
    }
  return most;
}

// The router has learnt. Where all tokens are alike, all go to the same experts, most ranks' get
// none, and the step is one like any other.
bool is_as_it_should_be(const Trained& trained, const Routing& routing) {
  const auto assignments = [&](std::size_t step) {
    return std::accumulate(trained.loads[step].begin(), trained.loads[step].end(), 0);
  };
  const auto idle_experts = [&](std::size_t step) {
    return std::count(trained.loads[step].begin(), trained.loads[step].end(), 0);
  };
  Matrix untrained(trained.parameters.at("R").size());
  fill(untrained, 0, 3);
  const int room = routing.capacity > 0 ? routing.capacity : group;
  return trained.parameters.at("R") != untrained &&
         idle_experts(step_of_one_expert) == experts - routing.choices &&
         idle_experts(0) < experts / 2 &&
         assignments(step_of_one_expert) == groups * routing.choices * room &&
         (routing.capacity > 0 || assignments(0) == tokens * routing.choices);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: experts DATA EXPERT\n"), 2;
  const int data = std::atoi(argv[1]), expert = std::atoi(argv[2]);
  const gyreComm_t world = join_job();
  gyreComm_t self = nullptr;  // of this rank alone
  int rank = 0;
  check(gyreCommUserRank(world, &rank));
  check(gyreCommSplit(world, rank, 0, &self, nullptr));
  bool all_right = true;
  for (const int choices : {1, 2})
    for (const int capacity : {0, 2}) {
      const Routing routing{experts, choices, group, capacity};
      const Trained whole = train(self, 1, 1, routing), own = train(world, data, expert, routing);
      const float most = distance(own, whole);
      const bool is_right =
          most < tolerance && own.loads == whole.loads && is_as_it_should_be(whole, routing);
      if (rank == 0 || !is_right)
        std::printf(
            "rank %d: %d of %d experts for a token, room for %d: at most %g from what one "
            "rank learns: %s\n",
            rank, choices, experts, capacity, static_cast<double>(most),
            is_right ? "right" : "WRONG");
      all_right = all_right && is_right;
    }
  check(gyreCommDestroy(self));
  check(gyreCommDestroy(world));
  return all_right ? 0 : 1;
}
