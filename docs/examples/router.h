// The router of a mixture of experts: which experts a token goes to, and the weight of each. A
// token's logits are R times the token, one for each expert; it goes to the `choices` experts with
// the largest softmax values, which are their weights. Ties go to the lower expert number. So the
// routing is a function of the numbers alone.
//
//   group     a number of consecutive tokens. An expert takes at most `capacity` of each group: the
//             tokens' first choices before their second ones, then lower tokens first (GShard:
//             arXiv 2006.16668, algorithm 1). A rank works on whole groups, so the routing does not
//             depend on the number of ranks
#pragma once

#include "linear.h"

#include <algorithm>
#include <cmath>

namespace example {

struct Routing {
  int experts = 1, choices = 1;
  int group = 1, capacity = 0;  // 0: no limit
};

// A token's way to one of its experts.
struct Assignment {
  int token = 0, expert = 0;
  float weight = 0;
};

class Router {
 public:
  Router(const Routing& routing, int width) : routing_(routing), width_(width) {}

  // What is not dropped, sorted by expert; then as the experts took it.
  const std::vector<Assignment>& forward(const Matrix& tokens, const Matrix& router) {
    tokens_ = tokens;
    softmax_ = product(tokens, router, width_, routing_.experts);
    const int count = rows_of(tokens, width_);
    for (int token = 0; token < count; ++token) normalize(token);
    kept_.clear();
    for (int first = 0; first < count; first += routing_.group)
      assign(first, std::min(count, first + routing_.group));
    std::stable_sort(kept_.begin(), kept_.end(),
                     [](const Assignment& a, const Assignment& b) { return a.expert < b.expert; });
    return kept_;
  }

  // `by_weight`: the loss's derivative by the weight of each assignment. Adds to the gradient of R,
  // and returns the derivative by the tokens.
  Matrix backward(const Matrix& by_weight, const Matrix& router, Matrix& router_gradient) const {
    Matrix by_softmax(softmax_.size(), 0.0F);
    for (std::size_t i = 0; i < kept_.size(); ++i)
      at(by_softmax, kept_[i].token, kept_[i].expert, routing_.experts) += by_weight[i];
    Matrix by_logit(softmax_.size());
    for (int token = 0; token < rows_of(tokens_, width_); ++token) {
      float mean = 0;
      for (int expert = 0; expert < routing_.experts; ++expert)
        mean += softmax(token, expert) * at(by_softmax, token, expert, routing_.experts);
      for (int expert = 0; expert < routing_.experts; ++expert)
        at(by_logit, token, expert, routing_.experts) =
            softmax(token, expert) * (at(by_softmax, token, expert, routing_.experts) - mean);
    }
    add_outer(router_gradient, by_logit, tokens_, routing_.experts, width_);
    return product_transposed(by_logit, router, routing_.experts, width_);
  }

 private:
  float softmax(int token, int expert) const {
    return at(softmax_, token, expert, routing_.experts);
  }
  void normalize(int token) {
    float* const logits = &at(softmax_, token, 0, routing_.experts);
    const float most = *std::max_element(logits, logits + routing_.experts);
    float sum = 0;
    for (int expert = 0; expert < routing_.experts; ++expert)
      sum += logits[expert] = std::exp(logits[expert] - most);
    for (int expert = 0; expert < routing_.experts; ++expert) logits[expert] /= sum;
  }

  // The expert of rank `choice` among the token's: as many are before it.
  int chosen(int token, int choice) const {
    for (int expert = 0; expert < routing_.experts; ++expert) {
      int before = 0;
      for (int other = 0; other < routing_.experts; ++other) {
        const float difference = softmax(token, other) - softmax(token, expert);
        before += difference > 0 || (difference == 0 && other < expert);
      }
      if (before == choice) return expert;
    }
    return 0;  // with NaNs nobody is before anybody: their loss tells
  }

  void assign(int first, int end) {
    std::vector<int> taken(static_cast<std::size_t>(routing_.experts), 0);
    for (int choice = 0; choice < routing_.choices; ++choice)
      for (int token = first; token < end; ++token) {
        const int expert = chosen(token, choice);
        int& load = taken[static_cast<std::size_t>(expert)];
        if (routing_.capacity > 0 && load == routing_.capacity) continue;
        ++load;
        kept_.push_back({token, expert, softmax(token, expert)});
      }
  }

  const Routing routing_;
  const int width_;
  Matrix tokens_, softmax_;
  std::vector<Assignment> kept_;
};

}  // namespace example
