#include "bench/training/train/digits_model.h"

#include <algorithm>
#include <cmath>

namespace gyre::training {

DigitsModel::DigitsModel(const DigitsData& data, const DigitsShape& shape, std::size_t batch)
    : data_(data), shape_(shape), batch_(batch), labels_(batch) {
  for (std::size_t unit = 0; unit <= shape.hidden; ++unit) {
    const Linear linear = layer(unit, batch);
    const std::string name = unit < shape.hidden ? "hidden" + std::to_string(unit) : "head";
    tensors_.push_back({name + ".weight", linear.input_width * linear.output_width, unit, 0,
                        1.0F / std::sqrt(static_cast<float>(linear.input_width))});
    tensors_.push_back({name + ".bias", linear.output_width, unit, 0, 0});
    inputs_.emplace_back(batch * linear.input_width);
    outputs_.emplace_back(batch * linear.output_width);
  }
}

std::string DigitsModel::description() const {
  return "digits, " + std::to_string(shape_.hidden) + " hidden layers of width " +
         std::to_string(shape_.width);
}

std::string DigitsModel::data_text() const {
  return std::string(data_.values.begin(), data_.values.end()) +
         std::string(data_.labels.begin(), data_.labels.end());
}

Linear DigitsModel::layer(std::size_t unit, std::size_t rows) const {
  return {rows, unit == 0 ? DigitsData::features : shape_.width,
          unit == shape_.hidden ? DigitsData::kinds : shape_.width};
}

void DigitsModel::take(std::size_t row, std::uint64_t digit) {
  const auto from = data_.values.begin() + static_cast<std::ptrdiff_t>(digit * data_.features);
  std::transform(from, from + data_.features,
                 inputs_[0].begin() + static_cast<std::ptrdiff_t>(row * data_.features),
                 [](std::uint8_t value) { return static_cast<float>(value) / 16 - 0.3F; });
  labels_[row] = data_.labels[digit];
}

void DigitsModel::forward(std::size_t rows, Storage& storage, bool keeps_last) {
  for (std::size_t unit = 0; unit <= shape_.hidden; ++unit) {
    storage.gather(unit);
    layer(unit, rows)
        .forward(multiplier_, inputs_[unit].data(), storage.parameter(2 * unit),
                 storage.parameter(2 * unit + 1), outputs_[unit].data());
    if (unit < shape_.hidden)
      gelu(outputs_[unit].data(), inputs_[unit + 1].data(), rows * shape_.width);
    if (unit < shape_.hidden || !keeps_last) storage.release(unit);
  }
}

double DigitsModel::learn(std::span<const std::uint64_t> examples, Storage& storage) {
  // Of each five digits the first four are learnt.
  for (std::size_t row = 0; row < batch_; ++row)
    take(row, examples[row] + examples[row] / (test_share - 1));
  forward(batch_, storage, true);
  const double loss = cross_entropy(outputs_.back().data(), labels_.data(), batch_,
                                    DigitsData::kinds, 1.0F / static_cast<float>(batch_));
  for (std::size_t unit = shape_.hidden + 1; unit-- > 0;) {
    if (unit < shape_.hidden) storage.gather(unit);
    float* const gradient = outputs_[unit].data();
    // What the layer took is needed no more, once its weights' gradient is there.
    std::vector<float> input_gradient(unit == 0 ? 0 : inputs_[unit].size());
    layer(unit, batch_)
        .backward(multiplier_, inputs_[unit].data(), storage.parameter(2 * unit), gradient,
                  unit == 0 ? nullptr : input_gradient.data(), storage.gradient(2 * unit),
                  storage.gradient(2 * unit + 1));
    storage.ready(2 * unit + 1);
    storage.ready(2 * unit);
    storage.release(unit);
    if (unit == 0) break;
    gelu_backward(outputs_[unit - 1].data(), input_gradient.data(), input_gradient.size());
    outputs_[unit - 1].swap(input_gradient);
  }
  return loss / static_cast<double>(batch_);
}

// In rounds of `batch`, as many on each rank, since each gathers the units.
Score DigitsModel::test(int rank, int ranks, Storage& storage) {
  const std::uint64_t kept = data_.count() / test_share;
  const auto all = static_cast<std::uint64_t>(ranks);
  Score score;
  for (std::uint64_t first = 0; first < kept; first += batch_ * all) {
    std::size_t rows = 0;
    for (; rows < batch_; ++rows) {
      const std::uint64_t number = first + rows * all + static_cast<std::uint64_t>(rank);
      if (number >= kept) break;
      take(rows, number * test_share + test_share - 1);
    }
    forward(rows, storage, false);
    for (std::size_t row = 0; row < rows; ++row) {
      const float* const logits = outputs_.back().data() + row * DigitsData::kinds;
      score.right += std::max_element(logits, logits + DigitsData::kinds) - logits == labels_[row];
      ++score.asked;
    }
  }
  return score;
}

}  // namespace gyre::training
