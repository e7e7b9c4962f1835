// A mixture of experts, forward and backward: y = x + the sum over a token's experts of the
// router's weight times B relu(A x), with A and B of that expert. A token that no expert has room
// for passes through: y = x. Experts are spread along the mesh's axis "expert", and each rank sends
// its tokens there; the router is on every rank.
#pragma once

#include "expert_dispatch.h"
#include "router.h"

namespace example {

class ExpertLayer {
 public:
  ExpertLayer(gyreComm_t expert_comm, const Routing& routing, int width, int hidden)
      : routing_(routing),
        width_(width),
        hidden_(hidden),
        choice_(routing, width),
        dispatch_(expert_comm, routing.experts, width) {
    router.assign(static_cast<std::size_t>(routing.experts * width), 0.0F);
    experts.assign(static_cast<std::size_t>(2 * dispatch_.own()),
                   Matrix(static_cast<std::size_t>(hidden * width), 0.0F));
    router_gradient = router;
    expert_gradients = experts;
  }

  Matrix router, router_gradient;                 // of `experts` rows
  std::vector<Matrix> experts, expert_gradients;  // A and B of each of this rank's

  Matrix forward(const Matrix& x) {
    ways_ = choice_.forward(x, router);
    rows_of_expert_.assign(static_cast<std::size_t>(routing_.experts), 0);
    for (const Assignment& way : ways_) ++rows_of_expert_[static_cast<std::size_t>(way.expert)];
    dispatch_.meet(rows_of_expert_);
    Matrix leaving(ways_.size() * static_cast<std::size_t>(width_));
    for (std::size_t i = 0; i < ways_.size(); ++i) add_row(leaving, i, x, token(i), 1);
    inputs_ = dispatch_.to_experts(leaving);
    answers_ = dispatch_.to_senders(experts_forward());
    Matrix y = x;
    for (std::size_t i = 0; i < ways_.size(); ++i) add_row(y, token(i), answers_, i, weight(i));
    return y;
  }

  // Given the loss's derivative by y, adds to the gradients, and returns its derivative by x. It
  // goes the ways of the tokens once more: to the experts, and back.
  Matrix backward(const Matrix& dy) {
    Matrix by_weight(ways_.size(), 0.0F);
    Matrix leaving(answers_.size(), 0.0F);
    for (std::size_t i = 0; i < ways_.size(); ++i) {
      for (int column = 0; column < width_; ++column)
        by_weight[i] += at(dy, ways_[i].token, column, width_) *
                        at(answers_, static_cast<int>(i), column, width_);
      add_row(leaving, i, dy, token(i), weight(i));
    }
    const Matrix returned = dispatch_.to_senders(experts_backward(dispatch_.to_experts(leaving)));
    Matrix dx = choice_.backward(by_weight, router, router_gradient);
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += dy[i];
    for (std::size_t i = 0; i < ways_.size(); ++i) add_row(dx, token(i), returned, i, 1);
    return dx;
  }

  // How many of this rank's tokens went to each expert.
  const std::vector<int>& rows_of_expert() const { return rows_of_expert_; }

 private:
  std::size_t token(std::size_t way) const { return static_cast<std::size_t>(ways_[way].token); }
  float weight(std::size_t way) const { return ways_[way].weight; }
  void add_row(Matrix& to, std::size_t to_row, const Matrix& from, std::size_t from_row,
               float factor) const {
    const auto width = static_cast<std::size_t>(width_);
    for (std::size_t i = 0; i < width; ++i)
      to[to_row * width + i] += factor * from[from_row * width + i];
  }
  Matrix rows_in(const Matrix& all, const ExpertDispatch::Block& block) const {
    const auto begin = all.begin() + block.first * width_;
    return {begin, begin + block.rows * width_};
  }

  Matrix experts_forward() {
    Matrix outputs;
    block_hiddens_.clear();
    for (const auto& block : dispatch_.blocks()) {
      const auto a = static_cast<std::size_t>(2 * block.expert);
      Matrix h = product(rows_in(inputs_, block), experts[a], width_, hidden_);
      for (float& value : h) value = std::max(value, 0.0F);
      const Matrix y = product(h, experts[a + 1], hidden_, width_);
      outputs.insert(outputs.end(), y.begin(), y.end());
      block_hiddens_.push_back(std::move(h));
    }
    return outputs;
  }

  // From the derivative by the experts' outputs to that by their inputs.
  Matrix experts_backward(const Matrix& by_output) {
    Matrix by_input;
    std::size_t index = 0;
    for (const auto& block : dispatch_.blocks()) {
      const auto a = static_cast<std::size_t>(2 * block.expert);
      const Matrix& h = block_hiddens_[index++];
      const Matrix dy = rows_in(by_output, block);
      add_outer(expert_gradients[a + 1], dy, h, width_, hidden_);
      Matrix dh = product_transposed(dy, experts[a + 1], width_, hidden_);
      for (std::size_t i = 0; i < dh.size(); ++i)
        if (h[i] <= 0) dh[i] = 0;
      add_outer(expert_gradients[a], dh, rows_in(inputs_, block), hidden_, width_);
      const Matrix dx = product_transposed(dh, experts[a], hidden_, width_);
      by_input.insert(by_input.end(), dx.begin(), dx.end());
    }
    return by_input;
  }

  const Routing routing_;
  const int width_, hidden_;
  Router choice_;
  ExpertDispatch dispatch_;
  std::vector<Assignment> ways_;
  std::vector<int> rows_of_expert_;
  Matrix inputs_, answers_;            // of this rank's experts; of its tokens, one a way
  std::vector<Matrix> block_hiddens_;  // of each block
};

}  // namespace example
