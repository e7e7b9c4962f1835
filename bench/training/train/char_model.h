// A decoder-only transformer that learns to predict the next character of a text: embeddings of
// characters and positions, blocks, a last norm and a head.
#pragma once

#include "bench/training/train/char_block.h"
#include "bench/training/train/text_data.h"

namespace gyre::training {

struct CharShape {
  std::size_t layers = 4, width = 256, heads = 8, length = 96;
  float deviation = 0.02F;  // of the weights at first
};

class CharModel final : public Model {
 public:
  // `texts`: examples of one pass. `data` outlives the model.
  CharModel(const TextData& data, const CharShape& shape, std::size_t texts);

  const std::vector<TensorShape>& tensors() const override { return tensors_; }
  std::string description() const override;
  std::string data_text() const override;
  // Each piece of the text that has `length` characters and one after them.
  std::uint64_t examples() const override { return data_.codes.size() - shape_.length; }
  double learn(std::span<const std::uint64_t> examples, Storage& storage) override;
  Score test(int, int, Storage&) override { return {}; }

 private:
  void take(std::span<const std::uint64_t> examples);
  void embed(Storage& storage);
  double finish(Storage& storage);
  void embed_backward(Storage& storage);
  std::size_t width() const { return shape_.width; }
  std::size_t rows() const { return attention_.texts * attention_.length; }

  const TextData& data_;
  const CharShape shape_;
  const AttentionShape attention_;
  const LayerNorm norm_;
  const Linear head_;
  std::vector<TensorShape> tensors_;
  std::vector<CharBlock> blocks_;
  BlockScratch scratch_;
  Multiplier multiplier_;
  std::vector<std::uint8_t> characters_, following_;      // by row
  std::vector<float> last_, normed_, logits_, gradient_;  // gradient_: of the blocks' output
};

}  // namespace gyre::training
