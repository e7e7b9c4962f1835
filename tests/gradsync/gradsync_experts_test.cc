// The layer of docs/examples/experts.cc alone: tokens that no expert has room for, and its
// derivative. tests/examples runs the whole example, which checks that it trains like one rank.
#include "tests/support/catch.h"
#include "tests/support/comm/ranks.h"

#include <cmath>
#include <string>
#include <vector>

#include "docs/examples/expert_layer.h"

namespace gradsync_experts_test {

using namespace gyre::tests;
using namespace example;

namespace {

float weight(int expert, int which, std::size_t i) {
  return std::sin(static_cast<float>(expert * 31 + which * 17) + static_cast<float>(i) * 5.3F) / 2;
}
void fill(Matrix& matrix, int expert, int which) {
  for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = weight(expert, which, i);
}

}  // namespace

TEST_CASE("a token that its expert has no room for passes through", "[gradsync]") {
  on_ranks(1, [](int, gyreComm_t comm, Complaints& complaints) {
    ExpertLayer layer(comm, {2, 1, 3, 1}, 2, 1);
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
    ExpertLayer layer(comm, {3, choices, 4, 2}, 3, 4);
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

}  // namespace gradsync_experts_test
