// What overlap saves: steps of data-parallel training that reduce gradients beside the backward
// pass, after it, or not at all, and the reduction alone. Communication is real; the model consists
// of equal layers whose passes take a given time. One rank of a job that the environment describes
// (gyre run). Rank 0 prints the median over rounds of each step's slowest rank.
#include "bench/training/job.h"
#include "bench/training/timed_work.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

using namespace gyre::bench;

namespace {

constexpr double mib = 1 << 20;
constexpr int warm_up_steps = 3;  // while links find their pace
constexpr const char* automatic = "auto";

struct Options {
  std::size_t layers = 24;
  double megabytes = 96;
  std::string forward_ms = automatic, backward_ms = automatic;  // or numbers
  std::string compute = "sleep", json;
  std::vector<double> bucket_mb = {25, 8, 2};
  std::size_t rounds = 7;

  std::size_t layer_count() const {
    return static_cast<std::size_t>(megabytes * mib / sizeof(float)) / layers;
  }
  double bytes() const { return static_cast<double>(layer_count() * layers * sizeof(float)); }
};

// The ranks of the job.
class OverlapJob {
 public:
  explicit OverlapJob(gyreComm_t comm) : comm_(comm), rank_(rank_of(comm)), size_(size_of(comm)) {}

  gyreComm_t comm() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  void meet() const { expect(gyreBarrier(comm_, nullptr), comm_); }
  // Rank 0's value.
  double agree(double value) const {
    expect(gyreBcast(&value, 1, gyreDouble, 0, comm_, nullptr), comm_);
    return value;
  }
  void take_max(std::vector<double>& values) const {
    expect(gyreAllReduce(values.data(), values.data(), values.size(), gyreDouble, gyreMax, comm_,
                         nullptr),
           comm_);
  }

 private:
  const gyreComm_t comm_;
  const int rank_, size_;
};

// A rank's gradients, in buckets of one size.
class Model {
 public:
  Model(const OverlapJob& job, const Options& options, double bucket_mb) : layers_(options.layers) {
    const std::vector<gyreGradTensor_t> tensors(
        layers_, {nullptr, options.layer_count(), gyreFloat, nullptr, nullptr});
    gyreGradConfig_t config = GYRE_GRAD_CONFIG_INITIALIZER;
    config.bucketBytes = static_cast<std::size_t>(bucket_mb * mib);
    config.firstBucketBytes = std::min(config.firstBucketBytes, config.bucketBytes);
    expect(gyreGradCreate(&grad_, job.comm(), tensors.data(), tensors.size(), &config));
    std::vector<float> values(options.layer_count(), static_cast<float>(job.rank() + 1));
    for (std::size_t layer = 0; layer < layers_; ++layer)
      std::copy(values.begin(), values.end(), gradient(layer));
    for (int step = 0; step < warm_up_steps; ++step) {
      expect(gyreGradSetSync(grad_, 1));
      ready_all();
      wait();
    }
    std::fill(values.begin(), values.end(), static_cast<float>(job.size() + 1) / 2);
    for (std::size_t layer = 0; layer < layers_; ++layer)
      if (!std::equal(values.begin(), values.end(), gradient(layer)))
        fail("a gradient is not the mean over the ranks");
  }
  ~Model() {
    if (grad_ != nullptr) gyreGradDestroy(grad_);
  }
  Model(Model&& other) noexcept
      : layers_(other.layers_), grad_(std::exchange(other.grad_, nullptr)) {}
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  Model& operator=(Model&&) = delete;

  std::size_t layers() const { return layers_; }
  void set_sync(bool sync) const { expect(gyreGradSetSync(grad_, sync ? 1 : 0)); }
  void ready(std::size_t layer) const { expect(gyreGradReady(grad_, layer, nullptr)); }
  void ready_all() const {
    for (std::size_t layer = layers_; layer-- > 0;) ready(layer);
  }
  void wait() const { expect(gyreGradWait(grad_)); }
  double reduced_bytes() const {
    gyreGradStats_t stats{};
    stats.size = sizeof stats;
    expect(gyreGradGetStats(grad_, &stats));
    return static_cast<double>(stats.wireBytes);
  }

 private:
  float* gradient(std::size_t layer) const {
    void* view = nullptr;
    expect(gyreGradView(grad_, layer, &view));
    return static_cast<float*>(view);
  }

  const std::size_t layers_;
  gyreGrad_t grad_ = nullptr;
};

// A way to make a step, and what was measured of it.
struct Way {
  enum class Kind : std::uint8_t { bare, compute, overlapped, afterwards };
  std::string name;
  Kind kind;
  double bucket_mb;
  const Model& model;
  std::vector<double> ms = {};  // of rounds
  double reduced_bytes = 0;     // of this rank, in all rounds

  double median() const { return gyre::bench::median(ms); }
};

struct Passes {
  double forward_ms = 0, backward_ms = 0;
};

void backward(const Way& way, TimedWork& passing, double pass_ms) {
  for (std::size_t layer = way.model.layers(); layer-- > 0;) {
    passing.take(pass_ms / static_cast<double>(way.model.layers()));
    if (way.kind == Way::Kind::overlapped) way.model.ready(layer);
  }
}

// Milliseconds of one step.
double step(const OverlapJob& job, const Way& way, TimedWork& passing, const Passes& passes) {
  way.model.set_sync(way.kind != Way::Kind::compute);
  job.meet();
  const std::int64_t began_ns = now_ns();
  if (way.kind != Way::Kind::bare) {
    passing.take(passes.forward_ms);
    backward(way, passing, passes.backward_ms);
  }
  if (way.kind != Way::Kind::overlapped) way.model.ready_all();
  way.model.wait();
  return ms_since(began_ns);
}

// Unless they are given, a backward pass takes as long as the reduction by itself (the least of so
// many: what else the machine does is in the others), and a forward pass half of that, as it has
// half of a backward pass's products.
Passes settle_passes(const OverlapJob& job, const Options& options, const Way& bare,
                     TimedWork& passing) {
  Passes passes;
  if (options.backward_ms == automatic) {
    std::vector<double> ms;
    for (std::size_t i = 0; i < options.rounds; ++i) ms.push_back(step(job, bare, passing, {}));
    passes.backward_ms = job.agree(*std::min_element(ms.begin(), ms.end()));
  } else {
    passes.backward_ms = std::stod(options.backward_ms);
  }
  const bool halves = options.forward_ms == automatic;
  passes.forward_ms = halves ? passes.backward_ms / 2 : std::stod(options.forward_ms);
  return passes;
}

// Each round begins with another way.
void measure(const OverlapJob& job, const Options& options, std::vector<Way>& ways,
             TimedWork& passing, const Passes& passes) {
  for (std::size_t round = 0; round < options.rounds; ++round)
    for (std::size_t i = 0; i < ways.size(); ++i) {
      Way& way = ways[(round + i) % ways.size()];
      const double before = way.model.reduced_bytes();
      way.ms.push_back(step(job, way, passing, passes));
      way.reduced_bytes += way.model.reduced_bytes() - before;
    }
  for (Way& way : ways) job.take_max(way.ms);
}

double median_of_kind(const std::vector<Way>& ways, Way::Kind kind) {
  return std::find_if(ways.begin(), ways.end(), [&](const Way& way) { return way.kind == kind; })
      ->median();
}

nlohmann::ordered_json describe(const OverlapJob& job, const Options& options,
                                const std::vector<Model>& models, const std::vector<Way>& ways,
                                const Passes& passes) {
  const double bare_ms = median_of_kind(ways, Way::Kind::bare);
  const double compute_ms = median_of_kind(ways, Way::Kind::compute);
  const double afterwards_ms = median_of_kind(ways, Way::Kind::afterwards);
  // What an all-reduce has to send from each rank at the least.
  const double sent_bytes = 2.0 * (job.size() - 1) / job.size() * options.bytes();
  nlohmann::ordered_json found = {{"ranks", job.size()},
                                  {"bytes", options.bytes()},
                                  {"layers", options.layers},
                                  {"compute", options.compute},
                                  {"forward_ms", passes.forward_ms},
                                  {"backward_ms", passes.backward_ms},
                                  {"rounds", options.rounds},
                                  {"sent_gbit_per_s", sent_bytes * 8 / bare_ms / 1e6},
                                  {"ways", nlohmann::json::array()}};
  double reduced_bytes = 0;
  for (const Model& model : models) reduced_bytes += model.reduced_bytes();
  found["reduced_bytes"] = reduced_bytes;  // of a rank since it began
  for (const Way& way : ways) {
    const auto [least, most] = std::minmax_element(way.ms.begin(), way.ms.end());
    nlohmann::ordered_json line = {{"way", way.name},        {"bucket_mb", way.bucket_mb},
                                   {"p50_ms", way.median()}, {"least_ms", *least},
                                   {"most_ms", *most},       {"reduced_bytes", way.reduced_bytes}};
    if (way.kind == Way::Kind::overlapped || way.kind == Way::Kind::afterwards) {
      line["exposed_ms"] = way.median() - compute_ms;
      line["hidden_share"] = 1 - (way.median() - compute_ms) / bare_ms;
      line["shorter"] = 1 - way.median() / afterwards_ms;
    }
    found["ways"].push_back(std::move(line));
  }
  return found;
}

void print(const nlohmann::ordered_json& found) {
  std::printf(
      "# %d ranks, %d layers, %.1f MiB of gradients; forward %.1f ms, backward %.1f ms (%s)"
      ", %d rounds\n# the reduction by itself sends %.3f Gbit/s from each rank\n",
      found["ranks"].get<int>(), found["layers"].get<int>(), found["bytes"].get<double>() / mib,
      found["forward_ms"].get<double>(), found["backward_ms"].get<double>(),
      found["compute"].get<std::string>().c_str(), found["rounds"].get<int>(),
      found["sent_gbit_per_s"].get<double>());
  std::printf("%-12s %10s %10s %10s %10s %11s %8s %8s\n", "way", "bucket MiB", "median ms",
              "least ms", "most ms", "exposed ms", "hidden", "shorter");
  for (const auto& line : found["ways"]) {
    std::printf("%-12s %10g %10.2f %10.2f %10.2f", line["way"].get<std::string>().c_str(),
                line["bucket_mb"].get<double>(), line["p50_ms"].get<double>(),
                line["least_ms"].get<double>(), line["most_ms"].get<double>());
    if (line.contains("shorter"))
      std::printf(" %11.2f %7.1f%% %7.1f%%", line["exposed_ms"].get<double>(),
                  100 * line["hidden_share"].get<double>(), 100 * line["shorter"].get<double>());
    std::printf("\n");
  }
}

void run(const OverlapJob& job, const Options& options) {
  std::vector<Model> models;
  for (const double bucket_mb : options.bucket_mb) models.emplace_back(job, options, bucket_mb);
  const double first_mb = options.bucket_mb[0];
  std::vector<Way> ways = {{"bare", Way::Kind::bare, first_mb, models[0]},
                           {"compute", Way::Kind::compute, first_mb, models[0]},
                           {"afterwards", Way::Kind::afterwards, first_mb, models[0]}};
  for (std::size_t i = 0; i < models.size(); ++i)
    ways.push_back({"overlapped", Way::Kind::overlapped, options.bucket_mb[i], models[i]});
  // All ranks multiply meanwhile, as they do in a pass.
  job.meet();
  const bool multiplies = options.compute == "matrix";
  TimedWork passing(multiplies ? job.agree(TimedWork::measure_products_per_ms()) : 0);
  const Passes passes = settle_passes(job, options, ways[0], passing);
  measure(job, options, ways, passing, passes);
  if (job.rank() != 0) return;
  const nlohmann::ordered_json found = describe(job, options, models, ways, passes);
  print(found);
  if (options.json.empty()) return;
  std::ofstream file(options.json);
  file << found.dump() << '\n';
  if (!file.flush()) fail("cannot write " + options.json);
}

std::string check_pass(const std::string& text) {
  return text == automatic ? "" : number(0, 1e6)(text);
}

void add_options(CommandLine& line, Options& options) {
  line.add_option("--layers", options.layers, whole(1, 4096), "N",
                  "equal ones, ready from last to first (default: 24)");
  line.add_option("--megabytes", options.megabytes, number(1e-3, 1e5), "MIB",
                  "MiB of gradients, float32 (default: 96)");
  line.add_option("--forward-ms", options.forward_ms, check_pass, "MS",
                  "what the forward pass takes; auto (default): half of the backward pass");
  line.add_option(
      "--backward-ms", options.backward_ms, check_pass, "MS",
      "what the backward pass takes; auto (default): as long as the reduction by itself");
  line.add_option("--compute", options.compute, one_of({"sleep", "matrix"}), "sleep|matrix",
                  "passes are: sleep (default), as on an accelerator; matrix, products on the "
                  "thread that trains");
  line.add_option("--bucket-mb", options.bucket_mb, number(1e-3, 1e5), "MIB,...",
                  "MiB of buckets, for the overlapped way; the first for all (default: 25,8,2)");
  line.add_option("--rounds", options.rounds, whole(1, 10000), "N",
                  "steps of each way (default: 7)");
  line.add_option("--json", options.json, any_text(), "FILE",
                  "rank 0 writes what it found into this file");
  line.add_example("gyre run -n 2 overlap --megabytes 16 --bucket-mb 4,1");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CommandLine line(
      "overlap",
      "Steps of data-parallel training: gradients reduced beside the backward pass, after "
      "it, not at all, and by themselves. One rank of a job, as gyre run starts it.");
  add_options(line, options);
  parse(line, argc, argv);
  if (options.layer_count() == 0) fail("--megabytes is less than one number for each of --layers");
  run_process([&](gyreComm_t comm) { run(OverlapJob(comm), options); });
  return 0;
}
