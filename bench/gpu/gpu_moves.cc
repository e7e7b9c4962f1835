// gpu_moves: the kernels' own code on one GPU, against the GPU's limits: the copy move and the
// driver's copy, the reduce move and a triad, the interpreter and a hand-written ring, and the cost
// of an empty launch. Prints lines of JSON, which bench/gpu.py reads.
#include "bench/gpu/bare_moves.h"
#include "bench/gpu/timing.h"
#include "lib/command_line/command_line.h"
#include "lib/cuda/device_link.h"

#include <fmt/core.h>

#include <array>
#include <cstdio>
#include <filesystem>

namespace gyre::bench {
namespace {

namespace cu = loaded::cu;
using loaded::CuDevicePointer;

// The bare kernels, three buffers of the device, and a stream.
class Moves {
 public:
  static Result<std::unique_ptr<Moves>> make(const loaded::CudaDriver& driver,
                                             const GpuOptions& options);
  ~Moves();
  Moves(const Moves&) = delete;
  Moves& operator=(const Moves&) = delete;

  Status race_copies();
  Status race_reductions();
  Status race_empty_graphs();

 private:
  Moves(const loaded::CudaDriver& driver, const GpuOptions& options)
      : driver_(driver), options_(options) {}
  Status prepare();
  Status launch(loaded::CuFunction kernel, unsigned blocks, unsigned threads, void** parameters);
  Status move(loaded::CuFunction kernel, const std::byte* second, std::uint64_t bytes);
  Status triad(std::uint64_t bytes);
  Status wait() {
    return driver_.check(driver_.stream_synchronize(stream_), "cuStreamSynchronize");
  }
  Contestant contestant(const std::string& name, std::function<Status()> once);
  Status check(float wanted);
  Status race_graph_of(int kernels);

  const loaded::CudaDriver& driver_;
  const GpuOptions options_;
  std::vector<char> image_;
  std::shared_ptr<const exec::CudaDevice> device_;
  loaded::CuModule module_ = nullptr;
  loaded::CuFunction copy_ = nullptr, reduce_ = nullptr, triad_ = nullptr, empty_ = nullptr;
  std::array<std::shared_ptr<exec::DeviceBlock>, 3> buffers_;  // ones, twos, and what comes out
  loaded::CuStream stream_ = nullptr;
  unsigned multiprocessors_ = 1;
};

Result<std::unique_ptr<Moves>> Moves::make(const loaded::CudaDriver& driver,
                                           const GpuOptions& options) {
  std::unique_ptr<Moves> moves(new Moves(driver, options));
  GYRE_ASSIGN(moves->image_, read_image(options, "moves"));
  // A device needs some kernels to say what it can run; these are the ring's.
  GYRE_ASSIGN(const std::vector<char> ring, read_image(options, "ring_interpreted"));
  const cuda::KernelImage row[] = {{"Float32_Sum", ring.data()}};
  GYRE_ASSIGN(moves->device_, exec::CudaDevice::open(driver, options.device, row));
  const loaded::CurrentContext scope(driver, moves->device_->owner());
  GYRE_TRY(moves->prepare());
  return moves;
}

Status Moves::prepare() {
  GYRE_TRY(driver_.check(driver_.module_load(&module_, image_.data()), "cuModuleLoadData"));
  const std::pair<const char*, loaded::CuFunction*> named[] = {{"gyre_bench_copy", &copy_},
                                                               {"gyre_bench_reduce", &reduce_},
                                                               {"gyre_bench_triad", &triad_},
                                                               {"gyre_bench_empty", &empty_}};
  for (const auto& [name, function] : named)
    GYRE_TRY(driver_.check(driver_.module_function(function, module_, name), name));
  int count = 0;
  loaded::CuDevice device = 0;
  GYRE_TRY(driver_.check(driver_.device_get(&device, options_.device), "cuDeviceGet"));
  GYRE_TRY(driver_.check(driver_.device_attribute(&count, cu::multiprocessor_count, device),
                         "cuDeviceGetAttribute"));
  multiprocessors_ = static_cast<unsigned>(count);
  GYRE_TRY(
      driver_.check(driver_.stream_create(&stream_, cu::stream_non_blocking), "cuStreamCreate"));
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    GYRE_ASSIGN(buffers_[i],
                exec::DeviceBlock::make(device_, options_.max_bytes, "a buffer of gpu_moves"));
    const std::vector<float> part((1 << 20) / sizeof(float), static_cast<float>(i + 1));
    for (std::uint64_t at = 0; at < options_.max_bytes; at += 1 << 20)
      GYRE_TRY(device_->upload(buffers_[i]->begin() + at, std::as_bytes(std::span(part))));
  }
  return {};
}

Moves::~Moves() {
  if (device_ == nullptr) return;
  const loaded::CurrentContext scope(driver_, device_->owner());
  if (stream_ != nullptr) (void)driver_.stream_destroy(stream_);
  if (module_ != nullptr) (void)driver_.module_unload(module_);
}

Status Moves::launch(loaded::CuFunction kernel, unsigned blocks, unsigned threads,
                     void** parameters) {
  return driver_.check(
      driver_.launch(kernel, blocks, 1, 1, threads, 1, 1, 0, stream_, parameters, nullptr),
      "cuLaunchKernel");
}

// A block for each multiprocessor, as wide as the kernels' blocks, and pieces as long as slots.
Status Moves::move(loaded::CuFunction kernel, const std::byte* second, std::uint64_t bytes) {
  BareMove on;
  on.launch.input = buffers_[0]->begin();
  on.launch.output = buffers_[2]->begin();
  on.launch.type = ElementType::float32;
  on.launch.element_bytes = sizeof(float);
  on.second = second;
  on.bytes = bytes;
  on.piece_bytes = exec::DeviceShape().slot_bytes;
  void* parameters[] = {&on};
  return launch(kernel, multiprocessors_, device_->threads(), parameters);
}

Status Moves::triad(std::uint64_t bytes) {
  const std::byte* a = buffers_[0]->begin();
  const std::byte* b = buffers_[1]->begin();
  std::byte* out = buffers_[2]->begin();
  unsigned long long count = bytes / 16;
  float factor = 1;
  void* parameters[] = {&a, &b, &out, &count, &factor};
  return launch(triad_, 4 * multiprocessors_, 512, parameters);
}

Contestant Moves::contestant(const std::string& name, std::function<Status()> once) {
  return {name,
          [once = std::move(once)](int times) -> Status {
            for (int i = 0; i < times; ++i) GYRE_TRY(once());
            return {};
          },
          [this] { return wait(); }};
}

// The last MiB of what came out.
Status Moves::check(float wanted) {
  std::vector<float> got((1 << 20) / sizeof(float));
  GYRE_TRY(device_->download(got.data(), buffers_[2]->begin() + options_.max_bytes - (1 << 20),
                             1 << 20));
  for (const float value : got)
    if (value != wanted)
      return internal_error(fmt::format("a move gave {} where {} is right", value, wanted));
  return {};
}

Status Moves::race_copies() {
  const loaded::CurrentContext scope(driver_, device_->owner());
  const auto pointer = [&](std::size_t i) {
    return reinterpret_cast<CuDevicePointer>(buffers_[i]->begin());
  };
  for (std::uint64_t bytes = options_.max_bytes / 16; bytes <= options_.max_bytes; bytes *= 4) {
    const std::vector<Contestant> both = {
        contestant("copy_move", [=, this] { return move(copy_, nullptr, bytes); }),
        contestant("copy_driver", [=, this] {
          return driver_.check(driver_.copy_on_device(pointer(2), pointer(0), bytes, stream_),
                               "cuMemcpyDtoDAsync");
        })};
    GYRE_TRY(race(both, bytes, 20, options_.rounds));
  }
  GYRE_TRY(move(copy_, nullptr, options_.max_bytes));
  GYRE_TRY(wait());
  return check(1);
}

Status Moves::race_reductions() {
  const loaded::CurrentContext scope(driver_, device_->owner());
  const std::byte* const second = buffers_[1]->begin();
  for (std::uint64_t bytes = options_.max_bytes / 16; bytes <= options_.max_bytes; bytes *= 4) {
    const std::vector<Contestant> both = {
        contestant("reduce_move", [=, this] { return move(reduce_, second, bytes); }),
        contestant("triad", [=, this] { return triad(bytes); })};
    GYRE_TRY(race(both, bytes, 20, options_.rounds));
  }
  GYRE_TRY(move(reduce_, second, options_.max_bytes));
  GYRE_TRY(wait());
  return check(3);
}

// A graph of so many empty kernels, launched again and again; the time is of one kernel.
Status Moves::race_graph_of(int kernels) {
  GYRE_TRY(driver_.check(driver_.stream_begin_capture(stream_, cu::capture_thread_local),
                         "cuStreamBeginCapture"));
  Status queued;
  for (int i = 0; i < kernels && queued.ok(); ++i) queued = launch(empty_, 1, 32, nullptr);
  loaded::CuGraph graph = nullptr;
  GYRE_TRY(driver_.check(driver_.stream_end_capture(stream_, &graph), "cuStreamEndCapture"));
  GYRE_TRY(std::move(queued));
  loaded::CuGraphRun run = nullptr;
  Status made =
      driver_.check(driver_.graph_instantiate(&run, graph, 0), "cuGraphInstantiateWithFlags");
  (void)driver_.graph_destroy(graph);
  GYRE_TRY(std::move(made));
  Contestant one = {
      fmt::format("empty_graph_of_{}", kernels),
      [this, run, kernels](int times) -> Status {
        for (int i = 0; i < times; i += kernels)
          GYRE_TRY(driver_.check(driver_.graph_launch(run, stream_), "cuGraphLaunch"));
        return {};
      },
      [this] { return wait(); }};
  Status raced = race({one}, 0, 2000, options_.rounds);
  (void)driver_.graph_run_destroy(run);
  return raced;
}

Status Moves::race_empty_graphs() {
  const loaded::CurrentContext scope(driver_, device_->owner());
  GYRE_TRY(race_graph_of(1));
  return race_graph_of(20);
}

Status run(const GpuOptions& options) {
  GYRE_ASSIGN(const auto driver, loaded::load_cuda(loaded::CudaPresence::wanted));
  {
    GYRE_ASSIGN(const auto moves, Moves::make(*driver, options));
    GYRE_TRY(moves->race_copies());
    GYRE_TRY(moves->race_reductions());
    GYRE_TRY(moves->race_empty_graphs());
  }
  return race_rings(*driver, options);
}

}  // namespace
}  // namespace gyre::bench

int main(int argc, char** argv) {
  using namespace gyre::command_line;
  gyre::bench::GpuOptions options;
  std::error_code unread;
  options.images = std::filesystem::read_symlink("/proc/self/exe", unread).parent_path().string();
  std::uint64_t mebibytes = 1024;
  CommandLine line("gpu_moves",
                   "Times the kernels' own moves on one GPU against what the GPU can do.");
  line.add_option("--device", options.device, whole(0, 1024), "N", "which GPU");
  line.add_option("--rounds", options.rounds, whole(1, 1000), "N", "of each measurement, in turn");
  line.add_option("--mebibytes", mebibytes, whole(16, 1 << 16), "N",
                  "of each of the largest buffers, of which there are 11");
  line.add_option("--images", options.images, any_text(), "FOLDER",
                  "folder of the images that `ninja gpu_images` makes");
  line.add_example("gpu_moves --device 1 --mebibytes 256");
  if (const std::optional<int> code = line.read(argc, argv)) return *code;
  options.max_bytes = mebibytes << 20;
  const gyre::Status status = gyre::bench::run(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "gpu_moves: %s\n", std::string(status.message()).c_str());
  return 3;
}
