// Data, pipeline and tensor parallelism at once, over a mesh:
//
//   gyre run -n 8 ./mesh 2 2 2     ranks along the axes data, pipeline and tensor
//
// The model is a row of blocks, y = x + B relu(A x). The tensor axis cuts rows of A and columns of
// B (as Megatron does: arXiv 1909.08053, section 3). Along the pipeline axis a rank has one block;
// an axis of one rank has all. Each rank also trains the whole model alone, and the results have to
// agree.
#include "job.h"
#include "linear.h"

#include <algorithm>
#include <cmath>
#include <list>
#include <map>

using namespace example;

namespace {

constexpr int width = 6, hidden = 8, blocks = 2, batch = 16, micro_batches = 4, steps = 5;
constexpr float learning_rate = 0.05F, tolerance = 2e-6F;

// `which`: 0 is A, 1 the transpose of B; a row of either is one of the `hidden` values.
float weight(int block, int which, int row, int column) {
  return std::sin(static_cast<float>(block * 31 + which * 17 + row * 5 + column * 3)) / 2;
}
float input_of(int sample, int i) { return std::cos(static_cast<float>(sample * 7 + i)); }
float target_of(int sample, int i) { return std::sin(static_cast<float>(sample * 3 + i * 2)); }

class Training {
 public:
  explicit Training(gyreMesh_t mesh) {
    check(gyreMeshPlace(mesh, "data", &data_, &data_size_));
    check(gyreMeshPlace(mesh, "pipeline", &stage_, &stages_));
    check(gyreMeshPlace(mesh, "tensor", &part_, &parts_));
    check(gyreMeshComm(mesh, "pipeline", &pipeline_comm_));
    check(gyreMeshComm(mesh, "tensor", &tensor_comm_));
    gyreComm_t data_comm = nullptr;
    check(gyreMeshComm(mesh, "data", &data_comm));
    for (int block = first_block(); block < end_block(); ++block) {
      Matrix a, b;
      for (int row = first_row(); row < end_row(); ++row)
        for (int i = 0; i < width; ++i) a.push_back(weight(block, 0, row, i));
      for (int i = 0; i < width; ++i)
        for (int row = first_row(); row < end_row(); ++row) b.push_back(weight(block, 1, row, i));
      parameters_.push_back(a);
      parameters_.push_back(b);
    }
    for (const Matrix& one : parameters_) gradients_.emplace_back(one.size(), 0.0F);
    std::vector<gyreGradTensor_t> tensors;
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      tensors.push_back({i % 2 == 0 ? "A" : "B", parameters_[i].size(), gyreFloat,
                         parameters_[i].data(), gradients_[i].data()});
    check(gyreGradCreate(&grad_, data_comm, tensors.data(), tensors.size(), nullptr));
    check(gyreStreamCreate(&sends_));
  }
  ~Training() {
    check(gyreStreamDestroy(sends_));
    check(gyreGradDestroy(grad_));
  }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  // One step by 1F1B: as many forward passes ahead as stages follow, then in turn.
  void step() {
    for (Matrix& one : gradients_) std::fill(one.begin(), one.end(), 0.0F);
    const int ahead = std::min(stages_ - 1 - stage_, micro_batches);
    int begun = 0, done = 0;
    while (begun < ahead) forward(begun++);
    while (done < micro_batches) {
      if (begun < micro_batches) forward(begun++);
      backward(done++);
    }
    check(gyreStreamSynchronize(sends_));
    sent_.clear();
    for (std::size_t i = parameters_.size(); i-- > 0;) check(gyreGradReady(grad_, i, nullptr));
    check(gyreGradWait(grad_));
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      for (std::size_t j = 0; j < parameters_[i].size(); ++j)
        parameters_[i][j] -= learning_rate * gradients_[i][j];
  }

  // Whether the replicas along the data axis have the same bits.
  void compare_replicas() { check(gyreGradCompare(grad_)); }

  // The blocks and rows that this rank has.
  int first_block() const { return stage_ * (blocks / stages_); }
  int end_block() const { return first_block() + blocks / stages_; }
  int first_row() const { return part_ * rows(); }
  int end_row() const { return first_row() + rows(); }
  float parameter(int block, int which, int row, int column) const {
    const auto index = static_cast<std::size_t>(2 * (block - first_block()) + which);
    row -= first_row();
    return which == 0 ? at(parameters_[index], row, column, width)
                      : at(parameters_[index], column, row, rows());
  }

 private:
  int rows() const { return hidden / parts_; }
  int samples() const { return batch / data_size_ / micro_batches; }
  int first_sample(int micro) const { return (data_ * micro_batches + micro) * samples(); }
  std::size_t elements() const { return static_cast<std::size_t>(samples() * width); }

  // Sends go on a stream, so that a stage computes on; receives wait.
  void send(const Matrix& values, int to) {
    sent_.push_back(values);
    check(gyreSend(sent_.back().data(), elements(), gyreFloat, to, pipeline_comm_, sends_));
  }
  Matrix receive(int from) {
    Matrix values(elements());
    check(gyreRecv(values.data(), elements(), gyreFloat, from, pipeline_comm_, nullptr));
    return values;
  }
  void sum_parts(Matrix& values) {
    check(gyreAllReduce(values.data(), values.data(), values.size(), gyreFloat, gyreSum,
                        tensor_comm_, nullptr));
  }

  void forward(int micro) {
    Matrix x(elements());
    if (stage_ > 0)
      x = receive(stage_ - 1);
    else
      for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = input_of(first_sample(micro) + static_cast<int>(i) / width,
                        static_cast<int>(i) % width);
    for (std::size_t block = 0; block < parameters_.size(); block += 2) {
      inputs_[{micro, block}] = x;
      Matrix h = product(x, parameters_[block], width, rows());
      for (float& value : h) value = std::max(value, 0.0F);
      hiddens_[{micro, block}] = h;
      Matrix y = product(h, parameters_[block + 1], rows(), width);
      sum_parts(y);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
    }
    if (stage_ + 1 < stages_) return send(x, stage_ + 1);
    // The loss is the mean over samples of half the squared distance.
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = (x[i] - target_of(first_sample(micro) + static_cast<int>(i) / width,
                               static_cast<int>(i) % width)) /
             static_cast<float>(samples() * micro_batches);
    losses_[micro] = x;
  }

  void backward(int micro) {
    Matrix dy = stage_ + 1 < stages_ ? receive(stage_ + 1) : losses_[micro];
    for (std::size_t block = parameters_.size(); block > 0;) {
      block -= 2;
      const Matrix &x = inputs_[{micro, block}], &h = hiddens_[{micro, block}];
      add_outer(gradients_[block + 1], dy, h, width, rows());
      Matrix dh = product_transposed(dy, parameters_[block + 1], width, rows());
      for (std::size_t i = 0; i < dh.size(); ++i)
        if (h[i] <= 0) dh[i] = 0;
      add_outer(gradients_[block], dh, x, rows(), width);
      Matrix dx = product_transposed(dh, parameters_[block], rows(), width);
      sum_parts(dx);
      for (std::size_t i = 0; i < dy.size(); ++i) dy[i] += dx[i];
    }
    if (stage_ > 0) send(dy, stage_ - 1);
  }

  int data_ = 0, data_size_ = 1, stage_ = 0, stages_ = 1, part_ = 0, parts_ = 1;
  gyreComm_t pipeline_comm_ = nullptr, tensor_comm_ = nullptr;
  gyreGrad_t grad_ = nullptr;
  gyreStream_t sends_ = nullptr;
  std::vector<Matrix> parameters_, gradients_;  // A and B of each block of this rank
  std::list<Matrix> sent_;                      // until they have left
  std::map<std::pair<int, std::size_t>, Matrix> inputs_, hiddens_;
  std::map<int, Matrix> losses_;
};

gyreMesh_t make_mesh(gyreComm_t comm, int data, int pipeline, int tensor) {
  const gyreMeshAxis_t axes[] = {{"data", data}, {"pipeline", pipeline}, {"tensor", tensor}};
  gyreMesh_t mesh = nullptr;
  check(gyreMeshCreate(&mesh, comm, axes, 3));
  return mesh;
}

// The greatest difference between what a rank has and the whole model; NaN if there is one.
float distance(const Training& own, const Training& whole) {
  float most = 0;
  for (int block = own.first_block(); block < own.end_block(); ++block)
    for (const int which : {0, 1})
      for (int row = own.first_row(); row < own.end_row(); ++row)
        for (int column = 0; column < width; ++column) {
          const float difference = std::fabs(own.parameter(block, which, row, column) -
                                             whole.parameter(block, which, row, column));
          if (!(difference <= most)) most = difference;
        }
  return most;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: mesh DATA PIPELINE TENSOR\n"), 2;
  const int data = std::atoi(argv[1]), pipeline = std::atoi(argv[2]), tensor = std::atoi(argv[3]);
  const gyreComm_t world = join_job();
  gyreComm_t self = nullptr;  // of this rank alone
  int rank = 0;
  check(gyreCommUserRank(world, &rank));
  check(gyreCommSplit(world, rank, 0, &self, nullptr));
  const gyreMesh_t mesh = make_mesh(world, data, pipeline, tensor);
  const gyreMesh_t mesh_of_one = make_mesh(self, 1, 1, 1);

  float most = 0;
  bool has_learnt = false;
  {
    Training training(mesh), alone(mesh_of_one);
    for (int step = 0; step < steps; ++step) {
      training.step();
      alone.step();
    }
    training.compare_replicas();
    most = distance(training, alone);
    has_learnt = std::fabs(alone.parameter(0, 0, 0, 0) - weight(0, 0, 0, 0)) > 1e-4F;
  }
  const bool is_right = most < tolerance && has_learnt;
  if (rank == 0 || !is_right)
    std::printf("rank %d: %d steps, at most %g from what one rank learns: %s\n", rank, steps,
                static_cast<double>(most), is_right ? "right" : "WRONG");
  check(gyreMeshDestroy(mesh_of_one));
  check(gyreMeshDestroy(mesh));
  check(gyreCommDestroy(self));
  check(gyreCommDestroy(world));
  return is_right ? 0 : 1;
}
