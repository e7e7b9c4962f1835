// Three patterns in which ranks sync a model: a ring, a parameter server, and a star whose server
// receives and sends at once. Rank 0 is the server. Each sync takes a gradient from every rank and
// leaves the same new parameters on all of them, which are checked. One rank of a job that the
// environment describes (gyre run). Rank 0 prints the median over rounds of each sync's slowest
// rank.
//
// A pattern's copies: so many times the model's size crosses the busiest link, one byte after the
// other. Links carry both directions at once.
#include "bench/training/job.h"
#include "bench/training/timed_work.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

using namespace gyre::bench;

namespace {

constexpr double mib = 1 << 20;
constexpr int server = 0;
constexpr std::size_t kinds = 8;              // of elements: those of a kind have the same values
constexpr float learning_rate = 1.0F / 1024;  // a power of two, so that all ranks round alike
constexpr std::size_t warm_up_share = 16;     // of the model: while links find their pace

struct Options {
  double megabytes = 16;
  std::size_t rounds = 7;
  double piece_kib = 16;
  std::string json;

  std::size_t count() const { return static_cast<std::size_t>(megabytes * mib / sizeof(float)); }
  std::size_t piece_count() const {
    return static_cast<std::size_t>(piece_kib * 1024 / sizeof(float));
  }
};

// A rank's copy of the model, and its gradient.
class SyncedModel {
 public:
  SyncedModel(gyreComm_t comm, std::size_t count, std::size_t piece_count)
      : comm_(comm),
        rank_(rank_of(comm)),
        size_(size_of(comm)),
        piece_count_(piece_count),
        parameters_(count),
        gradient_(count) {
    if (rank_ == server)
      incoming_.assign(static_cast<std::size_t>(size_ - 1), std::vector<float>(piece_count_));
  }

  void begin_step() {
    ++step_;
    for (std::size_t i = 0; i < gradient_.size(); ++i) gradient_[i] = gradient_of(rank_, i % kinds);
    for (std::size_t kind = 0; kind < kinds; ++kind) {
      float sum = 0;
      for (int rank = 0; rank < size_; ++rank) sum += gradient_of(rank, kind);
      expected_[kind] -= learning_rate * sum;
    }
  }
  void check() const {
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (parameters_[i] != expected_[i % kinds])
        fail("parameter " + std::to_string(i) + " is " + std::to_string(parameters_[i]) +
             " and not " + std::to_string(expected_[i % kinds]));
  }

  // Every rank gets the sum of the gradients and updates its own parameters.
  void by_ring() {
    expect(gyreAllReduce(gradient_.data(), gradient_.data(), gradient_.size(), gyreFloat, gyreSum,
                         comm_, nullptr),
           comm_);
    update(0, gradient_.size());
  }

  // The server has all gradients before it sends any parameter.
  void by_server() {
    if (rank_ != server) {
      for (std::size_t piece = 0; piece < pieces(); ++piece) send_gradient(piece);
      receive_parameters(0, parameters_.size());
      return;
    }
    for (std::size_t piece = 0; piece < pieces(); ++piece) {
      expect(gyreGroupStart(), nullptr);
      receive_gradients(piece);
      expect(gyreGroupEnd(), comm_);
      add_gradients(piece);
    }
    update(0, gradient_.size());
    expect(gyreGroupStart(), nullptr);
    send_parameters(0, parameters_.size());
    expect(gyreGroupEnd(), comm_);
  }

  // The server sends the parameters of a piece while it receives the gradients of the next one.
  // A worker sends as far ahead as its link lets it.
  void by_star() {
    if (rank_ != server) {
      expect(gyreGroupStart(), nullptr);
      for (std::size_t piece = 0; piece < pieces(); ++piece) {
        send_gradient(piece);
        receive_parameters(begin_of(piece), count_of(piece));
      }
      expect(gyreGroupEnd(), comm_);
      return;
    }
    for (std::size_t turn = 0; turn <= pieces(); ++turn) {
      expect(gyreGroupStart(), nullptr);
      if (turn < pieces()) receive_gradients(turn);
      if (turn > 0) send_parameters(begin_of(turn - 1), count_of(turn - 1));
      expect(gyreGroupEnd(), comm_);
      if (turn == pieces()) break;
      add_gradients(turn);
      update(begin_of(turn), count_of(turn));
    }
  }

 private:
  // Small whole numbers, whose sums are exact in every order.
  float gradient_of(int rank, std::size_t kind) const {
    return static_cast<float>((kind + step_) % kinds + static_cast<std::size_t>(rank) + 1);
  }

  std::size_t pieces() const { return (gradient_.size() + piece_count_ - 1) / piece_count_; }
  std::size_t begin_of(std::size_t piece) const { return piece * piece_count_; }
  std::size_t count_of(std::size_t piece) const {
    return std::min(piece_count_, gradient_.size() - begin_of(piece));
  }

  void send_gradient(std::size_t piece) {
    expect(gyreSend(gradient_.data() + begin_of(piece), count_of(piece), gyreFloat, server, comm_,
                    nullptr),
           comm_);
  }
  void receive_gradients(std::size_t piece) {
    for (int worker = 1; worker < size_; ++worker)
      expect(gyreRecv(incoming_of(worker), count_of(piece), gyreFloat, worker, comm_, nullptr),
             comm_);
  }
  void add_gradients(std::size_t piece) {
    float* const sums = gradient_.data() + begin_of(piece);
    for (int worker = 1; worker < size_; ++worker) {
      const float* const theirs = incoming_of(worker);
      for (std::size_t i = 0; i < count_of(piece); ++i) sums[i] += theirs[i];
    }
  }
  void update(std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i)
      parameters_[i] -= learning_rate * gradient_[i];
  }
  void send_parameters(std::size_t first, std::size_t count) {
    for (int worker = 1; worker < size_; ++worker)
      expect(gyreSend(parameters_.data() + first, count, gyreFloat, worker, comm_, nullptr), comm_);
  }
  void receive_parameters(std::size_t first, std::size_t count) {
    expect(gyreRecv(parameters_.data() + first, count, gyreFloat, server, comm_, nullptr), comm_);
  }
  float* incoming_of(int worker) { return incoming_[static_cast<std::size_t>(worker - 1)].data(); }

  const gyreComm_t comm_;
  const int rank_, size_;
  const std::size_t piece_count_;
  std::size_t step_ = 0;
  std::vector<float> parameters_, gradient_;
  std::array<float, kinds> expected_{};
  std::vector<std::vector<float>> incoming_;  // of the server: a piece from each worker
};

// What was measured of a pattern.
struct SyncPattern {
  std::string name;
  void (SyncedModel::*sync)();
  double (*copies)(double ranks);
  std::vector<double> ms = {};  // of rounds

  double median() const { return gyre::bench::median(ms); }
};

std::vector<SyncPattern> patterns() {
  return {{"ring", &SyncedModel::by_ring, [](double ranks) { return 2 * (ranks - 1) / ranks; }},
          {"server", &SyncedModel::by_server, [](double ranks) { return 2 * (ranks - 1); }},
          {"star", &SyncedModel::by_star, [](double ranks) { return ranks - 1; }}};
}

// Milliseconds of one sync.
double time_sync(gyreComm_t comm, const SyncPattern& pattern, SyncedModel& model) {
  model.begin_step();
  expect(gyreBarrier(comm, nullptr), comm);
  const std::int64_t began_ns = now_ns();
  (model.*pattern.sync)();
  const double ms = ms_since(began_ns);
  model.check();
  return ms;
}

// Each round begins with another pattern.
std::vector<SyncPattern> measure(gyreComm_t comm, const Options& options) {
  std::vector<SyncPattern> found = patterns();
  SyncedModel small(comm, std::max<std::size_t>(1, options.count() / warm_up_share),
                    options.piece_count());
  for (const SyncPattern& pattern : found) time_sync(comm, pattern, small);
  SyncedModel model(comm, options.count(), options.piece_count());
  for (std::size_t round = 0; round < options.rounds; ++round)
    for (std::size_t i = 0; i < found.size(); ++i) {
      SyncPattern& pattern = found[(round + i) % found.size()];
      pattern.ms.push_back(time_sync(comm, pattern, model));
    }
  for (SyncPattern& pattern : found)
    expect(gyreAllReduce(pattern.ms.data(), pattern.ms.data(), pattern.ms.size(), gyreDouble,
                         gyreMax, comm, nullptr),
           comm);
  return found;
}

nlohmann::ordered_json describe(gyreComm_t comm, const Options& options,
                                const std::vector<SyncPattern>& patterns) {
  nlohmann::ordered_json found = {{"ranks", size_of(comm)},
                                  {"bytes", options.count() * sizeof(float)},
                                  {"piece_kib", options.piece_kib},
                                  {"rounds", options.rounds},
                                  {"patterns", nlohmann::json::array()}};
  for (const SyncPattern& pattern : patterns)
    found["patterns"].push_back({{"pattern", pattern.name},
                                 {"copies", pattern.copies(size_of(comm))},
                                 {"p50_ms", pattern.median()},
                                 {"ms", pattern.ms}});
  return found;
}

void print(const nlohmann::ordered_json& found) {
  std::printf("# %d ranks sync a model of %.2f MiB, %d rounds; rank 0 is the server\n",
              found["ranks"].get<int>(), found["bytes"].get<double>() / mib,
              found["rounds"].get<int>());
  std::printf("%-8s %8s %10s %10s %10s %16s\n", "pattern", "copies", "median ms", "least ms",
              "most ms", "MB/s a direction");
  for (const auto& line : found["patterns"]) {
    const auto ms = line["ms"].get<std::vector<double>>();
    const auto [least, most] = std::minmax_element(ms.begin(), ms.end());
    const double copies = line["copies"], median_ms = line["p50_ms"];
    std::printf("%-8s %8.3f %10.2f %10.2f %10.2f %16.2f\n",
                line["pattern"].get<std::string>().c_str(), copies, median_ms, *least, *most,
                copies * found["bytes"].get<double>() / median_ms / 1e3);
  }
}

void run(gyreComm_t comm, const Options& options) {
  const std::vector<SyncPattern> measured = measure(comm, options);
  if (rank_of(comm) != server) return;
  const nlohmann::ordered_json found = describe(comm, options, measured);
  print(found);
  if (options.json.empty()) return;
  std::ofstream file(options.json);
  file << found.dump() << '\n';
  if (!file.flush()) fail("cannot write " + options.json);
}

void add_options(CommandLine& line, Options& options) {
  line.add_option("--megabytes", options.megabytes, number(1e-3, 1e5), "MIB",
                  "MiB of the model, float32 (default: 16)");
  line.add_option("--piece-kib", options.piece_kib, number(1.0 / 256, 1 << 20), "KIB",
                  "KiB of a gradient that the server takes from each rank at a time (default: 16). "
                  "Larger ones keep the star waiting: a link's queue holds them up");
  line.add_option("--rounds", options.rounds, whole(1, 10000), "N",
                  "syncs of each pattern (default: 7)");
  line.add_option("--json", options.json, any_text(), "FILE",
                  "rank 0 writes what it found into this file");
  line.add_example("gyre run -n 4 sync_patterns --megabytes 4");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CommandLine line("sync_patterns",
                   "Three patterns that sync a model: a ring, a parameter server that takes all "
                   "gradients before it sends any parameter, and a star that does both at once. "
                   "One rank of a job, as gyre run starts it.");
  add_options(line, options);
  parse(line, argc, argv);
  run_process([&](gyreComm_t comm) { run(comm, options); });
  return 0;
}
