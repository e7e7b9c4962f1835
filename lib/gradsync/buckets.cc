#include "lib/gradsync/buckets.h"

#include "lib/base/units.h"

#include <array>
#include <utility>

namespace gyre::gradsync {
namespace {

struct OpenBucket {
  Bucket bucket;
  bool is_first = true;  // of its type
};

class BucketLayout {
 public:
  BucketLayout(std::span<const Tensor> tensors, BucketLimits limits)
      : tensors_(tensors), limits_(limits) {}

  void add(std::size_t index) {
    const Tensor& tensor = tensors_[index];
    OpenBucket& filling = filling_[static_cast<std::size_t>(tensor.type)];
    if (tensor.bytes() >= limits_.bytes) close(filling);
    Bucket& bucket = filling.bucket;
    bucket.type = tensor.type;
    bucket.slices.push_back({index, bucket.count});
    bucket.count += round_up(tensor.count, slice_alignment / element_bytes(tensor.type));
    if (bucket.bytes() >= (filling.is_first ? limits_.first_bytes : limits_.bytes)) close(filling);
  }

  std::vector<Bucket> end() {
    for (OpenBucket& filling : filling_) close(filling);
    return std::move(buckets_);
  }

 private:
  void close(OpenBucket& filling) {
    if (filling.bucket.slices.empty()) return;
    buckets_.push_back(std::exchange(filling.bucket, {}));
    filling.is_first = false;
  }

  const std::span<const Tensor> tensors_;
  const BucketLimits limits_;
  std::array<OpenBucket, element_type_count> filling_;
  std::vector<Bucket> buckets_;
};

}  // namespace

std::vector<Bucket> lay_out(std::span<const Tensor> tensors, std::span<const std::size_t> order,
                            BucketLimits limits) {
  BucketLayout layout(tensors, limits);
  for (const std::size_t index : order) layout.add(index);
  return layout.end();
}

}  // namespace gyre::gradsync
