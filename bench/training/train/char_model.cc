#include "bench/training/train/char_model.h"

#include <algorithm>

namespace gyre::training {
namespace {

// The first two tensors; the blocks' follow, and four more.
constexpr std::size_t character_weight = 0, place_weight = 1;

}  // namespace

CharModel::CharModel(const TextData& data, const CharShape& shape, std::size_t texts)
    : data_(data),
      shape_(shape),
      attention_{texts, shape.length, shape.heads, shape.width},
      norm_{texts * shape.length, shape.width},
      head_{texts * shape.length, shape.width, data.characters.size()} {
  const std::size_t kinds = data.characters.size();
  tensors_ = {{"characters", kinds * width(), 0, 0, shape.deviation},
              {"places", shape.length * width(), 0, 0, shape.deviation}};
  blocks_.reserve(shape.layers);
  for (std::size_t unit = 1; unit <= shape.layers; ++unit) {
    blocks_.emplace_back(attention_, unit, tensors_.size());
    const auto added = CharBlock::tensors(width(), unit, shape.deviation);
    tensors_.insert(tensors_.end(), added.begin(), added.end());
  }
  const std::size_t last = shape.layers + 1;
  tensors_.push_back({"norm.scale", width(), last, 1, 0});
  tensors_.push_back({"norm.shift", width(), last, 0, 0});
  tensors_.push_back({"head.weight", width() * kinds, last, 0, shape.deviation});
  tensors_.push_back({"head.bias", kinds, last, 0, 0});
  for (auto* values : {&last_, &normed_, &gradient_, &scratch_.narrow})
    values->resize(rows() * width());
  scratch_.taken.resize(3 * rows() * width());
  scratch_.wide.resize(4 * rows() * width());
  logits_.resize(rows() * kinds);
  characters_.resize(rows());
  following_.resize(rows());
}

std::string CharModel::description() const {
  return "gpt, " + std::to_string(shape_.layers) + " layers of width " +
         std::to_string(shape_.width) + ", " + std::to_string(shape_.heads) + " heads, " +
         std::to_string(shape_.length) + " characters of " +
         std::to_string(data_.characters.size()) + " kinds";
}

std::string CharModel::data_text() const {
  return data_.characters + std::string(data_.codes.begin(), data_.codes.end());
}

double CharModel::learn(std::span<const std::uint64_t> examples, Storage& storage) {
  take(examples);
  embed(storage);
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    blocks_[i].forward(multiplier_, storage,
                       i + 1 < blocks_.size() ? blocks_[i + 1].input() : last_.data());
  const double loss = finish(storage);
  for (std::size_t i = blocks_.size(); i-- > 0;)
    blocks_[i].backward(multiplier_, storage, scratch_, gradient_.data());
  embed_backward(storage);
  return loss;
}

void CharModel::take(std::span<const std::uint64_t> examples) {
  for (std::size_t text = 0; text < attention_.texts; ++text) {
    const auto first = data_.codes.begin() + static_cast<std::ptrdiff_t>(examples[text]);
    const auto row = static_cast<std::ptrdiff_t>(text * shape_.length);
    std::copy_n(first, shape_.length, characters_.begin() + row);
    std::copy_n(first + 1, shape_.length, following_.begin() + row);
  }
}

void CharModel::embed(Storage& storage) {
  storage.gather(0);
  const float* const characters = storage.parameter(character_weight);
  const float* const places = storage.parameter(place_weight);
  float* const output = blocks_.front().input();
  for (std::size_t row = 0; row < rows(); ++row) {
    const float* const character = characters + characters_[row] * width();
    const float* const place = places + row % shape_.length * width();
    for (std::size_t i = 0; i < width(); ++i) output[row * width() + i] = character[i] + place[i];
  }
  storage.release(0);
}

// The last unit goes forward and at once backward.
double CharModel::finish(Storage& storage) {
  const std::size_t unit = blocks_.size() + 1, scale = tensors_.size() - 4;
  const std::size_t shift = scale + 1, weight = scale + 2, bias = scale + 3;
  storage.gather(unit);
  norm_.forward(last_.data(), storage.parameter(scale), storage.parameter(shift), normed_.data());
  head_.forward(multiplier_, normed_.data(), storage.parameter(weight), storage.parameter(bias),
                logits_.data());
  const double loss = cross_entropy(logits_.data(), following_.data(), rows(), head_.output_width,
                                    1.0F / static_cast<float>(rows()));
  head_.backward(multiplier_, normed_.data(), storage.parameter(weight), logits_.data(),
                 scratch_.narrow.data(), storage.gradient(weight), storage.gradient(bias));
  storage.ready(bias);
  storage.ready(weight);
  std::fill(gradient_.begin(), gradient_.end(), 0.0F);
  norm_.backward_adding(last_.data(), storage.parameter(scale), scratch_.narrow.data(),
                        gradient_.data(), storage.gradient(scale), storage.gradient(shift));
  storage.ready(shift);
  storage.ready(scale);
  storage.release(unit);
  return loss / static_cast<double>(rows());
}

void CharModel::embed_backward(Storage& storage) {
  float* const places = storage.gradient(place_weight);
  float* const characters = storage.gradient(character_weight);
  std::fill_n(places, tensors_[place_weight].count, 0.0F);
  std::fill_n(characters, tensors_[character_weight].count, 0.0F);
  for (std::size_t row = 0; row < rows(); ++row) {
    const float* const gradient = gradient_.data() + row * width();
    float* const place = places + row % shape_.length * width();
    float* const character = characters + characters_[row] * width();
    for (std::size_t i = 0; i < width(); ++i) place[i] += gradient[i];
    for (std::size_t i = 0; i < width(); ++i) character[i] += gradient[i];
  }
  storage.ready(place_weight);
  storage.ready(character_weight);
}

}  // namespace gyre::training
