// The interpreter against the hand-written ring: the same executors, links and buffers, with the
// kernels of one image or of the other.
#include "bench/gpu/timing.h"
#include "lib/cuda/cuda_executor.h"
#include "lib/plan/algorithms.h"

#include <fmt/core.h>

#include <array>

namespace gyre::bench {
namespace {

constexpr int ranks = 2;
constexpr std::uint32_t channels = 8;
constexpr std::int64_t patience_ns = 10'000'000'000;  // a ring that stands still is an error

// Both ranks with the kernels of one image.
class Ring {
 public:
  static Result<std::unique_ptr<Ring>> make(const loaded::CudaDriver& driver,
                                            const GpuOptions& options, const std::string& image);
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  void set_bytes(std::uint64_t bytes);
  Status start(int times);
  Status wait();
  // Of ones and twos, what is not three.
  Status check();

 private:
  struct RingRank {
    std::shared_ptr<exec::CudaExecutor> executor;
    plan::Plan plan;
    const exec::DevicePlan* bound = nullptr;
    std::shared_ptr<std::byte> link;  // this end's memory
    std::shared_ptr<exec::DeviceBlock> input, output;
    loaded::CuStream stream = nullptr;
  };
  explicit Ring(const loaded::CudaDriver& driver) : driver_(driver) {}
  Status prepare(RingRank& rank, int number, const exec::DeviceShape& shape, std::uint64_t bytes);

  const loaded::CudaDriver& driver_;
  std::vector<char> image_;
  std::shared_ptr<const exec::CudaDevice> device_;
  std::vector<RingRank> ranks_;
  std::vector<plan::Geometry> stripes_;
  std::uint64_t bytes_ = 0;
};

Status Ring::prepare(RingRank& rank, int number, const exec::DeviceShape& shape,
                     std::uint64_t bytes) {
  GYRE_ASSIGN(rank.executor,
              exec::CudaExecutor::create(device_, shape, shape.link_bytes(), patience_ns,
                                         [](const std::shared_ptr<void>&) {}));
  GYRE_ASSIGN(rank.link, rank.executor->allocate(shape.link_bytes(), "a link"));
  GYRE_ASSIGN(rank.input, exec::DeviceBlock::make(device_, bytes, "an input"));
  GYRE_ASSIGN(rank.output, exec::DeviceBlock::make(device_, bytes, "an output"));
  const std::vector<float> part((1 << 20) / sizeof(float), static_cast<float>(number + 1));
  for (std::uint64_t at = 0; at < bytes; at += 1 << 20)
    GYRE_TRY(device_->upload(rank.input->begin() + at, std::as_bytes(std::span(part))));
  const loaded::CurrentContext scope(driver_, device_->owner());
  return driver_.check(driver_.stream_create(&rank.stream, loaded::cu::stream_non_blocking),
                       "cuStreamCreate");
}

Result<std::unique_ptr<Ring>> Ring::make(const loaded::CudaDriver& driver,
                                         const GpuOptions& options, const std::string& image) {
  std::unique_ptr<Ring> ring(new Ring(driver));
  GYRE_ASSIGN(ring->image_, read_image(options, image));
  const cuda::KernelImage row[] = {{"Float32_Sum", ring->image_.data()}};
  GYRE_ASSIGN(ring->device_, exec::CudaDevice::open(driver, options.device, row));
  exec::DeviceShape shape;
  shape.channels = channels;
  for (int number = 0; number < ranks; ++number) {
    GYRE_ASSIGN(
        plan::Plan plan,
        plan::build_plan("ring", {.rank_count = ranks, .rank = number, .order = {}, .trees = {}}));
    ring->ranks_.push_back({nullptr, std::move(plan), nullptr, nullptr, nullptr, nullptr, nullptr});
    GYRE_TRY(ring->prepare(ring->ranks_.back(), number, shape, options.max_bytes));
  }
  for (int number = 0; number < ranks; ++number) {
    RingRank& own = ring->ranks_[static_cast<std::size_t>(number)];
    const RingRank& other = ring->ranks_[static_cast<std::size_t>(1 - number)];
    const exec::DeviceLink link = {own.link.get(), other.link.get()};
    GYRE_ASSIGN(own.bound,
                own.executor->bind(std::span(&own.plan, 1), [link](plan::Link) { return link; }));
  }
  return ring;
}

Ring::~Ring() {
  if (device_ == nullptr) return;
  const loaded::CurrentContext scope(driver_, device_->owner());
  for (RingRank& rank : ranks_)
    if (rank.stream != nullptr) (void)driver_.stream_destroy(rank.stream);
}

void Ring::set_bytes(std::uint64_t bytes) {
  bytes_ = bytes;
  const exec::DeviceShape& shape = ranks_[0].executor->shape();
  const std::uint32_t used = bytes < channels * 4096ULL ? 1 : channels;
  stripes_.assign(used, {});
  for (std::uint32_t i = 0; i < used; ++i) {
    plan::Layout layout = plan::Layout::even(bytes / used / ranks, bytes / used);
    layout.origin = i * (bytes / used);
    stripes_[i].input = stripes_[i].output = layout;
    stripes_[i].chunk_count = ranks;
    stripes_[i].piece_bytes = shape.max_piece(cuda::DeviceProtocol::simple, 1, 2);
  }
}

Status Ring::start(int times) {
  for (int i = 0; i < times; ++i)
    for (std::size_t number = 0; number < ranks_.size(); ++number) {
      RingRank& rank = ranks_[number];
      exec::DeviceCall call;
      call.stripes = stripes_;
      call.input = rank.input->begin();
      call.output = rank.output->begin();
      call.input_bytes = call.output_bytes = bytes_;
      call.type = ElementType::float32;
      call.rank = static_cast<std::uint32_t>(number);
      for (bool room = false; !room;) {
        GYRE_ASSIGN(room, rank.executor->has_room(true));
      }
      GYRE_TRY(rank.executor->launch(*rank.bound, std::span(&call, 1), rank.stream));
    }
  return {};
}

Status Ring::wait() {
  const loaded::CurrentContext scope(driver_, device_->owner());
  for (RingRank& rank : ranks_)
    GYRE_TRY(driver_.check(driver_.stream_synchronize(rank.stream), "cuStreamSynchronize"));
  for (RingRank& rank : ranks_)  // it tells at the second look
    for (int look = 0; look < 2; ++look)
      if (rank.executor->take_failed() != nullptr)
        return internal_error("a kernel of the ring gave up: its message did not come in 10 s");
  return {};
}

Status Ring::check() {
  std::vector<float> got(std::min<std::uint64_t>(bytes_, 1 << 20) / sizeof(float));
  for (RingRank& rank : ranks_) {
    const std::uint64_t last = bytes_ - got.size() * sizeof(float);
    GYRE_TRY(
        device_->download(got.data(), rank.output->begin() + last, got.size() * sizeof(float)));
    for (const float value : got)
      if (value != 3.0F)
        return internal_error(fmt::format("the ring's sum of 1 and 2 is {}", value));
  }
  return {};
}

}  // namespace

Status race_rings(const loaded::CudaDriver& driver, const GpuOptions& options) {
  constexpr std::uint64_t sizes[] = {8, 64 << 10, 1 << 20, 16 << 20, 256 << 20};
  GYRE_ASSIGN(const auto interpreted, Ring::make(driver, options, "ring_interpreted"));
  GYRE_ASSIGN(const auto straight, Ring::make(driver, options, "ring_straight"));
  const std::array<Ring*, 2> rings = {interpreted.get(), straight.get()};
  for (const std::uint64_t bytes : sizes) {
    if (bytes > options.max_bytes) break;
    std::vector<Contestant> contestants;
    for (Ring* ring : rings) {
      ring->set_bytes(bytes);
      contestants.push_back({ring == rings[0] ? "ring_interpreted" : "ring_straight",
                             [ring](int times) { return ring->start(times); },
                             [ring] { return ring->wait(); }});
    }
    const int times = bytes > 16 << 20 ? (options.times + 9) / 10 : options.times;
    GYRE_TRY(race(contestants, bytes, times, options.rounds));
    for (Ring* ring : rings) GYRE_TRY(ring->check());
  }
  return {};
}

}  // namespace gyre::bench
