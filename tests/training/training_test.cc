// The parts of bench/training/train: gradients and optimizers against finite differences and plain
// loops, the distribution of examples over ranks, and the readers of data.
#include "bench/training/train/char_model.h"
#include "bench/training/train/digits_model.h"
#include "bench/training/train/examples.h"
#include "bench/training/train/optimizer.h"
#include "kernels/cpu/elementwise.h"
#include "tests/support/catch.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace training_test {

using namespace gyre;
using namespace gyre::training;

namespace {

// All of a model on one rank; whether it is used as a sharded one demands.
class WholeStorage final : public Storage {
 public:
  explicit WholeStorage(const std::vector<TensorShape>& shapes) : shapes_(shapes) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      initialize(shapes[i], i, 7, values.emplace_back(shapes[i].count).data());
      gradients.emplace_back(shapes[i].count);
    }
    ready_.resize(shapes.size());
    there_.resize(shapes.back().unit + 1);
  }
  void gather(std::size_t unit) override { there_[unit] = true; }
  void release(std::size_t unit) override { there_[unit] = false; }
  const float* parameter(std::size_t tensor) override {
    CHECK(there_[shapes_[tensor].unit]);
    return values[tensor].data();
  }
  float* gradient(std::size_t tensor) override {
    CHECK(ready_[tensor] == 0);
    return gradients[tensor].data();
  }
  void ready(std::size_t tensor) override {
    ++ready_[tensor];
    last_ready.push_back(shapes_[tensor].unit);
  }
  // Between passes. Whether each gradient was ready once, the last unit first, and all is released.
  bool is_done() {
    const bool is_so =
        std::all_of(ready_.begin(), ready_.end(), [](int times) { return times == 1; }) &&
        std::is_sorted(last_ready.rbegin(), last_ready.rend()) &&
        std::find(there_.begin(), there_.end(), true) == there_.end();
    std::fill(ready_.begin(), ready_.end(), 0);
    last_ready.clear();
    return is_so;
  }

  std::vector<std::vector<float>> values, gradients;
  std::vector<std::size_t> last_ready;

 private:
  const std::vector<TensorShape>& shapes_;
  std::vector<int> ready_;
  std::vector<bool> there_;
};

// Each element of each gradient is what the loss says when its parameter moves a little.
void check_gradients(Model& model, const std::vector<std::uint64_t>& examples) {
  WholeStorage storage(model.tensors());
  model.learn(examples, storage);
  CHECK(storage.is_done());
  const auto gradients = storage.gradients;
  double largest = 0;
  for (std::size_t tensor = 0; tensor < gradients.size(); ++tensor) {
    CAPTURE(model.tensors()[tensor].name);
    int wrong = 0;
    for (std::size_t i = 0; i < gradients[tensor].size(); ++i) {
      constexpr float apart = 1.0F / 128;
      float& value = storage.values[tensor][i];
      const float before = value;
      value = before + apart;
      const double above = model.learn(examples, storage);
      CHECK(storage.is_done());
      value = before - apart;
      const double below = model.learn(examples, storage);
      CHECK(storage.is_done());
      value = before;
      const double expected = (above - below) / (2 * static_cast<double>(apart));
      const double found = static_cast<double>(gradients[tensor][i]);
      // Third derivatives, and float32's roundings of the loss over the distance.
      wrong += !(std::fabs(found - expected) < 3e-4 + 0.01 * std::fabs(expected));
      largest = std::max(largest, std::fabs(expected));
    }
    CHECK(wrong == 0);
  }
  CHECK(largest > 0.05);
}

float number(std::size_t i) { return static_cast<float>((i * 37 + 11) % 101) / 50 - 1; }

std::vector<float> numbers(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = number(i);
  return values;
}

}  // namespace

TEST_CASE("the transformer's gradients are the slopes of its loss", "[training]") {
  const TextData data = encode_text("abracadabra, abracadabra: a spell of five letters.");
  CharModel model(data, {.layers = 2, .width = 6, .heads = 2, .length = 5, .deviation = 0.4F}, 3);
  check_gradients(model, {0, 9, 31});
}

TEST_CASE("the perceptron's gradients are the slopes of its loss", "[training]") {
  const DigitsData data = make_digits(3, 40);
  DigitsModel model(data, {.hidden = 2, .width = 7}, 5);
  check_gradients(model, {0, 5, 11, 20, 31});
}

TEST_CASE("a product is the sum of products, whatever its sizes", "[training]") {
  Multiplier by;
  for (const std::size_t rows : std::initializer_list<std::size_t>{1, 7, 8, 9, 50})
    for (const std::size_t columns : std::initializer_list<std::size_t>{1, 31, 32, 33, 70})
      for (const std::size_t inner : std::initializer_list<std::size_t>{1, 255, 256, 257, 600})
        for (const bool is_transposed : {false, true}) {
          CAPTURE(rows, columns, inner, is_transposed);
          const auto left = numbers(rows * inner), right = numbers(inner * columns);
          // A guard column beside the result.
          std::vector<float> result(rows * (columns + 1), 2);
          MatrixView first = MatrixView::rows_of(left.data(), inner);
          if (is_transposed) first = MatrixView::rows_of(left.data(), rows).transposed();
          by.multiply({.left = first,
                       .right = MatrixView::rows_of(right.data(), columns),
                       .result = result.data(),
                       .result_stride = columns + 1,
                       .rows = rows,
                       .columns = columns,
                       .inner = inner,
                       .adds = is_transposed});
          int wrong = 0;
          for (std::size_t i = 0; i < rows; ++i) {
            for (std::size_t j = 0; j < columns; ++j) {
              double sum = is_transposed ? 2 : 0;
              for (std::size_t k = 0; k < inner; ++k)
                sum += static_cast<double>(left[is_transposed ? k * rows + i : i * inner + k]) *
                       static_cast<double>(right[k * columns + j]);
              wrong +=
                  !(std::fabs(static_cast<double>(result[i * (columns + 1) + j]) - sum) < 1e-3);
            }
            wrong += result[i * (columns + 1) + columns] != 2;
          }
          CHECK(wrong == 0);
        }
}

TEST_CASE("the exponential is right to 3e-7, and NaN stays NaN", "[training]") {
  double worst = 0;
  for (int i = -4370; i < 4370; ++i) {
    const float x = static_cast<float>(i) * 0.0137F;
    const double expected = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::fabs(static_cast<double>(exponential(x)) / expected - 1));
  }
  CHECK(worst < 3e-7);
  CHECK(exponential(0) == 1);
  CHECK(exponential(-1000) < 1e-26F);
  CHECK(std::isnan(exponential(std::nanf(""))));
}

TEST_CASE("the replicas' optimizers are those of shards", "[training]") {
  constexpr std::size_t count = 1000;
  const std::vector<float> gradient = numbers(count);
  gyreGradStep_t step = GYRE_GRAD_STEP_INITIALIZER;
  step.learningRate = 0.02F;
  step.momentum = 0.9F;
  for (const bool is_adamw : {true, false}) {
    auto values = numbers(count), expected = values;
    std::vector<float> first(count), second(count), first_expected(count), second_expected(count);
    for (std::uint64_t t = 1; t <= 5; ++t) {
      update_piece(is_adamw ? gyreGradAdamW : gyreGradSgd, step, t,
                   {0, 0, count, values.data(), first.data(), second.data()}, gradient.data());
      const kernels::OptimizerMove move{.gradient = gradient.data(),
                                        .parameter = expected.data(),
                                        .first = first_expected.data(),
                                        .second = second_expected.data(),
                                        .count = count};
      if (is_adamw)
        kernels::step(kernels::AdamW{.learning_rate = 0.02F, .step = t}, move);
      else
        kernels::step(
            kernels::Sgd{
                .learning_rate = 0.02F, .momentum = 0.9F, .weight_decay = 0.01F, .step = t},
            move);
    }
    CHECK(values[1] != number(1));
    int wrong = 0;
    for (std::size_t i = 0; i < count; ++i)
      wrong += !(std::fabs(values[i] - expected[i]) <= 1e-6F) ||
               !(std::fabs(first[i] - first_expected[i]) <= 1e-6F);
    CHECK(wrong == 0);
  }
}

TEST_CASE("all ranks' examples of a step are those of one rank with the whole batch",
          "[training]") {
  const std::uint64_t count = GENERATE(as<std::uint64_t>(), 12, 13, 29, 100);
  const int ranks = GENERATE(2, 3);
  const std::size_t whole = 12, part = whole / static_cast<std::size_t>(ranks);
  Examples one(count, 0, 1, 5, whole, {});
  std::vector<Examples> parts;
  for (int rank = 0; rank < ranks; ++rank)
    parts.emplace_back(count, rank, ranks, 5, part, TrainingProgress());
  bool changes = false;
  std::multiset<std::uint64_t> last;
  for (int step = 0; step < 20; ++step) {
    const auto all = one.next();
    const std::multiset<std::uint64_t> expected(all.begin(), all.end());
    CHECK(std::set<std::uint64_t>(all.begin(), all.end()).size() == whole);
    std::multiset<std::uint64_t> found;
    for (Examples& examples : parts)
      for (const std::uint64_t example : examples.next()) found.insert(example);
    CHECK(found == expected);
    changes |= step > 0 && found != last;
    last = found;
    for (const Examples& examples : parts) CHECK(examples.progress() == one.progress());
    // Whoever goes on from here goes the same way.
    if (step == 10) parts[0] = Examples(count, 0, ranks, 5, part, one.progress());
  }
  CHECK((changes || count == whole));
}

TEST_CASE("digits are read, and what is none is refused with its line", "[training]") {
  std::string line;
  for (int i = 0; i < 64; ++i) line += std::to_string(i % 17) + ",";
  std::string text;
  for (int i = 0; i < 12; ++i) text += line + std::to_string(i % 10) + (i % 2 == 0 ? "\n" : "\r\n");
  DigitsData data;
  CHECK(parse_digits(text, &data) == "");
  CHECK(data.count() == 12);
  CHECK(data.values[64 + 16] == 16);
  CHECK(data.labels[11] == 1);
  CHECK(parse_digits(text.substr(0, text.size() - 1), &data) == "");
  for (const std::string& wrong :
       {line, line + "10\n", line + "1,\n", line + "-1\n", line + "0.5\n", line + "nan\n",
        "17," + line.substr(2) + "1\n", line.substr(2) + "1\n", line + " 1\n", std::string("\n")}) {
    CAPTURE(wrong);
    CHECK(parse_digits(text + wrong, &data).find("line 13 is not") == 0);
  }
  CHECK(parse_digits(line + "1\n", &data) == "there are fewer than ten digits");
  CHECK(parse_digits("", &data) == "there are fewer than ten digits");
}

TEST_CASE("a checkpoint's head says what it was made of, and no other text is one", "[training]") {
  const CheckpointHead head{
      {.steps = 17, .epoch = 2, .taken = 48}, "adamw", {{"a \"name\"", 5}, {"b", 1 << 20}}};
  const std::string text = encode_head(head);
  CHECK(text.size() == 4096);
  CheckpointHead found;
  std::uint64_t begin = 0;
  CHECK(decode_head(text + "numbers", &found, &begin) == "");
  CHECK(found == head);
  CHECK(begin == 4096);
  CHECK(found.elements() == 5 + (1 << 20));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text.substr(0, 4095);
    changed.replace(changed.find(from), from.size(), to);
    changed.resize(4096, ' ');
    changed.back() = '\n';
    return decode_head(changed, &found, &begin);
  };
  CHECK(with("17", "18") == "");
  CHECK(with("\"gyre_training\":1", "\"gyre_training\":2") ==
        "it is of another version of this program");
  for (const auto& [from, to] : {std::pair("17", "-1"),
                                 {"17", "1.5"},
                                 {",5]", ",0]"},
                                 {",5]", ",\"5\"]"},
                                 {"1048576", "281474976710656"},
                                 {"\"tensors\"", "\"tensorz\""},
                                 {"\"adamw\"", "7"}}) {
    CAPTURE(from, to);
    CHECK(with(from, to) == "its first line is damaged");
  }
  for (const std::string& other : {std::string(), std::string("{}\n"), text.substr(0, 4095),
                                   std::string(1 << 21, ' '), std::string(4095, '[').append("\n")})
    CHECK(decode_head(other, &found, &begin) == "it is no checkpoint of this program");
}

}  // namespace training_test
