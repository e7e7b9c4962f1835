// The interfaces between a model (a network with its data) and the storage of its parameters. A
// model is a row of units, which it uses in order in the forward pass and in reverse in the
// backward pass. The storage decides where parameters and gradients are, and which other ranks hold
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gyre::training {

struct TensorShape {
  std::string name;
  std::size_t count = 0, unit = 0;
  // At first: `value`, plus normally distributed numbers of this deviation.
  float value = 0, deviation = 0;
};

inline std::size_t count_elements(const std::vector<TensorShape>& tensors) {
  std::size_t sum = 0;
  for (const TensorShape& tensor : tensors) sum += tensor.count;
  return sum;
}

// The first values of tensor number `tensor`: the same wherever they are asked for.
void initialize(const TensorShape& shape, std::size_t tensor, std::uint64_t seed, float* values);

class Storage {
 public:
  virtual ~Storage() = default;
  // A unit's parameters are there between these two.
  virtual void gather(std::size_t unit) = 0;
  virtual void release(std::size_t unit) = 0;
  virtual const float* parameter(std::size_t tensor) = 0;
  // Where a gradient goes, until it is ready: then it may be on its way to other ranks.
  virtual float* gradient(std::size_t tensor) = 0;
  virtual void ready(std::size_t tensor) = 0;
};

// How many of so many examples are answered right.
struct Score {
  std::uint64_t right = 0, asked = 0;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const std::vector<TensorShape>& tensors() const = 0;
  // What it was made of, for people and to compare ranks.
  virtual std::string description() const = 0;
  // What it learns from, as bytes that differ where the data do.
  virtual std::string data_text() const = 0;
  virtual std::uint64_t examples() const = 0;
  // Forward and backward pass: the mean loss of these examples, and its gradients.
  virtual double learn(std::span<const std::uint64_t> examples, Storage& storage) = 0;
  // Over every `ranks`-th example that is kept from learning, from `rank` on.
  virtual Score test(int rank, int ranks, Storage& storage) = 0;
};

}  // namespace gyre::training
